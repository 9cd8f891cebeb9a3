"""`unhang history diff A B`: what changed from one run to another, or what differs between two
sides of other kinds."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import fnmatch
from collections.abc import Sequence

from unhang.audit.commands.diff_sides import SideOptions, add_side_arguments, show_sides
from unhang.audit.commands.fail_on import add_fail_on
from unhang.audit.commands.run_news import tell
from unhang.audit.history.changes import CHANGED, NEW, Changes, changes_between
from unhang.audit.history.rendering import render_changes
from unhang.audit.history.runs import PastRun, last_two, named, run_at
from unhang.core import project
from unhang.core.commands.common_options import (
    add_examples,
    add_format_option,
    add_quiet,
    add_repeatable,
    add_value,
)
from unhang.core.commands.hooks import Hooks, add_hooks, check_hooks
from unhang.core.commands.row_output import FORMATS, Row, show_rows
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit
from unhang.core.secrets_in_text import masked_fields
from unhang.judge.rules.rules import SEVERITIES

COLUMNS = ("change", "severity", "rule", "title", "place", "fact", "before", "now", "hosts")
EXAMPLES = """\
  unhang history diff                                  the last run against the one before it of the same inventory
  unhang history diff --since yesterday                against the state that yesterday's last run left
  unhang history diff --since 2w --rule 'nccl-*'       of two weeks, one kind of finding
  unhang history diff 20261120T043323Z latest -o csv   between two runs, by id or the beginning of one
  unhang history diff -q --webhook @/etc/unhang/chat   what is new or resolved, to a chat
  unhang history diff development production           the configuration of two groups of the last run's inventory
  unhang history diff 'gpu[001-004]' gpu005            of nodes of it
  unhang history diff latest:training 20261118:training   of a group in two runs
  unhang history diff RUN RUN --fact driver            of all nodes of two runs: the driver, by number of nodes
  unhang history diff gpu001 job.env --launch slurm    the node's settings and what `env` printed in a job
  unhang history diff node.json job.json               unhang collect on the node, and in the job's container"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sides = (
        "the earlier and the later run (default: the last two of an inventory; one run is"
        " compared with the last), or two of: group, nodes, RUN:GROUP, "
    )
    parser.add_argument(
        "sides",
        metavar="A",
        nargs="*",
        help=f"{sides}file of unhang collect, file of what env printed",
    )
    add_value(
        parser,
        "--since",
        "TIME",
        "the earlier run is the last one before: yesterday, 12h, 3d, 2w, 2026-11-20 (UTC)",
    )
    add_repeatable(parser, "-l --host", "HOSTS", "only these nodes: gpu001, gpu[001-016], 'gpu*'")
    add_repeatable(
        parser, "--rule", "RULE", "only findings of this rule: gpu-gives-no-handle, 'nccl-*'"
    )
    add_repeatable(
        parser, "--severity", "SEVERITY", f"only findings of these: {', '.join(SEVERITIES)}"
    )
    add_side_arguments(parser)
    add_fail_on(parser)
    add_hooks(parser)
    add_format_option(parser, FORMATS)
    add_quiet(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Runs: 0 if no finding at or above --fail-on is new, else 1. Other sides: 0 if nothing
    differs, else 1. Raises UserError."""
    hooks, sides = Hooks.of(arguments), SideOptions.of(arguments)
    if sides.are_asked_for:
        of_runs = {
            "since": arguments.since,
            "host": arguments.host,
            "rule": arguments.rule,
            "severity": arguments.severity,
            "webhook": hooks.webhook,
            "hook": hooks.hook,
        }
        if wrong := [name for name, given in of_runs.items() if given]:
            raise UserError(
                f"--{wrong[0]} is for two runs alone, not for {' and '.join(sides.sides)[:200]}"
            )
        return show_sides(sides)
    check_hooks(hooks)
    before, now = _runs(sides.sides, arguments.since)
    changes = narrowed(
        changes_between(before, now), arguments.host, arguments.rule, arguments.severity
    )
    shown: Changes = masked_fields(changes)
    program = project.program_as_typed()
    show_rows(
        arguments.format,
        arguments.quiet,
        lambda width: render_changes(before, now, shown, program, width),
        rows_of(changes),
        COLUMNS,
    )
    tell(before, now, changes.findings, hooks, arguments.fail_on)
    counted = SEVERITIES[: SEVERITIES.index(arguments.fail_on) + 1]
    return int(
        any(one.change in (NEW, CHANGED) and one.severity in counted for one in changes.findings)
    )


def _runs(given: Sequence[str], since: str | None) -> tuple[PastRun, PastRun]:
    """(the earlier, the later). Raises UserError."""
    if len(given) > (1 if since else 2):
        raise UserError(
            f"{'--since takes one run beside it' if since else 'two runs are compared'}, not"
            f" {len(given)}: {' '.join(given)[:200]}"
        )
    if not given and not since:
        return last_two()
    later = len(given) == 2 or (given and since)
    now = named(given[-1] if later else "latest")
    moment = datetime.datetime.now(datetime.UTC)
    before = run_at(since, moment) if since else named(given[0])
    if before.id == now.id:
        raise UserError(f"{before.id} is the only run: there is nothing yet to compare it with")
    ordered = sorted((before, now), key=lambda run: (run.started, run.id))
    return ordered[0], ordered[1]


def narrowed(
    changes: Changes, host: Sequence[str], rule: Sequence[str], severity: Sequence[str]
) -> Changes:
    """The changes that --host, --rule and --severity select. Facts have no rule and no severity, so
    the last two exclude them."""
    hosts = [one for given in host for one in expand_limit(given)]
    rules = [part.strip() for given in rule for part in given.split(",")]
    severities = [part.strip() for given in severity for part in given.split(",")]
    if unknown := [one for one in severities if one not in SEVERITIES]:
        raise UserError(f"--severity takes some of {', '.join(SEVERITIES)}, not {unknown[0]!r}")

    def among_hosts(names: Sequence[str]) -> tuple[str, ...]:
        exact = frozenset(hosts)
        return tuple(
            name
            for name in names
            if not hosts or name in exact or any(fnmatch.fnmatchcase(name, one) for one in hosts)
        )

    findings = (
        dataclasses.replace(one, hosts=among_hosts(one.hosts)) for one in changes.findings
        if (not rules or any(fnmatch.fnmatchcase(one.rule,
        rule) for rule in rules)) and (not severities or one.severity in severities)
    )  # fmt: skip
    facts = (
        ()
        if rules or severities
        else (dataclasses.replace(one, hosts=among_hosts(one.hosts)) for one in changes.facts)
    )
    only_once = {
        name: among_hosts(getattr(changes, name))
        for name in ("only_now", "only_before", "other_machines")
    }
    return Changes(
        tuple(one for one in findings if one.hosts),
        tuple(one for one in facts if one.hosts),
        **only_once,
    )


def rows_of(changes: Changes) -> list[Row]:
    empty = dict.fromkeys(COLUMNS)
    rows: list[Row] = [
        {**empty, "change": one.change, "severity": one.severity, "rule": one.rule,
        "title": one.title, "place": dict(one.place), "now": one.found,
         "hosts": list(one.hosts)} for one in changes.findings
    ]  # fmt: skip
    rows += [
        {
            **empty,
            **dataclasses.asdict(one),
            "change": "fact",
            "hosts": list(one.hosts),
        }
        for one in changes.facts
    ]
    asked = {
        "asked": changes.only_now,
        "not asked": changes.only_before,
        "another machine": changes.other_machines,
    }
    return rows + [
        {**empty, "change": word, "hosts": list(hosts)} for word, hosts in asked.items() if hosts
    ]
