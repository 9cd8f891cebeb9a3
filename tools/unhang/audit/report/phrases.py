"""The texts of reports: a finding or a run in, short lines for people out. Used by the table and
the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.audit.report.folding import Fold, fold_items
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.findings import NOT_A_GPU_NODE, OF_POLICY, SEVERITIES
from unhang.core.text import counted, listed, visible

VENDOR = "vendor"  # the owner of what a ticket is for
VERDICTS = ("fail", "unknown", "waived", "pass", "skip")
VERDICT_WORDS = {
    "fail": "found",
    "unknown": "unknown",
    "waived": "waived",
    "pass": "passed",
    "skip": "not applicable",
}
CONFIDENCE_WORDS = {
    "maintainers": "stated by its maintainers, not in the vendor's documentation",
    "reported": "reported by users, not confirmed by the vendor",
    "inferred": "inferred by us, weak evidence",
}
SITUATIONS = {
    1: "stuck while the trainer is created",
    2: "peer-to-peer deadlock after a driver upgrade",
    3: "an all-gather that times out",
    4: "stuck while fused kernels are built",
    5: "every rank on GPU 0",
}
_OF_GPU = re.compile(r"\b(?:gpus\.devices|interconnect\.by_gpu)\[(\d+)\]")
_PLACE = re.compile(r"\[\d+\]")
STATUS_WORDS = {
    "ok": "read",
    "unreachable": "unreachable",
    "timeout": "timed out",
    "failed": "failed",
    "invalid": "invalid answer",
    "python_too_old": "Python too old",
    "missing": "never asked",
}


POLICIES_FROM = {"documents": "the policies in the nodes' documents", "none": "no policy"}
NO_NODES = "No nodes: the inventory or the limit names none"


@dataclass(frozen=True)
class Tally:
    """Counts of a run."""

    nodes: int
    by_status: dict[str, int]  # status -> number of nodes; only statuses that occur
    # severity above info -> number of causes; only severities that occur
    by_severity: dict[str, int]
    remarks: int  # number of causes of severity info, which are no fault
    verdicts: dict[str, int]  # verdict -> number of judgements
    rules: int  # number of rules that were judged
    blamed: int  # number of nodes with a cause above info
    unhealthy: int  # number of nodes that are not healthy, whether or not their causes are shown
    not_gpu_nodes: int = 0


def tally(findings: Mapping[str, Any]) -> Tally:
    """Counts of a run: `findings` is the object of findings.json. Causes and nodes are counted, as
    on the first screen, not findings."""
    counts = findings.get("nodes") or {}
    causes = findings.get("causes") or []
    by_severity = Counter(str(cause["severity"]) for cause in causes)
    by_verdict = findings.get("node_verdicts") or {}
    totals = findings.get("totals") or {}
    return Tally(
        nodes=int(findings.get("host_count") or 0),
        by_status={status: int(counts[status]) for status in STATUS_WORDS if counts.get(status)},
        by_severity={
            severity: by_severity[severity]
            for severity in SEVERITIES
            if by_severity[severity] and severity != "info"
        },
        remarks=by_severity["info"],
        verdicts={
            verdict: int(totals.get(verdict) or 0) for verdict in VERDICTS if verdict in totals
        },
        rules=int((findings.get("catalogue") or {}).get("rules") or 0),
        blamed=len(
            {host for cause in causes if cause["severity"] != "info" for host in cause["nodes"]}
        ),
        unhealthy=int(findings.get("host_count") or 0) - len(by_verdict.get("healthy", ())),
        not_gpu_nodes=len(by_verdict.get(NOT_A_GPU_NODE, ())),
    )


def severity_counts(counts: Mapping[str, int]) -> str:
    """3 critical, 1,200 error: without what there is none of."""
    return ", ".join(
        f"{counts[severity]:,} {severity}" for severity in SEVERITIES if counts.get(severity)
    )


def headline(totals: Tally) -> str:
    """The run in one sentence."""
    nodes = counted(totals.nodes, "node")
    if not totals.nodes:
        return NO_NODES
    if totals.by_severity:
        worst = next(iter(totals.by_severity))
        things = f"{counted(totals.by_severity[worst], worst + ' cause')}"
        more = sum(totals.by_severity.values()) - totals.by_severity[worst]
        also = f" and {more:,} lesser" if more else ""
        return f"{things}{also} on {totals.blamed:,} of {nodes}"
    remarks = f", {counted(totals.remarks, 'remark')}" if totals.remarks else ""
    unknown = (
        f"; {counted(totals.verdicts['unknown'], 'judgement')} could not be made"
        if totals.verdicts["unknown"]
        else ""
    )
    if totals.unhealthy:  # a filter left their causes out
        usual = (
            "Only remarks that hold for most healthy nodes"
            if totals.verdicts.get("fail")
            else "Nothing found"
        )
        return (
            f"{counted(totals.remarks, 'remark')} on {nodes}"
            if totals.remarks
            else f"{usual} on {nodes}"
        ) + (f", {totals.not_gpu_nodes:,} {NOT_A_GPU_NODE}" if totals.not_gpu_nodes else "")
    return f"{nodes} healthy{remarks}{unknown}"


def without_nodes(rule: str) -> str:
    """Where a cause is that names no node."""
    return "the policy" if rule in OF_POLICY else "the whole fleet"


def node_verdicts(findings: Mapping[str, Any]) -> str:
    """`23 nodes: 3 critical, 7 error, 2 unread, 11 healthy`, each node once; `2 of 23 nodes: …` of
    those that a filter left; empty without nodes."""
    verdicts: Mapping[str, Sequence[str]] = findings.get("node_verdicts") or {}
    counts = ", ".join(
        f"{len(hosts):,} {visible(verdict, 40)}" for verdict, hosts in verdicts.items() if hosts
    )
    shown, nodes = sum(map(len, verdicts.values())), int(findings.get("host_count") or 0)
    if not counts:
        return f"nothing found on {counted(nodes, 'node')}" if nodes else ""
    return (
        f"{f'{shown:,} of ' if shown < nodes else ''}{counted(max(shown, nodes), 'node')}: {counts}"
    )


def applied_checks(hosts: Sequence[str], findings: Mapping[str, Any]) -> str:
    """`58 of 799 checks applied`, of the nodes without GPUs among these hosts; over several nodes
    with the range of the number."""
    applied = [findings["without_gpus"][host] for host in hosts]
    least, most = min(applied), max(applied)
    number = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{number} of {counted(findings['catalogue']['rules'], 'check')} applied"


def without_gpus(findings: Mapping[str, Any], longest: int) -> str:
    """`login1: no NVIDIA GPU and no driver: 58 of 799 checks applied`; "" without such nodes."""
    without = list(findings.get("without_gpus") or ())
    if not without:
        return ""
    on = shortened(fold_hosts(without), longest)
    return f"{on}: no NVIDIA GPU and no driver: {applied_checks(without, findings)}"


def rules_left_out(findings: Mapping[str, Any]) -> list[str]:
    """Why the result is incomplete: faults of rules that were refused for them (a rule may have
    several), and rules that were stopped."""
    catalogue = findings.get("catalogue") or {}
    return [
        *(f"rule not used: {visible(text, 300)}" for text in catalogue.get("refused") or []),
        *(
            f"rule {visible(rule, 120)} was stopped: it used up its time or memory"
            for rule in catalogue.get("stopped") or []
        ),
    ]


def left_out(findings: Mapping[str, Any]) -> list[str]:
    """Rules that were not used, and nodes that were read at another time or by an older collector
    than the others."""
    lines = rules_left_out(findings)
    if older := findings.get("older"):
        lines.append(
            f"{hosts(older, 60)} read a day and more before the last node: what differs there may"
            " have changed since"
        )
    if unwritten := findings.get("unwritten"):
        lines.append(
            f"an older collector read {hosts(sorted(set().union(*unwritten.values())), 30)},"
            f" without {listed(list(unwritten), 1)}: read again"
        )
    return [*lines[:5], f"and {len(lines) - 5} more reasons"] if len(lines) > 5 else lines


def node_counts(totals: Tally) -> str:
    """`14 read, 1 unreachable`."""
    return ", ".join(
        f"{count:,} {STATUS_WORDS[status]}" for status, count in totals.by_status.items()
    )


def verdict_counts(totals: Tally) -> str:
    """`6 found, 3 unknown, 1 waived, 812 passed, 40 not applicable`."""
    return ", ".join(
        f"{count:,} {VERDICT_WORDS[verdict]}" for verdict, count in totals.verdicts.items()
    )


def hosts(names: Sequence[str], longest: int = 10**9) -> str:
    """`gpu[001-008] (8 nodes)`."""
    return shortened(fold_hosts(names), longest) + (
        f" ({len(names):,} nodes)" if len(names) > 1 else ""
    )


def places(fold: Fold, most: int = 6, longest: int = 10**9) -> list[str]:
    """Where: `gpu[001-008] (8 nodes): GPU 0-7`, one line for each set of hosts that share the same
    items; one line in all when the sets are many."""
    if len(fold.places) > most:
        items = fold_items(item for place in fold.places for item in place.items)
        return [f"{hosts(fold.hosts, longest)}: {items}, not all of them on each node"]
    lines = []
    for place in fold.places:
        items = fold_items(place.items)
        lines.append(hosts(place.hosts, longest) + (f": {items}" if items else ""))
    return lines or ["no host is known"]


def settings(policy: Mapping[str, Any], under: str = "") -> list[str]:
    """Policy keys that a remedy proposes, flat: `driver.version: 535.154.05`."""
    lines = []
    for key, value in policy.items():
        path = f"{under}{key}"
        if isinstance(value, Mapping):
            lines += settings(value, path + ".")
        else:
            lines.append(f"{visible(path, 80)}: {visible(value, 200)}")
    return lines


def action(finding: Mapping[str, Any]) -> str:
    """The next action, in one line."""
    remedy = finding.get("remedy") or {}
    person = visible(remedy["person"]) if remedy.get("person") else ""
    return _steps("apply role", remedy, person)


def cause_action(cause: Mapping[str, Any]) -> str:
    """The action for a cause, in one line; if nodes need different actions, the one of most
    nodes."""
    remedy = cause["remedy"]
    persons = remedy["person"]
    person = (
        visible(persons[0]) + (f" (and {len(persons) - 1} more alike)" if len(persons) > 1 else "")
        if persons
        else ""
    )
    return _steps("role", remedy, person)


def _steps(applied: str, remedy: Mapping[str, Any], person: str) -> str:
    """The role with its settings, then what a person does."""
    wanted = settings(remedy.get("policy") or {})
    role = f"{applied} {visible(remedy['role'], 80)}" if remedy.get("role") else ""
    if role and wanted:
        role += f" with {', '.join(wanted)}"
    return "; ".join(filter(None, (role, person))) or "no remedy is known; look at the evidence"


def conflict(given: Mapping[str, Any]) -> str:
    """`driver.min: 580.65.06 (RULE) against driver.version: 535.154.05 (unhang_policy); what
    decides`."""
    sides = " against ".join(
        f"{visible(side['wants'], 120)} ({visible(side['because'], 120)})"
        for side in given["sides"][:3]
    )
    return f"{sides}; {visible(given['decides'], 300)}"


def devices(cause: Mapping[str, Any]) -> str:
    """The devices for a ticket: `gpu007 GPU 5 serial 1650522003820 PCI 0000:00:0b.0 GPU-…`; empty
    if the findings name no device."""
    values = []
    for row in cause["devices"][:2]:
        parts = [
            f"GPU {row['gpu']}" if row["gpu"] is not None else "",
            f"serial {visible(row['serial'], 40)}" if row.get("serial") else "",
            f"PCI {visible(row['pci_address'], 40)}" if row["pci_address"] else "",
            visible(row["uuid"], 60) if row["uuid"] else "",
        ]
        values.append(f"{visible(row['host'], 80)} {' '.join(filter(None, parts))}")
    more = len(cause["devices"]) - 2
    return "; ".join(values) + (f"; and {more} more" if more > 0 else "")


def comparison(finding: Mapping[str, Any], most: int = 6) -> list[str]:
    """The values of the nodes in a group, most frequent first: `535.154.05 on gpu[001-007] (7
    nodes)`."""
    rows = (finding.get("comparison") or {}).get("counts") or []
    lines = [
        f"{visible(row.get('shown', row.get('value')), 200)} on"
        f" {hosts([str(host) for host in row.get('hosts') or []])}"
        for row in rows[:most]
    ]
    return lines + ([f"and {counted(len(rows) - most, 'more value')}"] if len(rows) > most else [])


def workaround(finding: Mapping[str, Any]) -> str:
    """A workaround until it is fixed, and its cost; empty without one."""
    match finding.get("workaround"):
        case {"what": what, "cost": cost}:
            return f"{visible(what, 300)} (costs: {visible(cost, 300)})"
    return ""


def evidence(finding: Mapping[str, Any], most: int = 40) -> list[tuple[str, str]]:
    """(fact, value as it was read), without rows of the catalogue's tables, which are not facts of
    a node."""
    rows = [
        row
        for row in finding.get("evidence") or []
        if isinstance(row, Mapping) and not str(row.get("path") or "").startswith("tables.")
    ]
    return [
        (fact_name(visible(row.get("path") or "?", 160)), visible(row.get("value"), 400))
        for row in rows[:most]
    ]


def fact_name(path: str) -> str:
    """A fact as the manual has it: `network.rdma.ports.state`, `gpus.devices.error of GPU 5`,
    `number of gpus.devices.processes of GPU 0`."""
    gpu = _OF_GPU.search(path)
    bare, _, filtered = _PLACE.sub("", path).partition(" | ")
    name = (
        f"number of {bare}"
        if filtered == "length"
        else f"{bare} ({filtered})"
        if filtered
        else bare
    )
    return f"{name} of GPU {gpu[1]}" if gpu else name


def situations(finding: Mapping[str, Any]) -> list[str]:
    """`can look like: every rank on GPU 0`; [] if the finding belongs to no named situation."""
    marks = sorted(set(finding.get("situations") or ()) & SITUATIONS.keys())
    more = f"; and {counted(len(marks) - 2, 'other hang')}" if len(marks) > 2 else ""
    return (
        [f"can look like: {'; '.join(SITUATIONS[number] for number in marks[:2])}{more}"]
        if marks
        else []
    )


def confidence(finding: Mapping[str, Any]) -> str:
    """The rule's confidence, only if it is lower than documented."""
    given = str(finding.get("confidence") or "documented")
    return "" if given == "documented" else CONFIDENCE_WORDS.get(given) or visible(given, 40)


