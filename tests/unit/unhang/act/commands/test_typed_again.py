"""The command that continues a rollout has the options with which it began: without --drain it
would take another scheduler's nodes for free ones."""

from __future__ import annotations

import shlex

import pytest

from unhang.act.commands.typed_again import typed_again
from unhang.cli import command_and_parser

KEPT = (
    "inventory",
    "drain",
    "max_failed",
    "no_smoke",
    "ansible",
    "apply",
)


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "--drain slurm --max-failed 5%",
        "-i 'inventory/my cluster' -i second --ansible=--forks=8",
        "--no-smoke --ansible=--become --ansible='-e drain_slurm_conf=/etc/slurm.conf'",
    ],
)
def test_what_was_typed_reaches_and_drains_the_nodes_in_the_same_way_again(typed, tmp_path):
    parser = command_and_parser("remediate")[1]
    given = parser.parse_args(["RUN", "--apply", *shlex.split(typed)])
    _program, name, *argv = shlex.split(typed_again(tmp_path / "run", given, "--apply"))
    again = parser.parse_args(argv)
    assert (name, again.plan) == ("remediate", str(tmp_path / "run"))
    assert {key: getattr(again, key) for key in KEPT} == {key: getattr(given, key) for key in KEPT}


def test_filters_and_a_take_over_are_not_typed_again(tmp_path):
    given = command_and_parser("remediate")[1].parse_args(
        ["RUN", "--rule", "a-rule", "--host", "gpu001", "--take-over", "-q"]
    )
    assert typed_again(tmp_path, given).endswith(f"unhang remediate {tmp_path}")


def test_a_plan_and_its_rollout_have_few_options():
    """What has one right value is no option. Not counted: those of every command that shows a
    judged run, and of the output."""
    common = {"help", "format", "quiet", "verbose", "host", "group", "rule", "severity", "owner"}
    parsers = [command_and_parser(name)[1] for name in ("plan", "remediate")]
    options = {
        action.dest for parser in parsers for action in parser._actions if action.option_strings
    }
    assert len(options - common) <= 20, sorted(options - common)
