"""Judges a whole run folder: nodes, then groups, then groups against each other; waivers last."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from unhang.audit.judge.bad_waivers import BadWaiver, waiver_at
from unhang.audit.judge.earlier_parts import EarlierParts
from unhang.audit.judge.findings import VERDICTS, Entry, in_order, write_findings
from unhang.audit.judge.judged_node import Conclude, JudgedNode, boards_of, scheduler_of
from unhang.audit.judge.labelled_values import labelled
from unhang.audit.judge.peer_groups import Cell, Peers, hardware_of, joined, policy_key
from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.audit.rules.engine import Engine, NodeVerdicts, view_of
from unhang.audit.rules.groups import (
    Ballot,
    GroupJudged,
    add_ballot,
    add_votes,
    judge_fleet,
    judge_group,
    peers_of,
)
from unhang.audit.rules.node_rules import CatalogueView, Judged
from unhang.audit.rules.rules import SEVERITIES, Rule, tables_shape
from unhang.core.errors import UserError
from unhang.core.run.documents import NodeDocument, one_text
from unhang.core.run.run_input import RunInput, read_nodes
from unhang.core.schemas.policy import PolicyFile, Waiver, one_line, policy_faults, waivers_of
from unhang.core.schemas.shapes import nearest

NODE_CPU_S, CROWDED_NODE_CPU_S = 15.0, 1.0  # processor time that one node may take; after nodes have used CROWD_CPU_S beyond their share, the smaller one
CROWD_CPU_S = 30.0
COUNTED = ("ok", "unreachable", "failed", "timeout", "invalid", "python_too_old", "missing")


@dataclass
class _Policies:
    """Policies of the run, each distinct one checked once."""

    override: PolicyFile | None
    thresholds: tuple[str, ...]
    files: tuple[str, ...] = ()  # the inventory's, that define a policy
    known: dict[bytes, tuple[int, dict[str, Any], str, dict[str, list[Waiver]]]] = field(default_factory=dict)

    def of(self, document: NodeDocument) -> tuple[int, dict[str, Any], str, dict[str, list[Waiver]]]:
        """(number, policy, fault or "", rule -> waivers) for one node. A policy with a fault is treated as empty; the fault is a finding."""
        policy = document.policy if self.override is None else self.override.for_groups(document.groups)
        key = msgspec.json.encode(policy)
        if key not in self.known:
            faults = policy_faults(policy, self.thresholds)
            usable: dict[str, Any] = {} if faults else policy
            waivers: dict[str, list[Waiver]] = {}
            for waiver in waivers_of(usable):
                waivers.setdefault(waiver.rule, []).append(waiver)
            self.known[key] = (len(self.known), usable, "; ".join(one_line(fault, self._file(document)) for fault in faults[:5]), waivers)
        return self.known[key]

    def _file(self, document: NodeDocument) -> str:
        """The end of the path of the file that gives this node its policy; "" if that is not known."""
        names = {document.host, *document.groups}
        paths = [Path(one) for one in self.files if self.override is None]
        own = [path for path in paths if path.stem in names or path.parent.name in names] or (paths if len(paths) == 1 else [])
        return "/".join(own[0].parts[-2:]) if len(own) == 1 else ""


class _NodeTooCostly(Exception):
    """A node document that takes more processor time to judge than any regular one."""


@dataclass
class _Budget:
    """Processor time of the node that is judged now. It is charged to the node, so that no rule is stopped because of one node's document."""

    forgive: Callable[[float], None]
    began_s: float = 0.0
    crowd_s: float = CROWD_CPU_S

    def begin(self) -> None:
        """Starts a node; the time that the previous one took beyond its share is counted."""
        now = time.process_time()
        if self.began_s and now - self.began_s > CROWDED_NODE_CPU_S:
            self.crowd_s -= now - self.began_s
            self.forgive(now - self.began_s)
        self.began_s = now

    def check(self) -> None:
        """Raises _NodeTooCostly if the node has used its processor time."""
        most = NODE_CPU_S if self.crowd_s > 0 else CROWDED_NODE_CPU_S
        if time.process_time() - self.began_s > most:
            raise _NodeTooCostly(f"it takes more than {most:g} s of processor time; see how long its lists are")


