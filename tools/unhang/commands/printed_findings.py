"""What the audit's rules find in the facts that the output of tools shows: of each node, and in a
comparison of nodes that should be alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from unhang.commands.printed_facts import Printed
from unhang.commands.printed_nodes import Node
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.schemas.shapes import ANY, fact_shapes
from unhang.jobs.diagnose.looked import Printed as JudgedOutput
from unhang.jobs.diagnose.looked import PrintedFault, Read
from unhang.judge.fleet.drift_advice import with_advice
from unhang.judge.fleet.peer_groups import hardware_of
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang.judge.rules.engine import Engine, Listed, NodeVerdicts
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.groups import Ballot, add_votes, judge_group
from unhang.judge.rules.rules import Rule
from unhang.judge.rules.syntax import Path
from unhang.judge.triage.causes import first_to_act

_INDEX = re.compile(r"\[\d+\]")
_NOT_KNOWN = re.compile(
    r" at not known \([^()]{0,80}\) °C| \((?:not known \([^()]{0,80}\)(?:, )?)+\)"
    r"|not known \([^()]{0,80}\)(?:, |(?=:))"
    r"|(?: \(|, )not known \([^()]{0,80}\)(?!, )\)?"
)
# a release may be so without harm, and is evidence beside a hang
RELEASES = {"driver.loaded.version", "kernel.release"}
_ITEM = re.compile(r"(gpus\.devices|network\.(rdma|interfaces))\[")


def judged_nodes(catalogue: Catalogue, nodes: Sequence[Node]) -> JudgedOutput:
    """What the rules find on each node, and in a comparison of those that are alike; and of each
    file what was judged."""
    found: list[PrintedFault] = []
    read: dict[str, Read] = {}
    kinds: dict[Hashable, dict[str, tuple[Printed, NodeVerdicts]]] = {}
    shown = {section for one in nodes for section in one.printed.facts}
    rules = [one for one in catalogue.rules if any(path[0] in shown for path in one.decision_reads)]
    view = catalogue_view(catalogue.tables, tuple(one.id for one in catalogue.rules))
    engine = Engine(rules, view)
    for host, printed, name, clash in nodes:
        verdicts = engine.judge(example_node(printed.facts, host))
        faults, own = _judged_in(engine, verdicts, printed, host)
        found += faults
        read |= {file: ([], [clash]) for file in own} if clash else own
        if name:
            gpus = example_node({"gpus": printed.facts["gpus"]}).sections
            kinds.setdefault(hardware_of(gpus), {})[name] = printed, verdicts
    for alike in kinds.values():
        found += _differences(engine, alike)
    return found, read


def _differences(
    engine: Engine, nodes: Mapping[str, tuple[Printed, NodeVerdicts]]
) -> Iterator[PrintedFault]:
    """What rules over several nodes find. Values are compared that all got by the same names."""
    ballots: dict[Hashable, tuple[Rule, Ballot, Collection[str]]] = {}
    for host, (printed, verdicts) in nodes.items():
        for number, one in (row for answers in verdicts.answers for row in answers.compared):
            rule = engine.rules[number]
            reads = (
                one.item["reads"] if one.item else {".".join(row) for row in rule.decision_reads}
            )
            named = [(path, name) for (_, path), name in printed.names.items()]
            names = frozenset(row for row in named if ".".join(row[0]) in reads)
            start = rule, Ballot("these outputs", one.item), reads
            add_votes(ballots.setdefault((number, one.entry, names), start)[1], [host], one)
    for rule, ballot, reads in ballots.values():
        for group in judge_group(rule, ballot, {}, engine.catalogue):
            judged = with_advice(rule, group, {})
            if judged.verdict == "fail" and judged.comparison and judged.texts:
                counts, texts = judged.comparison["counts"], judged.texts
                if judged.comparison["majority"] is None:
                    values = (f"{one['value']} on {', '.join(one['hosts'])}" for one in counts)
                    texts |= {"found": f"{'; '.join(values)}; no value is in the majority"}
                # a line of three nodes that differ, and of one that has what most have
                shown = [*judged.hosts[:3], counts[0]["hosts"][0]]
                places = [
                    (host if host in judged.hosts else "", *place)
                    for host in dict.fromkeys(shown)
                    for place in _shown_lines(nodes[host][0], reads, texts["found"])
                ]
                who = [f"host {host}" for host in judged.hosts]
                if places:
                    yield _fault(rule, texts, judged.severity, places, who)


def _shown_lines(printed: Printed, reads: Collection[str], found: str) -> list[tuple[str, int]]:
    """Where a fact is printed, if possible one whose name is in the text."""
    sections = tuple({one.partition(".")[0] for one in reads})
    paths = [one for one in printed.at if _INDEX.sub(".*", one) in reads] or [
        one for one in printed.at if one.startswith(sections)
    ]
    things = {
        path: _name_of(path, printed.facts).removeprefix("adapter ")
        for path in paths
        if _ITEM.match(path)
    }
    paths.sort(
        key=lambda path: (things.get(path, "") not in found, path.rpartition(".")[2] not in found)
    )
    return [printed.at[path] for path in paths[:1]]


def _judged_in(
    engine: Engine, verdicts: NodeVerdicts, printed: Printed, host: str = ""
) -> JudgedOutput:
    """What the rules find, each with the line that shows it, without what another finding explains;
    and of each file the names of what they looked at, and did not. Values in, values out."""
    failed = [one for one in verdicts.listed if one.judged.verdict == "fail"]
    explained = {name for one in failed for name in engine.rules[one.rule].row.get("explains", ())}
    faults = [
        fault
        for one in failed
        if engine.rules[one.rule].id not in explained
        for fault in _faults(engine.rules[one.rule], one, printed, host)
    ]
    read = {
        (verdict, path)
        for answers in verdicts.answers
        for number, verdict, _ in answers.counts
        for when in [engine.rules[number].when]
        # that GPUs do the same does not show that they are sound
        if when
        and not {"utilization_percent", "power_draw_w", "memory_used_mib"}
        & {path[-1] for path in when.reads}
        for path in when.reads
    }
    sound = {path for verdict, path in read if verdict == "pass" and ("fail", path) not in read}
    return faults, {file: _looked(file, printed, sound, faults) for file in printed.files}


def _looked(
    file: str, printed: Printed, sound: Collection[Path], faults: Sequence[PrintedFault]
) -> Read:
    """The names of what rules found sound in a file, and of what they did not judge."""
    shown = Counter(_INDEX.sub(".*", path) for path in printed.at)
    parts = {path.rpartition("]")[0] for path in printed.at}
    items = Counter(_INDEX.sub(".*", f"{one}]").rpartition(".*")[0] for one in parts)
    names = {
        path: name
        for (of, path), name in printed.names.items()
        if of == file and shown[".".join(path)] and _tells(path)
    }
    looked = [
        name
        for path, name in names.items()
        # what one of the items lacks nobody has judged of all, as where an output is cut off
        if shown[".".join(path)] == items[".".join(path).rpartition(".*")[0]]
        and any(one[: len(path)] == path for one in sound)
    ]
    others = [one for one in names.values() if one not in looked]
    remarks = [
        f"{one.title} ({one.found})"
        for one in faults
        if one.severity == "info" and one.places[0][1] == file
    ]
    is_of_parts = any("*" in path for path, name in names.items() if name in looked)
    # a setting of the machine alone, as sysctl prints one, does not show that a part is sound
    return ([], remarks or others) if remarks or not is_of_parts else (looked, others)


def _tells(path: Sequence[str]) -> bool:
    """Whether a value may show that a part is sound: no name or version does."""
    shape = fact_shapes()[path[0]]
    for name in path[1:]:
        shape = (shape.item if name == "*" else shape.fields.get(name)) or ANY
    is_name = shape.identity or (shape.kind == "text" and not shape.values)
    return not is_name


def _faults(rule: Rule, one: Listed, printed: Printed, host: str) -> Iterator[PrintedFault]:
    read = [path for path, _ in one.judged.evidence]
    item = one.judged.item or ""  # a row of a table has no line
    own = [path for path in read if path.startswith(item)]
    places = _lines_of({*read} - RELEASES if item.startswith("tables.") else own, printed)
    if ": " in item:  # worked out of facts
        places = _shown_lines(
            printed, {".".join(path) for path in rule.decision_reads}, one.texts["found"]
        )
    # an output may be of some GPUs alone
    if not places or (not item and "gpus.count" in read):
        return
    shown = {*read} & printed.at.keys()
    is_remark = shown and shown <= RELEASES
    who = dict.fromkeys(_name_of(one, printed.facts) for one in own if _ITEM.match(one))
    yield _fault(
        rule, one.texts, "info" if is_remark else one.judged.severity, [(host, *places[0])],
        [*who, *([f"host {host}"] if host else [])],
    )  # fmt: skip


def _fault(
    rule: Rule, texts: Mapping[str, str], severity: str | None,
    places: Sequence[tuple[str, str, int]], who: Sequence[str],
) -> PrintedFault:  # fmt: skip
    person = texts.get("remedy.person", "")
    return PrintedFault(
        rule.id, severity or rule.severity, rule.row["title"], _NOT_KNOWN.sub("", texts["found"]),
        person, first_to_act(rule.row.get("owner", DEFAULT_OWNER), None, [person]), tuple(places),
        tuple(who), tuple(rule.row["sources"]),
    )  # fmt: skip


def _lines_of(read: Iterable[str], printed: Printed) -> list[tuple[str, int]]:
    """The lines of values, of what is below them, and, but for Xids, which diagnose has, of what
    they are looked up by."""
    return [
        at
        for one in read
        for path, at in printed.at.items()
        if path.startswith(one)
        or (one.startswith((f"{path}.", f"{path}[")) and path[:7] != "faults.")
    ]


def _name_of(path: str, facts: dict[str, Any]) -> str:
    section, name, at = re.split(r"[.\[\]]", path)[:3]
    item = facts[section][name][int(at)]
    return f"GPU {item['index']}" if section == "gpus" else f"adapter {item.get('name', '')}"
