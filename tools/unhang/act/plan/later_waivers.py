"""Waivers that the inventory's policy has now and that the judged findings do not know: a person
who accepted a finding can plan the run without another audit.

Only rows that name hosts count: for which nodes any other row is meant, Ansible alone knows. A
waiver that was taken away since takes effect with the next audit. It never adds work to a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.findings import hosts_of
from unhang.core.run.own_runs import is_own, own_inventories
from unhang.core.run.run_folder import read_run
from unhang.core.schemas.policy import Waiver, policy_faults, waivers_of
from unhang.core.strict_yaml import YamlFault, load_yaml
from unhang.core.text import visible

KEY = "unhang_policy"


def waivers_now(folder: Path, today: str) -> list[Waiver]:
    """Valid waivers with hosts, of the files in this user's own inventory that gave the run its
    policy. A file that cannot be read as it is (a vault, templates) has none."""
    if not is_own(folder):
        return []
    homes = [Path(one).resolve() for one in own_inventories(folder)]
    found: list[Waiver] = []
    for named in read_run(folder).document.get("policy_sources") or ():
        path = Path(str(named)).resolve()
        if any(path.is_relative_to(one if one.is_dir() else one.parent) for one in homes):
            found += _waivers_in(path)
    return [one for one in found if one.row["until"] >= today and (one.hosts or one.patterns)]


def _waivers_in(path: Path) -> list[Waiver]:
    try:
        document, _ = load_yaml(path)
    except (OSError, YamlFault):
        return []
    holder = document if isinstance(document, Mapping) else {}
    policy = holder.get(KEY)
    rows = policy.get("waivers") if isinstance(policy, Mapping) else None
    if not rows or policy_faults({"waivers": rows}):
        return []
    return waivers_of({"waivers": rows})


def without_waived(
    findings: Mapping[str, Any],
    waivers: Sequence[Waiver],
    groups_of: Mapping[str, Collection[str]],
) -> tuple[dict[str, Any], list[str]]:
    """(the findings, those that a waiver covers on each of their hosts as waived; a line about each
    rule that is left out). groups_of: host -> its inventory groups."""
    left_out: dict[str, set[str]] = {}
    by_rule: dict[str, list[Waiver]] = {}
    for waiver in waivers:
        by_rule.setdefault(waiver.rule, []).append(waiver)

    def judged(one: Mapping[str, Any]) -> Mapping[str, Any]:
        hosts, rows = hosts_of(one), by_rule.get(one["rule"], [])
        if one["verdict"] != "fail" or not hosts or not rows:
            return one
        for host in hosts:
            if not any(row.covers(host, groups_of.get(host, ()), one["where"]) for row in rows):
                return one
        left_out.setdefault(one["rule"], set()).update(hosts)
        return {**one, "verdict": "waived"}

    found = [judged(one) for one in findings["findings"]]
    lines = [
        f"{visible(rule, 120)} on {shortened(fold_hosts(hosts), 120)}"
        for rule, hosts in sorted(left_out.items())
    ]
    return {**findings, "findings": found}, lines
