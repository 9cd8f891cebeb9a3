"""The causes of a run: findings of a node or group under the finding that explains them; equal
causes of all nodes are reported once.

Values in, values out; one pass over the findings.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.run.actions import Setting, command
from unhang.core.run.findings import NODE_VERDICTS, NOT_A_GPU_NODE, PARTLY_READ
from unhang.core.run.run_input import natural
from unhang.judge.fleet.judged_node import JudgedNode
from unhang.judge.rules.found import Found
from unhang.judge.rules.remedies import INVENTORY, Merged, PolicyRequest, merge_requests
from unhang.judge.rules.role_needs import NEEDS, is_configured, reaches, unconfigured_text
from unhang.judge.rules.rules import SEVERITIES
from unhang.judge.triage.found import LAST
from unhang.judge.triage.grouping import Explaining, Share, shares_of

MOST_DEVICES, MOST_PERSONS = 64, 8
LEAST_HEALTHY = 3  # nodes from which on what most of them have is called usual
_RANK = {severity: rank for rank, severity in enumerate(SEVERITIES)}
_BOOTS = re.compile(r"(?i)\breboot|power-cycle|restart the (?:node|machine)")
REBOOT = "kernel-reboot-required"  # what explains it is wrong with the next kernel
_NO_REMEDY = Merged({}, [])
_FIRST_ACTION = re.compile(r"(?i)\b(?:(reset|reboot|power-cycle)|reseat|replace|return|serviced)")


class Repairs(Protocol):
    """Who repairs the findings of one host: role -> rules; (rule, manual work); conflicts: rules
    that a person must decide first; turned_down: (rule, why its role leaves it to a person)."""

    @property
    def roles(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def person(self) -> Sequence[tuple[str, str]]: ...
    @property
    def conflicts(self) -> Sequence[str]: ...
    @property
    def turned_down(self) -> Sequence[tuple[str, str]]: ...


class _Kind(NamedTuple):
    """The key of a cause, by which shares of nodes are merged: the rule, its case, the merged
    remedy, the node's scheduler."""

    rule: str
    case: str
    policy: str
    conflicts: str
    scheduler: str
    unread: bool
    role: str | None
    no_reboot: str  # the rule because of which the node must not boot now, "" for none


def triage(
    findings: Sequence[Found],
    explaining: Explaining,
    nodes: Mapping[str, JudgedNode],
    setting: Setting | None = None,
    repairs: Mapping[str, Repairs] | None = None,
) -> dict[str, Any]:
    """The keys that triage adds to a findings document: `node_verdicts`, `without_gpus`, `causes`
    and `by_hand`, as in the schema findings-1.

    nodes: every host of the run; setting: surroundings for the commands of the causes; repairs: by
    host; without an entry the rule's role is shown.
    """
    shares = shares_of(findings, explaining)
    merged = _merged_by_host(shares, nodes)
    repairs = repairs or {}
    kinds: dict[_Kind, list[Share]] = {}
    unbootable = {
        share.host: share.root.rule
        for share in shares
        for one in share.members
        if REBOOT in explaining.rules.get(one.rule, ())
    }
    written: dict[tuple[str, int], tuple[str, str]] = {}
    # not every finding of a rule on a node proposes something, and one that does is the remedy
    for share in sorted(shares, key=lambda share: "policy" not in share.root.remedy):
        kind = _kind(share, merged, nodes, written, repairs)
        because = unbootable.get(share.host, "")
        kind = kind._replace(no_reboot="" if because == kind.rule else because)
        kinds.setdefault(kind, []).append(share)
    order = {
        host: place
        for place, host in enumerate(
            sorted({*nodes, *(share.host for share in shares)}, key=natural)
        )
    }
    by_layer = sorted(
        kinds.items(), key=lambda pair: (pair[1][0].root.layer, pair[1][0].root.number)
    )
    causes = [_cause(kind, members, order, nodes, repairs) for kind, members in by_layer]
    verdicts = node_verdicts(shares, nodes, order)
    usual = _usual_rules(causes, frozenset(verdicts["healthy"]))
    usual |= {one.rule for one in findings if one.usual}
    causes = [
        cause for cause in causes if cause["rule"] not in usual or cause["severity"] != "info"
    ]
    last = {kind.rule for kind, members in by_layer if members[0].root.layer == LAST}
    hangs = {one.rule for one in findings if one.hangs}
    causes.sort(
        key=lambda cause: (
            _RANK[cause["severity"]],
            not cause["unread"],
            cause["rule"] in last,
            cause["rule"] not in hangs,  # a dead port comes before a low power limit
            -len(cause["nodes"]),
            -len(cause["findings"]),
        )
    )
    _number(causes)
    for cause in causes:
        cause["command"] = command(cause, setting or Setting())
    without_gpus = {
        host: nodes[host].applied
        for host in order
        if host in nodes and nodes[host].applied is not None
    }
    by_hand = [one.number for one in findings if _is_by_hand(one, repairs)]
    return {
        "node_verdicts": verdicts,
        **({"without_gpus": without_gpus} if without_gpus else {}),
        "causes": causes,
        **({"by_hand": by_hand} if by_hand else {}),
    }


