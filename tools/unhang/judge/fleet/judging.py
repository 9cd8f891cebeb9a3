"""Judges a whole run folder: nodes, then groups, also against each other; waivers last."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from unhang.core.errors import UserError
from unhang.core.run.documents import NodeDocument, one_text
from unhang.core.run.run_input import RunInput, read_nodes
from unhang.core.schemas.policy import PolicyFile, Waiver
from unhang.core.schemas.reading import nearest
from unhang.judge.fleet.bad_waivers import BadWaiver, waiver_at
from unhang.judge.fleet.clocks import clock_ahead_s, collected_long_before
from unhang.judge.fleet.drift_advice import chosen_by, with_advice
from unhang.judge.fleet.earlier_parts import EarlierParts
from unhang.judge.fleet.findings import VERDICTS, Entry, in_order, write_findings
from unhang.judge.fleet.judged_node import (
    Conclude,
    JudgedNode,
    boards_of,
    is_without_gpus,
    scheduler_of,
)
from unhang.judge.fleet.node_budget import NodeBudget, NodeTooCostly
from unhang.judge.fleet.peer_groups import (
    Cell,
    CellKey,
    Peers,
    Vote,
    hardware_of,
    joined,
    models_of,
    policy_key,
)
from unhang.judge.fleet.run_policies import RunPolicies, UsedPolicy
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang.judge.rules.engine import Engine, NodeVerdicts, view_of
from unhang.judge.rules.groups import (
    Ballot,
    GroupJudged,
    add_ballot,
    add_votes,
    judge_group,
    peers_of,
    tied,
)
from unhang.judge.rules.node_rules import CatalogueView, Judged
from unhang.judge.rules.rules import SEVERITIES, Rule

COUNTED = ("ok", "unreachable", "failed", "timeout", "invalid", "python_too_old", "missing")


@dataclass
class _Tally:
    """Numbers of the run.

    totals    rule id -> verdict -> how many
    items     of all nodes, by the rule's number and the verdict
    statuses  how many nodes have each status
    unread    nodes without facts
    unwritten facts that older collectors do not write -> hosts
    collected host -> when, by its clock
    """

    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    items: Counter[tuple[int, str]] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    unwritten: dict[str, list[str]] = field(default_factory=dict)
    collected: dict[str, str] = field(default_factory=dict)

    def count(self, rule: Rule, verdict: str, number: int = 1) -> None:
        """Adds to the totals of a rule."""
        row = self.totals.get(rule.id)
        if row is None:
            row = self.totals[rule.id] = dict.fromkeys(VERDICTS, 0)
        row[verdict] += number


@dataclass(frozen=True)
class _Fleet:
    """What is kept of the nodes for comparing them.

    hosts      all nodes, read or not
    cells      the nodes that were read, in sets that are compared in any case
    groups     inventory groups of all nodes
    in_groups  inventory groups of a node that was read -> its hosts
    """

    hosts: dict[str, JudgedNode] = field(default_factory=dict)
    cells: dict[CellKey, Cell] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    in_groups: dict[tuple[str, ...], list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Judging:
    """A run that is being judged. is_limited: it may lack nodes of the inventory. The fields with a
    default grow from node to node."""

    engine: Engine
    policies: RunPolicies
    today: str
    budget: NodeBudget
    is_limited: bool
    policy_keys: Mapping[str, str]  # rule of a comparison -> the key that chooses a value
    tally: _Tally = field(default_factory=_Tally)
    fleet: _Fleet = field(default_factory=_Fleet)
    entries: list[Entry] = field(default_factory=list)
    bad_waivers: dict[tuple[str, str], BadWaiver] = field(default_factory=dict)


@dataclass(frozen=True)
class _JudgedDocument:
    """A node as it was judged: its document, or one that says why judging it failed."""

    document: NodeDocument
    policy: UsedPolicy
    verdicts: NodeVerdicts


def thresholds_of(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The names under policy.thresholds that any rule reads."""
    paths = {
        path
        for rule in rules
        for path in (*rule.decision_reads, *rule.text_reads)
        if path[:2] == ("policy", "thresholds")
    }
    return tuple(sorted({path[2] for path in paths if len(path) > 2}))