@dataclass
class _State:
    engine: Engine
    policies: _Policies
    today: str
    budget: _Budget
    is_limited: bool = False  # the run may lack nodes of the inventory
    entries: list[Entry] = field(default_factory=list)
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    counts: dict[tuple[int, str], int] = field(default_factory=dict)  # rule, verdict -> items of all nodes
    bad_waivers: dict[tuple[str, str], BadWaiver] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)  # of all nodes, read or not
    in_groups: dict[tuple[str, ...], list[str]] = field(default_factory=dict)  # inventory groups -> hosts
    unread: int = 0
    hosts: dict[str, JudgedNode] = field(default_factory=dict)

    def count(self, rule: Rule, verdict: str, number: int = 1) -> None:
        """Adds to the totals of a rule."""
        row = self.totals.get(rule.id)
        if row is None:
            row = self.totals[rule.id] = dict.fromkeys(VERDICTS, 0)
        row[verdict] += number


def thresholds_of(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The names under policy.thresholds that any rule reads."""
    paths = {path for rule in rules for path in (*rule.decision_reads, *rule.text_reads) if path[:2] == ("policy", "thresholds")}
    return tuple(sorted({path[2] for path in paths if len(path) > 2}))


def judge_run(
    run: RunInput, catalogue: Catalogue, today: str, policy: PolicyFile | None = None, mark: Callable[[str], None] = lambda rule: None,
    without: Iterable[str] = (), conclude: Conclude = lambda entries, nodes: {}, out: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Judges a run and writes its findings.json, or the file `out`. Returns the document without its findings.

    without: ids of rules that had to be stopped.
    """
    stopped = {rule.id: rule for rule in catalogue.rules if rule.id in set(without)}
    rules = [rule for rule in catalogue.rules if rule.id not in stopped]
    view = CatalogueView(catalogue.tables, tables_shape(catalogue.tables), tuple(rule.id for rule in catalogue.rules), today)
    budget = _Budget(getattr(mark, "forgive", lambda seconds: None))

    def note(rule: str) -> None:
        mark(rule)
        if nodes_first:
            budget.check()

    nodes_first = True
    policies = _Policies(policy, thresholds_of(catalogue.rules), tuple(run.document.get("policy_sources") or ()))
    state = _State(Engine(rules, view, note), policies, today, budget, bool(run.document.get("limit")))
    gc.disable()  # garbage collection is off: no object here is cyclic, and a million small objects make each collection slow
    try:
        parts = EarlierParts(run)
        for document in read_nodes(run):
            parts.add(document.host, document.sections)
            _judge_node(state, document)
            mark("")  # the time to read the next node is not charged to a rule
        if policy is not None and not state.is_limited:  # a limited run does not know all groups
            policy.check_groups(state.groups)
        if out is None:
            parts.keep()
        del parts  # before the findings of all nodes are put together
        nodes_first = False
        _count_nodes(state)
        _judge_peers(state, view)
        _add_bad_waivers(state)
        _add_stopped(state, stopped.values())
        entries = in_order(state.entries)
        head = _head(run, state, catalogue, sorted(stopped)) | conclude(entries, state.hosts)
        write_findings(out or run.folder / "findings.json", head, entries, is_named=out is not None)
    finally:
        gc.enable()
    return head


def _judged_node(document: NodeDocument, verdicts: NodeVerdicts, policy: dict[str, Any], number: int) -> JudgedNode:
    sections = document.sections
    return JudgedNode(not verdicts.unread, scheduler_of(sections), policy, number, boards_of(sections))


def _judge_one(state: _State, document: NodeDocument) -> tuple[NodeDocument, NodeVerdicts, JudgedNode, dict[str, list[Waiver]]]:
    """Judges one node: its verdicts, kept data and waivers. An exception that its document causes makes only this node invalid."""
    state.budget.begin()
    try:
        number, policy, fault, waivers = state.policies.of(document)
        verdicts = state.engine.judge(view_of(document, policy, fault))
        return document, verdicts, _judged_node(document, verdicts, policy, number), waivers
    except (MemoryError, UserError):
        raise
    except _NodeTooCostly as problem:
        return _judge_one(state, NodeDocument(document.host, document.groups, {}, "invalid", f"judging it was stopped: {problem}", None))
    except Exception as problem:
        if document.sections is None and not document.policy:
            raise  # the exception cannot come from the node's document any more
        reason = f"judging it failed: {type(problem).__name__}: {one_text(problem)}; this is a fault of unhang, please report it with this node's file"
        return _judge_one(state, NodeDocument(document.host, document.groups, {}, "invalid", reason, None))


def _judge_node(state: _State, document: NodeDocument) -> None:
    document, verdicts, node, waivers = _judge_one(state, document)
    state.hosts[document.host] = node
    state.groups.update(document.groups)
    status = document.status
    state.nodes[status] = state.nodes.get(status, 0) + 1
    state.unread += verdicts.unread
    for answers in verdicts.answers:
        for rule, verdict, count in answers.counts:
            state.counts[rule, verdict] = state.counts.get((rule, verdict), 0) + count
    _add_entries(state, verdicts, document, waivers, node.policy)
    if verdicts.unread:
        return
    name = peers_of(document.groups, node.policy)
    cell = state.cells.get(name)
    if cell is None:
        cell = state.cells[name] = Cell(node.policy, waivers, document.groups)
    cell.hosts.append(document.host)
    cell.policies[policy_key(document.policy, node.policy)] += 1
    cell.hardware[hardware_of(document.sections)] += 1
    for answers in verdicts.answers:
        for rule, compared in answers.compared:
            add_votes(cell.ballots.setdefault(rule, Ballot(name)), [document.host], compared)
    state.in_groups.setdefault(document.groups, []).append(document.host)


def _add_entries(state: _State, verdicts: NodeVerdicts, document: NodeDocument, waivers: dict[str, list[Waiver]], policy: dict[str, Any]) -> None:
    for number, judged, texts, where in verdicts.listed:
        rule = state.engine.rules[number]
        verdict, waiver = judged.verdict, None
        if verdict == "fail" and rule.id in waivers:
            waiver = _waiver(state, waivers[rule.id], document.host, document.groups)
            if waiver is not None:
                verdict = "waived"
                state.count(rule, "fail", -judged.items)
                state.count(rule, "waived", judged.items)
        if verdict == "fail" and (bad := waiver_at(rule, judged.item, policy)) is not None:
            state.count(rule, "fail", -judged.items)
            state.count(rule, "skip", judged.items)
            row = state.bad_waivers.setdefault((rule.id, msgspec.json.encode(bad.row).decode()), BadWaiver(rule, judged, texts, bad))
            row.hosts += [document.host] if bad.covers(document.host, document.groups) else []
            continue
        state.entries.append(Entry(rule, verdict, document.host, judged, texts, where, waiver))


def _waiver(state: _State, waivers: list[Waiver], host: str, groups: tuple[str, ...]) -> dict[str, Any] | None:
    """The waiver that is valid today for this host, or None."""
    return next((dict(one.row) for one in waivers if one.row["until"] >= state.today and one.covers(host, groups)), None)


def _count_nodes(state: _State) -> None:
    """Totals of node scope. A node that was not read is unknown to every rule over facts."""
    for (number, verdict), count in state.counts.items():
        state.count(state.engine.rules[number], verdict, count)
    for rule in state.engine.rules:
        if state.unread and rule.scope == "node" and rule.reads_facts:
            state.count(rule, "unknown", state.unread)


def _judge_peers(state: _State, view: CatalogueView) -> None:
    for name, peers in joined(state.cells):
        same_as = peers.policy.get("same_as")
        there = _ballots_of_group(state, same_as) if same_as else {}
        for number, ballot in peers.ballots.items():
            rule = state.engine.rules[number]
            state.engine.mark(rule.id)
            state.engine.evaluations += 1
            if rule.scope == "group":
                judged = judge_group(rule, ballot, peers.policy, view, same_as)
                _add_lacking(state, rule, ballot)
            elif same_as and same_as not in state.groups and ballot.values and not state.is_limited:
                missing = (
                    f"nodes of {same_as}",
                    "absent",
                    f"no node of the run is in this group, which the policy names in same_as{nearest(same_as, sorted(state.groups))}",
                )
                judged = GroupJudged("unknown", name, missing=(missing,))
            elif same_as:
                judged = judge_fleet(rule, ballot, there.get(number, Ballot(same_as)), peers.policy, view, same_as)
            else:
                judged = GroupJudged("skip", name)
            _add_group(state, rule, judged, peers)


def _ballots_of_group(state: _State, inventory_group: str) -> dict[int, Ballot]:
    """The values of all hosts of one inventory group, in any peer group."""
    wanted = {host for groups, hosts in state.in_groups.items() if inventory_group in groups for host in hosts}
    found: dict[int, Ballot] = {}
    for cell in state.cells.values():
        for number, ballot in cell.ballots.items():
            add_ballot(found.setdefault(number, Ballot(inventory_group)), ballot, wanted)
    return found


def _add_lacking(state: _State, rule: Rule, ballot: Ballot) -> None:
    """Adds the verdict unknown for hosts whose value was not read."""
    for host, judged in ballot.lacking:
        state.count(rule, "unknown")
        path, status, reason = judged.missing[0]
        texts = {"expected": "a value to compare with the node's peers", "found": f"{path} not known ({status}): {reason}"}
        known = GroupJudged("unknown", ballot.group, (host,), missing=judged.missing)
        state.entries.append(Entry(rule, "unknown", None, known, texts, {}))


def _add_group(state: _State, rule: Rule, judged: GroupJudged, peers: Peers) -> None:
    verdict, waiver = judged.verdict, None
    if verdict == "fail" and any(rule.id in cell.waivers for cell in peers.cells):
        held = [_waiver(state, cell.waivers.get(rule.id, []), host, cell.groups) for host, cell in zip(judged.hosts, peers.cells_of(judged.hosts), strict=True)]
        if held and all(held):
            verdict, waiver = "waived", held[0]
    state.count(rule, verdict)
    if verdict in ("fail", "unknown", "waived"):
        judged = labelled(rule, judged)
        lacking = f"{judged.missing[0][0]} not known ({judged.missing[0][1]}): {judged.missing[0][2]}" if judged.missing else ""
        texts = judged.texts or {"expected": "values that can be compared", "found": lacking}
        state.entries.append(Entry(rule, verdict, None, judged, texts, {}, waiver))


def _add_bad_waivers(state: _State) -> None:
    for one in state.bad_waivers.values():
        if one.hosts or not state.is_limited:
            state.count(one.rule, "fail")
            state.entries.append(one.entry({rule.id for rule in state.engine.rules}))


def _add_stopped(state: _State, stopped: Iterable[Rule]) -> None:
    for rule in stopped:
        reason = "it used up the time or memory that judging may take, and was left out"
        missing = ((f"rule {rule.id}", "error", reason),)
        texts = {"expected": "a rule that ends", "found": f"rule {rule.id} was stopped: {reason}"}
        judged = GroupJudged("unknown", "", missing=missing)
        state.count(rule, "unknown")
        state.entries.append(Entry(rule, "unknown", None, judged, texts, {}))


def _head(run: RunInput, state: _State, catalogue: Catalogue, stopped: list[str]) -> dict[str, Any]:
    totals = {verdict: sum(row[verdict] for row in state.totals.values()) for verdict in VERDICTS}
    severities = Counter[str]()
    for entry in state.entries:
        if entry.verdict == "fail":
            severities[entry.severity] += entry.judged.items if isinstance(entry.judged, Judged) else 1
    document = run.document
    return {
        "schema": "unhang/findings/1",
        "run": {"id": document["id"], "started": document.get("started"), "finished": document.get("finished"), "judged": state.today},
        "host_count": sum(state.nodes.values()),
        "nodes": {status: state.nodes[status] for status in COUNTED if status in state.nodes},
        "catalogue": {"rules": len(catalogue.rules), "evaluations": state.engine.evaluations, "stopped": stopped, "refused": list(catalogue.faults)},
        "totals": totals,
        "totals_by_severity": {severity: severities[severity] for severity in SEVERITIES if severities[severity]},
        "totals_by_rule": {rule.id: state.totals[rule.id] for rule in catalogue.rules if rule.id in state.totals},  # independent of the order of look-ups
    }
