"""The rank, host, GPU, adapter or peer that the lines of a cause name, so that the advice can name
them too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event, names_in, rank_of
from unhang.jobs.diagnose.meaning.evidence import RANK, Evidence
from unhang.jobs.diagnose.rank_names import each_rank

MOST_NAMED = 8
# facts of lines whose rank waited for others
HEADED_LINES = 100
REPORT_LINES = 3  # torchrun prints time, host, rank, exit code of a process below each other
_NODE_RANK = re.compile(r"--(?:node|machine)[_-]rank[= ](\d{1,4})\b")


def who_is_meant(evidence: Sequence[Evidence], facts: Facts) -> list[str]:
    """The devices and hosts that the lines of a cause name, each once, from the strongest line on;
    a GPU's serial number is added to its address. Of the ranks that kinds of evidence infer, those
    that all of them name; and who prints that it waited is not the one that is waited for."""
    inferred = [one.ranks for one in evidence]
    roots = {*each_rank(facts.answer.roots)}
    if common := set[str]().union(*inferred):
        common = set.intersection(*filter(None, [*inferred, roots])) or roots & common
    named: dict[str, None] = dict.fromkeys(who for one in evidence for who in one.who)
    # a line about a peer is written where the peer is missed: others say first whose fault it is
    lines = [*_lines(evidence, bool(named))]
    of_peers = {event.place for event in lines if event.fields.get("peer")}
    for event in sorted(lines, key=lambda one: one.place in of_peers):
        misses = event.place in of_peers and any(who.startswith("host ") for who in named)
        for text in _of_event(event, facts):
            if misses and text.startswith("host "):
                continue
            if event.fact not in names_in("waited") or not RANK.fullmatch(text):
                named.setdefault(text)
    found = [who for who in named if not common or who in common or not RANK.fullmatch(who)]
    ranks = [who for who in found if RANK.fullmatch(who)][:1]
    host = facts.host_of.get(int(ranks[0].removeprefix("rank "))) if ranks else None
    if host and not any(who.startswith("host ") for who in found):
        found.insert(found.index(ranks[0]) + 1, f"host {host}")
    return found[:MOST_NAMED]


def _lines(evidence: Iterable[Evidence], is_named: bool) -> Iterable[Event]:
    """The lines that support a cause; symptoms name other devices, so they are used only if there
    are no other lines and no evidence says itself whom it means."""
    events = [event for one in evidence for event in one.events]
    shown = [event for event in events if event.kind != "symptom"]
    return shown if shown or is_named else events


def _of_event(event: Event, facts: Facts) -> Iterable[str]:
    yield from _reported_process(event, facts)
    yield from _of_heading(event, facts)
    address = event.fields.get("address")
    owner = _host_of(event.fields.get("peer") or address or "", event, facts)
    found_by_others = _is_found_by_others(event, facts)
    if found_by_others:
        yield f"host {event.prefix.host}"
        own = (rank for rank, host in facts.host_of.items() if host == event.prefix.host)
        yield from each_rank(own)
    for name, row in table("named_by_lines").items():
        value = (event.fields.get(name) or "").strip(" .,;:'\"")
        words = "name {}" if found_by_others and name == "host" else row["words"]
        if value and value != "<unknown>":
            yield words.format(value) + (f" ({owner})" if owner and name == "peer" else "")
            if name == "pci":
                yield from _serial(value, facts)
    if owner and address:  # which others cannot use: not who tried to is meant
        yield f"host {owner}"
        return
    if event.prefix.host and not event.fields.get("host"):
        yield f"host {event.prefix.host}"
    elif (
        event.fields.get("pci") and facts.hosts and not event.fields.get("host")
    ):  # the other lines name hosts, and this device may be on none of them
        yield f"a host that the line does not name ({event.file})"
    if event.fact == "main_process_first":  # printed by a rank that waits
        yield "the main process"
    elif (rank := rank_of(event)) is not None:
        yield f"rank {rank}"


def _is_found_by_others(event: Event, facts: Facts) -> bool:
    """Whether a host looks in vain for another one that most ranks' hosts have found, so that the
    fault is where the line was written."""
    looks, here, asked = names_in("looks_for"), event.prefix.host, event.fields.get("host") or ""
    if event.id not in looks or here is None:
        return False
    in_vain = {one.prefix.host for one in facts.plain if one.id in looks}
    others = {host for host in facts.host_of.values() if not asked.startswith(host)}
    return len(in_vain) <= len(others - in_vain)


def _of_heading(event: Event, facts: Facts) -> Iterable[str]:
    """The adapter, or the pod and its node, whose state the same tool shows below the name."""
    above = [
        one
        for one in (*facts.of("ib_adapter"), *facts.of("heading"))
        if event.follows(one, HEADED_LINES)
        and one.signature.program == event.signature.program
        and one.prefix.host == event.prefix.host
    ]
    latest = {
        name: text
        for one in above
        if above[-1].line - one.line <= 1  # a pod's name and the heading with its node
        for name, text in one.fields.items()
        if text
    }
    words = table("named_by_lines")
    yield from (words[name]["words"].format(text) for name, text in latest.items())


def _host_of(peer: str, event: Event, facts: Facts) -> str:
    """gpu007, if another host says in the log that it uses this address; else ""."""
    address = peer.partition("<")[0].removesuffix(":")
    hosts = {
        one.prefix.host
        for one in facts.of("bootstrap")
        if one.fields.get("address") == address and one.prefix.host
    }
    return hosts.pop() if len(hosts) == 1 and event.prefix.host not in hosts else ""


def _reported_process(event: Event, facts: Facts) -> Iterable[str]:
    """The process of a report: its rank by NCCL's lines; of a launcher's its number and local rank
    in this line, its rank and host in torchrun's lines above it, or above another report of it."""
    report = next((one for one in facts.of("failed_exit") if one.place == event.place), None)
    if known := facts.rank_and_host(report or event):
        yield from (f"rank {known[0]}", f"host {known[1]}")
    if report is None:
        return
    same = [
        one for one in facts.of("failed_exit")
        if one.file == event.file and one.fields.get("pid") == report.fields.get("pid")
    ]  # fmt: skip
    near = next((found for one in (report, *same) if (found := _above(one, facts))), [])
    yield from (f"{name} {one.fields[name]}" for name, one in near if one.fields.get(name))
    if not (known or near) and report.fields.get("local_rank"):
        yield _rank_by_its_node(report, facts) or f"local rank {report.fields['local_rank']}"
    if report.fields.get("pid"):
        yield f"pid {report.fields['pid']}"


def _rank_by_its_node(report: Event, facts: Facts) -> str:
    """The rank of a local rank, by the node's rank and the processes of a node in the command that
    launched them; "" where the file has no such command."""
    for shape in facts.of("launch_shape"):
        node = _NODE_RANK.search(shape.text) if shape.file == report.file else None
        if node and shape.fields.get("per_node"):
            return f"rank {int(node[1]) * shape.number('per_node') + report.number('local_rank')}"
    return ""


def _above(report: Event, facts: Facts) -> list[tuple[str, Event]]:
    """(what, line) of the lines above a launcher's report that name its rank and host. A launcher
    reports a process twice, once with its local rank alone."""
    return [
        (name, one)
        for fact, name in (("failed_rank", "rank"), ("failed_host", "host"))
        for one in facts.of(fact)
        if report.follows(one, REPORT_LINES)
    ]


def _serial(pci: str, facts: Facts) -> Iterable[str]:
    """The driver prints the serial number on a line of its own, right after the GPU's address."""
    for event in facts.of("gpu_serial"):
        if event.fields.get("pci") in (None, pci):
            yield f"serial number {event.fields['serial']}"
            return
