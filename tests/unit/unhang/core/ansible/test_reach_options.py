"""Options of ansible-playbook that a printed command needs to reach the nodes as the call before it
did."""

from __future__ import annotations

import pytest
from ansible.cli.playbook import PlaybookCLI

from unhang.core.ansible.reach_options import reach_options


def record_of(*options):
    """Ansible's own record of a command line."""
    command = PlaybookCLI(["ansible-playbook", "site.yml", *options])
    command.init_parser()
    return vars(command.parser.parse_args(command.args[1:]))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], []),
        (["--limit", "gpu001", "-e", "secret=1", "-f", "3", "--check"], []),
        (["-b"], ["--become"]),
        (
            ["--become", "-K", "--become-method", "su"],
            ["--become", "--ask-become-pass", "--become-method=su"],
        ),
        (
            ["-u", "ops", "--private-key", "/keys/ops", "-k"],
            ["--ask-pass", "--user=ops", "--private-key=/keys/ops"],
        ),
        (["--ssh-common-args=-J jump"], ["--ssh-common-args=-J jump"]),
    ],
)
def test_how_nodes_are_reached_is_kept_and_nothing_else(given, kept):
    found = reach_options(record_of(*given))
    assert found == kept
    assert reach_options(record_of(*found)) == kept