def judge_run(
    run: RunInput, catalogue: Catalogue, today: str, policy: PolicyFile | None = None,
    mark: Callable[[str], None] = lambda rule: None,
    without: Iterable[str] = (), conclude: Conclude = lambda entries, nodes: {},
    out: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Judges a run and writes its findings.json, or the file `out`. Returns the document without
    its findings.

    without: ids of rules that had to be stopped.
    """
    stopped = {rule.id: rule for rule in catalogue.rules if rule.id in set(without)}
    rules = [rule for rule in catalogue.rules if rule.id not in stopped]
    view = CatalogueView(
        catalogue.tables,
        tuple(rule.id for rule in catalogue.rules),
        today,
    )
    budget = NodeBudget(getattr(mark, "forgive", lambda seconds: None))

    policies = RunPolicies(
        policy, thresholds_of(catalogue.rules), tuple(run.document.get("policy_sources") or ())
    )
    state = _Judging(
        Engine(rules, view, _charged(mark, budget)),
        policies,
        today,
        budget,
        bool(run.document.get("limit")),
        chosen_by(rules),
    )
    # garbage collection is off: no object here is cyclic, and a million small objects make each
    # collection slow
    gc.disable()
    try:
        parts = EarlierParts(run, view.tables)
        for document in read_nodes(run):
            parts.add(document.host, document.sections)
            if document.sections is not None and document.sections.node is not None:
                document.sections.node.clock_ahead_s = clock_ahead_s(document, run.document)
            _judge_node(state, document)
            mark("")  # the time to read the next node is not charged to a rule
        if policy is not None and not state.is_limited:  # a limited run does not know all groups
            policy.check_groups(state.fleet.groups)
        if out is None:
            parts.keep()
        del parts  # before the findings of all nodes are put together
        budget.end()
        _count_nodes(state)
        _judge_peers(state, view)
        _add_bad_waivers(state)
        _add_stopped(state, stopped.values())
        entries = in_order(state.entries)
        head = _head(run, state, catalogue, sorted(stopped)) | conclude(entries, state.fleet.hosts)
        write_findings(out or run.folder / "findings.json", head, entries, is_named=out is not None)
    finally:
        gc.enable()
    return head


def _charged(mark: Callable[[str], None], budget: NodeBudget) -> Callable[[str], None]:
    """mark, which also ends the judging of a node that has used its processor time."""

    def note(rule: str) -> None:
        mark(rule)
        budget.check()

    return note


def _judged(state: _Judging, document: NodeDocument) -> _JudgedDocument:
    """Judges one node. An exception that its document causes makes only this node invalid."""
    state.budget.begin()
    try:
        policy = state.policies.of(document)
        return _JudgedDocument(
            document, policy, state.engine.judge(view_of(document, policy.policy, policy.fault))
        )
    except (MemoryError, UserError):
        raise
    except NodeTooCostly as problem:
        reason = f"judging it was stopped: {problem}"
    except Exception as problem:
        if document.sections is None and not document.policy:
            raise  # the exception cannot come from the node's document any more
        reason = (
            f"judging it failed: {type(problem).__name__}: {one_text(problem)}; this is a fault of"
            " unhang, please report it with this node's file"
        )
    return _judged(state, NodeDocument(document.host, document.groups, {}, "invalid", reason, None))


def _judge_node(state: _Judging, document: NodeDocument) -> None:
    """Judges one node, counts its verdicts, and keeps what comparing it with its peers needs."""
    judged = _judged(state, document)
    _count_verdicts(state.tally, judged)
    _add_entries(state, judged)
    _add_to_fleet(state.fleet, judged)


def _count_verdicts(tally: _Tally, judged: _JudgedDocument) -> None:
    tally.statuses[judged.document.status] += 1
    tally.unread += judged.verdicts.unread
    tally.collected[judged.document.host] = judged.document.collected_at
    for fact in judged.document.unwritten:
        tally.unwritten.setdefault(fact, []).append(judged.document.host)
    for answers in judged.verdicts.answers:
        for rule, verdict, count in answers.counts:
            tally.items[rule, verdict] += count


def _add_to_fleet(fleet: _Fleet, judged: _JudgedDocument) -> None:
    document, used = judged.document, judged.policy
    sections = document.sections
    fleet.hosts[document.host] = JudgedNode(
        not judged.verdicts.unread,
        scheduler_of(sections),
        used.policy,
        used.number,
        boards_of(sections),
        _applied(judged.verdicts) if is_without_gpus(sections) else None,
        not document.unwritten,
    )
    fleet.groups.update(document.groups)
    if judged.verdicts.unread:
        return
    name = peers_of(document.groups, used.policy)
    # nodes whose policy names their peers are compared whatever their GPUs are
    models = () if "peers" in used.policy else models_of(sections)
    cell = fleet.cells.get((name, models))
    if cell is None:
        cell = fleet.cells[name, models] = Cell(used.policy, used.waivers, document.groups)
    cell.hosts.append(document.host)
    cell.policies[policy_key(document.policy, used.policy)] += 1
    cell.hardware[hardware_of(sections)] += 1
    for answers in judged.verdicts.answers:
        for rule, compared in answers.compared:
            ballot = cell.ballots.setdefault((rule, compared.entry), Ballot(name, compared.item))
            add_votes(ballot, [document.host], compared)
    fleet.in_groups.setdefault(document.groups, []).append(document.host)


def _applied(verdicts: NodeVerdicts) -> int:
    """The number of rules that apply to a node."""
    return len(
        {
            rule
            for answers in verdicts.answers
            for rule in (
                *(rule for rule, verdict, _ in answers.counts if verdict != "skip"),
                *(rule for rule, _ in answers.compared),
            )
        }
    )


def _add_entries(state: _Judging, node: _JudgedDocument) -> None:
    """The findings of a node; one about a waiver is kept until all nodes with this waiver are
    known."""
    for number, judged, texts, where in node.verdicts.listed:
        rule = state.engine.rules[number]
        verdict, waiver = judged.verdict, None
        if verdict == "fail":
            waiver = _waiver(
                state,
                node.policy.waivers.get(rule.id, []),
                node.document.host,
                node.document.groups,
                where,
            )
        if waiver is not None:
            verdict = "waived"
            _move_count(state.tally, rule, judged.items, "waived")
        if (
            verdict == "fail"
            and (bad := waiver_at(rule, judged.item, node.policy.policy)) is not None
        ):
            _move_count(state.tally, rule, judged.items, "skip")
            row = state.bad_waivers.setdefault(
                (rule.id, msgspec.json.encode(bad.row).decode()),
                BadWaiver(rule, judged, texts, bad),
            )
            row.hosts += (
                [node.document.host]
                if bad.covers_host(node.document.host, node.document.groups)
                else []
            )
        else:
            state.entries.append(
                Entry(rule, verdict, node.document.host, judged, texts, where, waiver)
            )


def _move_count(tally: _Tally, rule: Rule, items: int, verdict: str) -> None:
    """Counts failed items under another verdict."""
    tally.count(rule, "fail", -items)
    tally.count(rule, verdict, items)


def _waiver(
    state: _Judging,
    waivers: list[Waiver],
    host: str,
    groups: tuple[str, ...],
    where: Mapping[str, Any],
) -> dict[str, Any] | None:
    """The waiver that is valid today for this finding on this host, or None."""
    return next(
        (
            dict(one.row)
            for one in waivers
            if one.row["until"] >= state.today and one.covers(host, groups, where)
        ),
        None,
    )


def _count_nodes(state: _Judging) -> None:
    """Totals of node scope. A node that was not read is unknown to every rule over facts."""
    for (number, verdict), count in state.tally.items.items():
        state.tally.count(state.engine.rules[number], verdict, count)
    for rule in state.engine.rules:
        if state.tally.unread and rule.scope == "node" and rule.reads_facts:
            state.tally.count(rule, "unknown", state.tally.unread)


def _judge_peers(state: _Judging, view: CatalogueView) -> None:
    for name, peers in joined(state.fleet.cells):
        same_as = peers.policy.get("same_as")
        there = _ballots_of_group(state, same_as) if same_as else {}
        for vote, ballot in peers.ballots.items():
            rule = state.engine.rules[vote[0]]
            state.engine.mark(rule.id)
            state.engine.evaluations += 1
            every = judge_group(rule, ballot, peers.policy, view)
            _add_lacking(state, rule, ballot)
            if same_as and "tied" in rule.row and not (ballot.item or {}).get("unit"):
                if same_as in state.fleet.groups:
                    among = tied(ballot, there.get(vote, Ballot(same_as)), same_as)
                    every += judge_group(rule, among, peers.policy, view)
                elif ballot.values and ballot.item is None and not state.is_limited:
                    known = nearest(same_as, sorted(state.fleet.groups))
                    reason = (
                        "no node of the run is in this group, which the policy names in"
                        f" same_as{known}"
                    )
                    missing = (f"nodes of {same_as}", "absent", reason)
                    every.append(GroupJudged("unknown", name, missing=(missing,)))
            for judged in every:
                _add_group(state, rule, judged, peers)


def _ballots_of_group(state: _Judging, inventory_group: str) -> dict[Vote, Ballot]:
    """The values of all hosts of one inventory group, in any peer group."""
    wanted = {
        host
        for groups, hosts in state.fleet.in_groups.items()
        if inventory_group in groups
        for host in hosts
    }
    found: dict[Vote, Ballot] = {}
    for cell in state.fleet.cells.values():
        for vote, ballot in cell.ballots.items():
            among = found.setdefault(vote, Ballot(inventory_group, ballot.item))
            add_ballot(among, ballot, wanted)
    return found


def _add_lacking(state: _Judging, rule: Rule, ballot: Ballot) -> None:
    """Adds the verdict unknown for hosts whose value was not read."""
    for host, judged in ballot.lacking:
        state.tally.count(rule, "unknown")
        path, status, reason = judged.missing[0]
        texts = {
            "expected": "a value to compare with the node's peers",
            "found": f"{path} not known ({status}): {reason}",
        }
        known = GroupJudged("unknown", ballot.group, (host,), missing=judged.missing)
        state.entries.append(Entry(rule, "unknown", None, known, texts, {}))


def _add_group(state: _Judging, rule: Rule, judged: GroupJudged, peers: Peers) -> None:
    verdict, waiver = judged.verdict, None
    if verdict == "fail" and any(rule.id in cell.waivers for cell in peers.cells):
        held = [
            _waiver(state, cell.waivers.get(rule.id, []), host, cell.groups, judged.where)
            for host, cell in zip(judged.hosts, peers.cells_of(judged.hosts), strict=True)
        ]
        if held and all(held):
            verdict, waiver = "waived", held[0]
    state.tally.count(rule, verdict)
    if verdict in ("fail", "unknown", "waived"):
        judged = with_advice(rule, judged, state.policy_keys)
        lacking = (
            f"{judged.missing[0][0]} not known ({judged.missing[0][1]}): {judged.missing[0][2]}"
            if judged.missing
            else ""
        )
        texts = judged.texts or {"expected": "values that can be compared", "found": lacking}
        where = dict(judged.where)
        state.entries.append(Entry(rule, verdict, None, judged, texts, where, waiver))


def _add_bad_waivers(state: _Judging) -> None:
    for one in state.bad_waivers.values():
        if one.hosts or not state.is_limited:
            state.tally.count(one.rule, "fail")
            state.entries.append(one.entry({rule.id for rule in state.engine.rules}))


def _add_stopped(state: _Judging, stopped: Iterable[Rule]) -> None:
    for rule in stopped:
        reason = "it used up the time or memory that judging may take, and was left out"
        missing = ((f"rule {rule.id}", "error", reason),)
        texts = {"expected": "a rule that ends", "found": f"rule {rule.id} was stopped: {reason}"}
        judged = GroupJudged("unknown", "", missing=missing)
        state.tally.count(rule, "unknown")
        state.entries.append(Entry(rule, "unknown", None, judged, texts, {}))


def _head(
    run: RunInput, state: _Judging, catalogue: Catalogue, stopped: list[str]
) -> dict[str, Any]:
    by_rule = state.tally.totals
    totals = {verdict: sum(row[verdict] for row in by_rule.values()) for verdict in VERDICTS}
    severities = Counter[str]()
    for entry in state.entries:
        if entry.verdict == "fail":
            severities[entry.severity] += (
                entry.judged.items if isinstance(entry.judged, Judged) else 1
            )
    document = run.document
    return {
        "schema": "unhang/findings/1",
        "run": {
            "id": document["id"],
            "started": document.get("started"),
            "finished": document.get("finished"),
            "judged": state.today,
        },
        "host_count": sum(state.tally.statuses.values()),
        "nodes": {
            status: state.tally.statuses[status]
            for status in COUNTED
            if status in state.tally.statuses
        },
        "catalogue": {
            "rules": len(catalogue.rules),
            "evaluations": state.engine.evaluations,
            "stopped": stopped,
            "refused": list(catalogue.faults),
        },
        **({"unwritten": state.tally.unwritten} if state.tally.unwritten else {}),
        **({"older": older} if (older := collected_long_before(state.tally.collected)) else {}),
        "totals": totals,
        "totals_by_severity": {
            severity: severities[severity] for severity in SEVERITIES if severities[severity]
        },
        # independent of the order of look-ups
        "totals_by_rule": {
            rule.id: by_rule[rule.id] for rule in catalogue.rules if rule.id in by_rule
        },
    }
