"""The options that narrow the output: --host, --group, --rule, --severity, the same in every
command that shows a judged run."""

from __future__ import annotations

import argparse
import fnmatch
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.audit.report.filtering import Filter, narrowed
from unhang.core.catalogue.owners import OWNERS
from unhang.core.commands.common_options import add_repeatable
from unhang.core.commands.options import Options
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, fold_hosts
from unhang.core.path_arguments import irregular
from unhang.core.run.actions import Setting, command
from unhang.core.run.findings import read_run
from unhang.core.run.own_runs import is_own
from unhang.core.run.run_folder import read_node
from unhang.core.run.run_input import node_paths
from unhang.core.schemas.reading import nearest
from unhang.core.strict_json import read_bounded
from unhang.core.text import visible
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.rules import SEVERITIES

OPTIONS = ("host", "group", "rule", "severity", "owner")
MOST_LISTED = 12  # number of names in a message that lists the known ones
MAX_LIST_BYTES = 32 << 20


def add_filters(
    parser: argparse.ArgumentParser,
    title: str = "filters for the output and the exit code",
    *,
    reads: bool = False,
) -> None:
    """Adds the options. Each may be repeated, and accepts several values with commas. title: of
    their part of the help; reads: the command's own --host selects the nodes that are read."""
    group = parser.add_argument_group(title)
    if not reads:
        nodes = "only these nodes: gpu001, gpu[001-016], 'gpu*', @FILE with one per line"
        add_repeatable(group, "-l --host", "HOSTS", nodes)
    add_repeatable(group, "--group", "GROUP", "only nodes of this inventory group")
    add_repeatable(
        group, "--rule", "RULE", "only findings of this rule: gpu-gives-no-handle, 'nccl-*'"
    )
    add_repeatable(group, "--severity", "SEVERITY", f"only these: {', '.join(SEVERITIES)}")
    add_repeatable(group, "--owner", "OWNER", f"only what these people act on: {', '.join(OWNERS)}")


class Filters(Options, frozen=True):
    """The options, each with its values as they were typed."""

    host: list[str]
    group: list[str]
    rule: list[str]
    severity: list[str]
    owner: list[str]


def typed(filters: Filters) -> list[tuple[str, str]]:
    """(option, value) of each that was typed."""
    return [(name, value) for name in OPTIONS for value in getattr(filters, name)]


def check_filters(filters: Filters, rules: Sequence[Path] = ()) -> None:
    """Checks of the filters that need no run. rules: folders of further rules. Raises UserError.
    Hosts and groups are checked later, because they are known only with the run."""
    given = _values(filters)
    _check("--severity", given["severity"], SEVERITIES, "a severity")
    _check("--owner", given["owner"], OWNERS, "an owner")
    if asked := given["rule"]:
        _check(
            "--rule",
            asked,
            [rule.id for rule in load_catalogue(rules).rules],
            "a rule of the catalogue",
        )


def filtered(folder: Path, findings: Mapping[str, Any], filters: Filters) -> Mapping[str, Any]:
    """The findings that the options select. Raises UserError for an unknown host, group, rule or
    severity."""
    asked = asked_filter(folder, findings, filters)
    if asked is None:
        return findings
    kept = narrowed(findings, asked)
    setting = planned_setting(folder, findings)
    return {
        **kept,
        "causes": [{**cause, "command": command(cause, setting)} for cause in kept["causes"]],
    }


def planned_setting(folder: Path, findings: Mapping[str, Any]) -> Setting:
    """The surroundings for the commands of a run's causes, as in findings.json."""
    planned = "" if (findings.get("judged_by") or {}).get("policy") else str(findings["run"]["id"])
    return Setting(
        run=planned, reachable=read_run(folder).get("inventory") is not None, is_own=is_own(folder)
    )