def _usual_rules(causes: Sequence[Mapping[str, Any]], healthy: frozenset[str]) -> set[str]:
    """Rules whose remark holds for most of the healthy nodes: that is how these nodes are, and no
    cause. Their findings stay, for --verbose."""
    hosts: dict[str, set[str]] = {}
    for cause in causes:
        if cause["severity"] == "info":
            hosts.setdefault(cause["rule"], set()).update(healthy.intersection(cause["nodes"]))
    return {
        rule
        for rule, among in hosts.items()
        if len(healthy) >= LEAST_HEALTHY and 2 * len(among) > len(healthy)
    }


def node_verdicts(
    shares: Sequence[Share], nodes: Mapping[str, JudgedNode], order: Mapping[str, int]
) -> dict[str, list[str]]:
    """Verdict -> hosts. Each node once: unread, else by its worst finding; with none above info it
    is healthy, or not a GPU node, or was read in part."""
    worst: dict[str, int] = {}
    for share in shares:
        for one in share.members:
            worst[share.host] = min(worst.get(share.host, len(_RANK)), _RANK[one.severity])
    by_verdict = {verdict: list[str]() for verdict in NODE_VERDICTS}
    for host in sorted(nodes, key=order.__getitem__):
        node, found = nodes[host], SEVERITIES[worst.get(host, -1)]
        if found == "info":
            calm = "healthy" if node.whole else PARTLY_READ
            found = calm if node.applied is None else NOT_A_GPU_NODE
        by_verdict[found if node.read else "unread"].append(host)
    return by_verdict


def _merged_by_host(shares: Sequence[Share], nodes: Mapping[str, JudgedNode]) -> dict[str, Merged]:
    """Host -> one policy, merged from the remedies of its causes."""
    by_host: dict[str, list[Found]] = {}
    for share in shares:
        if share.root.remedy.get("role"):
            by_host.setdefault(share.host, []).append(share.root)
    known: dict[Any, Merged] = {}
    merged: dict[str, Merged] = {}
    for host, roots in by_host.items():
        note = nodes.get(host)
        requests = {
            _text([root.rule, policy]): PolicyRequest(root.rule, policy)
            for root in roots
            if (policy := root.remedy.get("policy"))
        }
        key = (note.policy_key if note else 0, *requests)
        if key not in known:
            known[key] = merge_requests(
                [
                    *requests.values(),
                    *([PolicyRequest(INVENTORY, note.policy)] if note and note.policy else []),
                ]
            )
        merged[host] = known[key]
    return merged


def with_role_by_host(findings: Iterable[Found]) -> dict[str, list[Found]]:
    """Host -> all of its findings, for hosts that have one with a role."""
    by_host: dict[str, list[Found]] = {}
    for one in findings:
        for host in one.hosts:
            by_host.setdefault(host, []).append(one)
    return {
        host: on_host
        for host, on_host in by_host.items()
        if any(one.remedy.get("role") for one in on_host)
    }


