"""The waivers that accept a finding of a run. Values in, values out."""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, fold_hosts, shortened
from unhang.core.run.findings import hosts_of
from unhang.core.schemas.policy import one_line, parts_of, policy_faults
from unhang.core.schemas.reading import nearest

TEMPLATES = ("{{", "{%", "{#")  # Ansible would evaluate what follows them
SINCE = "-since-earlier-run"


@dataclass(frozen=True)
class Wish:
    """What a person accepts. hosts: None for every host with the finding; until: the last day."""

    rule: str
    hosts: Collection[str] | None
    until: str
    reason: str
    by: str


def waiver_rows(findings: Mapping[str, Any], wish: Wish, today: str) -> list[dict[str, Any]]:
    """Rows of `waivers`: of the rule, and of the twins that are folded into its causes. findings:
    the object of findings.json; today: YYYY-MM-DD. Raises UserError."""
    _check(wish, today)
    failed = [one for one in findings["findings"] if one["verdict"] == "fail"]
    having = {host for one in failed if one["rule"] == wish.rule for host in hosts_of(one)}
    if not having:
        near = nearest(wish.rule, sorted({one["rule"] for one in failed}))
        raise UserError(f"the run has no finding of {wish.rule}{near}")
    hosts = having if wish.hosts is None else set(wish.hosts)
    if without := hosts - having:
        shown = shortened(fold_hosts(without), 120)
        raise UserError(f"--host names {shown}, without a finding of {wish.rule}")
    rows = [
        _row(rule, among, parts, wish)
        for rule, found in _by_rule(findings, wish.rule, hosts).items()
        for parts, among in _by_parts(failed, rule, found).items()
    ]
    if faults := policy_faults({"waivers": rows}):
        raise UserError("\n".join(one_line(fault) for fault in faults))
    return rows


def _check(wish: Wish, today: str) -> None:
    if wish.until < today:
        raise UserError(f"--until must be {today} or a later day, and is {wish.until}")
    for name, text in (("--reason", wish.reason), ("--by", wish.by)):
        if not text.strip() or not text.isprintable() or any(one in text for one in TEMPLATES):
            raise UserError(
                f"{name} must be a line of text without templates of Ansible, and is {text!r}"
            )


def _by_rule(
    findings: Mapping[str, Any], rule: str, hosts: Collection[str]
) -> dict[str, Collection[str]]:
    """The rule and its twins -> the hosts of each. A twin says again what the node's own finding
    says: a comparison, or what an earlier run had. One that is about other nodes too is left."""
    found: dict[str, set[str]] = {rule: set(hosts)}
    for cause in findings["causes"]:
        if cause["rule"] != rule or not set(hosts).intersection(cause["nodes"]):
            continue
        for one in (findings["findings"][place] for place in cause["findings"]):
            is_twin = one["scope"] != "node" or one["rule"].endswith(SINCE)
            if one["rule"] != rule and is_twin and set(hosts_of(one)) <= set(hosts):
                found.setdefault(one["rule"], set()).update(hosts_of(one))
    return {name: among for name, among in found.items() if among}


def _by_parts(
    failed: Sequence[Mapping[str, Any]], rule: str, hosts: Collection[str]
) -> dict[tuple[str, ...], set[str]]:
    """The parts that the rule's findings are about -> the hosts with these; () for a rule whose
    findings name none. What a node calls its parts is no wildcard."""
    of_host: dict[str, set[str]] = {host: set() for host in hosts}
    for one in failed:
        for host in of_host.keys() & set(hosts_of(one)) if one["rule"] == rule else ():
            of_host[host].update(map(glob.escape, parts_of(one["where"])))
    found: dict[tuple[str, ...], set[str]] = {}
    for host, parts in of_host.items():
        found.setdefault(tuple(sorted(parts)), set()).add(host)
    return found


def _row(rule: str, hosts: Collection[str], parts: tuple[str, ...], wish: Wish) -> dict[str, Any]:
    folded = fold_hosts(hosts)
    named = [folded] if set(expand_limit(folded)) == set(hosts) else sorted(hosts)
    if any(one in name for one in TEMPLATES for name in (*named, *parts)):
        raise UserError(
            f"names of hosts and parts must be without templates of Ansible, and {folded!r} has one"
        )
    return {
        "rule": rule,
        "hosts": named,
        **({"parts": list(parts)} if parts else {}),
        "reason": wish.reason,
        "by": wish.by,
        "until": wish.until,
    }