def asked_filter(folder: Path, findings: Mapping[str, Any], filters: Filters) -> Filter | None:
    """The filter of the options, None without any. Raises UserError as filtered does."""
    given = _values(filters)
    if not any(given.values()):
        return None
    known = [host for hosts in findings["node_verdicts"].values() for host in hosts]
    hosts = _hosts(given["host"], known) if given["host"] else None
    if given["group"]:
        of_groups = _of_groups(folder, known, given["group"])
        hosts = of_groups if hosts is None else hosts & of_groups
    _check(
        "--rule", given["rule"], findings["totals_by_rule"], "a rule that was judged in this run"
    )
    _check("--severity", given["severity"], SEVERITIES, "a severity")
    _check("--owner", given["owner"], OWNERS, "an owner")
    words = " ".join(f"--{name} {shlex.quote(value)}" for name, value in typed(filters))
    return Filter(
        hosts, tuple(given["rule"]), tuple(given["severity"]), tuple(given["owner"]), words
    )


def named_hosts(given: str) -> Sequence[str]:
    """Hosts and wildcards of one --host: a node set, or @FILE with one host a line. Raises
    UserError."""
    if not given.startswith("@"):
        return expand_limit(given)
    path = Path(given[1:])
    if kind := irregular(path):
        raise UserError(f"--host: {path} is {kind}, not a file of hosts")
    try:
        lines = read_bounded(path, MAX_LIST_BYTES).decode().splitlines()
    except (OSError, ValueError) as problem:
        raise UserError(f"--host: the file of hosts {path} cannot be read: {problem}") from None
    return [host for line in lines for host in expand_limit(line)]


def _values(filters: Filters) -> dict[str, list[str]]:
    """{option: its values}, one by one. Raises UserError for a file of hosts."""
    found: dict[str, list[str]] = {name: [] for name in OPTIONS}
    for name, given in typed(filters):
        found[name] += (
            named_hosts(given)
            if name == "host"
            else [part.strip() for part in given.split(",") if part.strip()]
        )
    return found


def _hosts(given: Sequence[str], known: Sequence[str]) -> frozenset[str]:
    _check("--host", given, known, "a node of this run")
    exact = frozenset(given).intersection(known)
    patterns = [one for one in given if set("*?") & set(one)]
    return exact | {
        host for host in known if any(fnmatch.fnmatchcase(host, one) for one in patterns)
    }


def _of_groups(folder: Path, known: Sequence[str], wanted: Sequence[str]) -> frozenset[str]:
    """Nodes of the inventory groups, from the heads of the node files."""
    groups = {host: _groups_of(path) for host, path in node_paths(folder, known).items()}
    _check(
        "--group",
        wanted,
        {group for those in groups.values() for group in those},
        "an inventory group of this run",
    )
    return frozenset(
        host
        for host, those in groups.items()
        if any(fnmatch.fnmatchcase(group, one) for group in those for one in wanted)
    )


def _groups_of(path: Path) -> Sequence[str]:
    try:
        return read_node(path).get("groups") or ()
    except UserError:
        return ()  # the judge has already reported this file


def _check(option: str, given: Iterable[str], known: Iterable[str], what: str) -> None:
    there = set(known)
    names = sorted(there)
    for one in given:
        if one not in there and not any(fnmatch.fnmatchcase(name, one) for name in names):
            known = f"; {_there_are(option, names)}"
            raise UserError(f"{option}: {one!r} is not {what}{nearest(one, names) or known}")


def _there_are(option: str, names: Sequence[str]) -> str:
    """A text that lists the known values: nodes folded, at most MOST_LISTED other values, and for
    many rules the command that lists them."""
    if option == "--host":
        return f"there are {visible(fold_hosts(names), 300)}" if names else "there is none"
    if len(names) > MOST_LISTED:
        return (
            "`unhang catalogue` lists the rules"
            if option == "--rule"
            else f"there are {', '.join(names[:MOST_LISTED])} and {len(names) - MOST_LISTED} more"
        )
    return f"there are {', '.join(names)}" if names else "there is none"