def _kind(
    share: Share,
    merged: Mapping[str, Merged],
    nodes: Mapping[str, JudgedNode],
    written: dict[tuple[str, int], tuple[str, str]],
    repairs: Mapping[str, Repairs],
) -> _Kind:
    """written: the remedy of a rule as text, by the merged policy of the node; nodes with the same
    remedy share one text."""
    root, note = share.root, nodes.get(share.host)
    code = root.where.get("code")
    case = (
        f"{root.scope}:{root.number}" if root.scope != "node" else "" if code is None else str(code)
    )
    one = merged.get(share.host, _NO_REMEDY) if root.remedy.get("role") else _NO_REMEDY
    role = (
        _role(root, one, note)
        if share.host not in repairs
        else _repairing_role(root, repairs[share.host])
    )
    key = (root.rule, id(one))
    if key not in written:
        written[key] = (
            _text(_own_part(root.remedy.get("policy") or {}, one.policy)),
            _text([conflict for conflict in one.conflicts if _concerns(conflict, root)]),
        )
    unread = root.of_reading and note is not None and not note.read
    # a role drains the node itself; in a conflict a person decides, and jobs are kept off meanwhile
    repaired = role and not json.loads(written[key][1])
    return _Kind(
        root.rule,
        case,
        *written[key],
        "" if repaired or note is None else note.scheduler,
        unread,
        role,
        "",
    )


def _repairing_role(root: Found, repairs: Repairs) -> str | None:
    """The role that a plan gives it to, also if a person must decide a conflict first; None if the
    plan gives it to a person."""
    role = root.remedy.get("role")
    return (
        role
        if role and (root.rule in repairs.roles.get(role, ()) or root.rule in repairs.conflicts)
        else None
    )


def _is_by_hand(one: Found, repairs: Mapping[str, Repairs]) -> bool:
    """Whether the plan leaves a finding to a person on each of its nodes, though its rule names a
    role."""
    planned = [repairs[host] for host in one.hosts if host in repairs]
    return bool(one.remedy.get("role") and planned) and not any(
        _repairing_role(one, on_host) for on_host in planned
    )


def _role(root: Found, merged: Merged, note: JudgedNode | None) -> str | None:
    """The role that repairs the cause on this node; None if the role would lack a target or would
    not change what was found, so that a person must act."""
    role, own = root.remedy.get("role"), root.remedy.get("policy", {})
    # a person decides a conflict first, then the role applies the rule's own remedy
    in_conflict = own if merged.conflicts else {}
    acts = root.scope != "node" or (
        reaches(root.rule, root.remedy, root.where)
        and (note is None or is_configured(role, note.policy, merged.policy, in_conflict))
    )
    return role if acts else None