def waiver(finding: Mapping[str, Any]) -> str:
    """`known slow riser, by ops until 2027-01-31`."""
    given = finding.get("waiver") or {}
    by = f", by {visible(given['by'], 80)}" if given.get("by") else ""
    until = f" until {visible(given['until'], 40)}" if given.get("until") else ""
    return f"{visible(given.get('reason') or 'no reason given', 300)}{by}{until}"


def judged_by(findings: Mapping[str, Any]) -> str:
    """The run, its time, and the rules and policy by which it was judged."""
    run, by = findings.get("run") or {}, findings.get("judged_by") or {}
    when = (
        visible(run.get("finished") or run.get("started") or "", 40)
        .replace("T", " ")
        .removesuffix("Z")
    )
    rules = f"{int((findings.get('catalogue') or {}).get('rules') or 0):,} rules"
    own = (
        f" (with {', '.join(visible(one, 120) for one in by['rules'])})" if by.get("rules") else ""
    )
    policy = (
        f"policy {visible(by['policy'], 200)}"
        if by.get("policy")
        else POLICIES_FROM.get(str(by.get("policies_from")), "the inventory's policy")
    )
    read = f" of {when} UTC" if when else ""
    return (
        f"run {visible(run.get('id') or '?', 120)}{read}, judged"
        f" {visible(run.get('judged') or '?', 40)} by {rules}{own} and {policy}"
    )