def _own_part(proposal: Mapping[str, Any], merged: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a rule proposes, with the values that satisfy all rules of the node; a key in
    conflict is left out."""
    kept: dict[str, Any] = {}
    for key, value in proposal.items():
        if key in merged and isinstance(value, Mapping):
            inside = _own_part(value, merged[key])
            kept |= {key: inside} if inside else {}
        elif key in merged:
            kept[key] = merged[key]
    return kept


def _concerns(conflict: Mapping[str, Any], root: Found) -> bool:
    """The rules that belong to a conflict: the rules of its sides, and rules that want the
    inventory's value."""
    sides = {side["because"] for side in conflict["sides"]}
    return root.rule in sides or (
        INVENTORY in sides and root.rule.startswith(f"policy-{conflict['key']}-")
    )


def _persons(kind: _Kind, shares: Sequence[Share], repairs: Mapping[str, Repairs]) -> list[str]:
    """Manual work, the work on most nodes first: why the role refuses the node, and the rule's own
    text, else the plan's."""
    root = shares[0].root
    instructions = Counter(
        str(share.root.remedy["person"]) for share in shares if share.root.remedy.get("person")
    )
    wanted = root.remedy.get("role")
    if kind.role is not None and root.scope != "node":
        return []  # the role brings what a person would choose
    if not wanted or kind.role is not None:
        return [text for text, _ in instructions.most_common(MOST_PERSONS)]
    plans = [repairs[share.host] for share in shares if share.host in repairs]
    refusals = Counter(text for one in plans for rule, text in one.turned_down if rule == root.rule)
    if not instructions and not refusals:
        instructions.update(text for one in plans for rule, text in one.person if rule == root.rule)
        if not instructions and wanted in NEEDS:
            instructions[unconfigured_text(wanted)] += 1
    return [text for text, _ in (*refusals.most_common(), *instructions.most_common())][
        :MOST_PERSONS
    ]


def _without_reboot(kind: _Kind, text: str) -> str:
    """The manual work, with what has to be repaired before a reboot that it asks for."""
    if not kind.no_reboot or not _BOOTS.search(text):
        return text
    return (
        f"repair {kind.no_reboot} before any boot, for the next kernel has no driver; then {text}"
    )


def _cause(
    kind: _Kind,
    shares: Sequence[Share],
    order: Mapping[str, int],
    nodes: Mapping[str, JudgedNode],
    repairs: Mapping[str, Repairs],
) -> dict[str, Any]:
    root = shares[0].root
    members = {one.number: one for share in shares for one in share.members}
    severity = min((one.severity for one in members.values()), key=_RANK.__getitem__)
    persons = [_without_reboot(kind, text) for text in _persons(kind, shares, repairs)]
    return {
        "id": root.rule,
        "rule": root.rule,
        "title": root.title,
        "severity": severity,
        "owner": first_to_act(root.owner, kind.role, persons),
        "nodes": sorted({share.host for share in shares if share.host}, key=order.__getitem__),
        "unread": kind.unread,
        "findings": sorted(members),
        "explains": sorted({one.rule for one in members.values()} - {root.rule}),
        "devices": [_with_serial(row, nodes.get(row["host"])) for row in _devices(shares)],
        "remedy": {
            "role": kind.role,
            "policy": json.loads(kind.policy),
            "person": persons,
            "conflicts": json.loads(kind.conflicts),
        },
        "scheduler": kind.scheduler or None,
    }


def first_to_act(owner: str, role: str | None, persons: Sequence[str]) -> str:
    """The owner of the finding, but of the system where a role, a reset or a boot comes first."""
    first = _FIRST_ACTION.search(persons[0]) if persons else None
    of_hardware = owner not in ("user", DEFAULT_OWNER)
    return DEFAULT_OWNER if of_hardware and (role or (first and first[1])) else owner


def _devices(shares: Sequence[Share]) -> list[dict[str, Any]]:
    """Devices for a ticket: GPU, UUID and PCI address, as far as the findings of a cause name them;
    each once."""
    devices: list[dict[str, Any]] = []
    known: dict[tuple[str, str, Any], dict[str, Any]] = {}
    for share in shares:
        for one in share.members:
            names = {
                "gpu": one.where.get("index", one.where.get("gpu")),
                "uuid": one.where.get("uuid"),
                "pci_address": one.where.get("pci_address"),
            }
            if names["uuid"] is None and names["pci_address"] is None:
                continue
            keys = [(share.host, name, value) for name, value in names.items() if value is not None]
            row = next((known[key] for key in keys if key in known), None)
            if row is None:
                if len(devices) >= MOST_DEVICES:
                    return devices
                row = {"host": share.host, "gpu": None, "uuid": None, "pci_address": None}
                devices.append(row)
            row |= {name: value for name, value in names.items() if row[name] is None}
            known |= dict.fromkeys(keys, row)
    return devices


def _with_serial(row: dict[str, Any], note: JudgedNode | None) -> dict[str, Any]:
    """The row with the serial number and other names of its board, if its node reported them."""
    for board in note.boards if note is not None else ():
        known = {"gpu": board.gpu, "uuid": board.uuid, "pci_address": board.pci_address}
        if any(
            row[name] is not None and row[name] == known[name] for name in ("uuid", "pci_address")
        ):
            return {
                **row,
                **{name: value for name, value in known.items() if row[name] is None},
                "serial": board.serial,
            }
    return {**row, "serial": None}


def _number(causes: Sequence[dict[str, Any]]) -> None:
    """Makes ids unique: the second cause of a rule is RULE-2."""
    seen: Counter[str] = Counter()
    for cause in causes:
        seen[cause["rule"]] += 1
        if seen[cause["rule"]] > 1:
            cause["id"] = f"{cause['rule']}-{seen[cause['rule']]}"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
