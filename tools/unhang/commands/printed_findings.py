"""What the audit's rules find in the facts that the output of tools shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.audit.rules.describing import described, items_of
from unhang.audit.rules.example_nodes import example_node
from unhang.audit.rules.examples import catalogue_view
from unhang.audit.rules.node_rules import Judged, judge_rule, node_world
from unhang.audit.rules.rules import Rule
from unhang.audit.rules.values import World
from unhang.commands.printed_facts import SEVERAL, Printed
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.schemas.shapes import ANY, fact_shapes
from unhang.jobs.diagnose.looked import Printed as JudgedOutput
from unhang.jobs.diagnose.looked import PrintedFault

_NOT_KNOWN = re.compile(r"not known \([^()]{0,80}\), |(?: \(|, )not known \([^()]{0,80}\)(?!, )\)?")
# a release may be so without harm, and is evidence beside a hang
RELEASES = {"driver.loaded.version", "kernel.release"}
_ITEM = re.compile(r"(gpus\.devices|network\.rdma)\[")
# of GPUs: that they do the same does not tell that they are sound
LOADS = {"utilization_percent", "power_draw_w", "memory_used_mib"}


def judged_in(catalogue: Catalogue, printed: Printed) -> JudgedOutput:
    """What the rules find, each with the line that shows it, without what another finding explains;
    and the names of what they looked at, and did not. Values in, values out."""
    gpus = printed.facts.setdefault("gpus", {})
    devices = gpus.get("devices", [])
    gpus["count"] = len(devices) or SEVERAL
    if any("processes" in one for one in devices):  # the table lists those of all GPUs
        devices[:] = [{"processes": [], **one} for one in devices]
    if len(models := {one.get("model") for one in devices}) == 1:
        gpus["model"] = models.pop()
    rules = [
        one
        for one in catalogue.rules
        if one.scope == "node" and any(path[0] in printed.facts for path in one.decision_reads)
    ]
    view = catalogue_view(catalogue.tables, tuple(one.id for one in catalogue.rules))
    world = node_world(example_node(printed.facts), view)
    judged = [(rule, one) for rule in rules for one in judge_rule(rule, world)]
    failed = [(rule, one) for rule, one in judged if one.verdict == "fail"]
    explained = {name for rule, _ in failed for name in rule.row.get("explains", ())}
    faults = [
        fault
        for rule, one in failed
        if rule.id not in explained
        for fault in _faults(rule, one, world, printed)
    ]
    read = {
        (one.verdict, path)
        for rule, one in judged
        if rule.when and not LOADS & {path[-1] for path in rule.when.reads}
        for path in rule.when.reads
    }
    sound = {path for verdict, path in read if verdict == "pass" and ("fail", path) not in read}
    names = {path: name for path, name in printed.names.items() if _tells(path)}
    looked = [
        name for path, name in names.items() if any(one[: len(path)] == path for one in sound)
    ]
    others = [one for one in names.values() if one not in looked]
    remarks = [one.title for one in faults if one.severity == "info"]
    is_of_parts = any("*" in path for path, name in names.items() if name in looked)
    # a setting of the machine alone, as sysctl prints one, tells of no part that it is sound
    return faults, ([], remarks or others) if remarks or not is_of_parts else (looked, others)


def _tells(path: Sequence[str]) -> bool:
    """Whether a value may tell that a part is sound: no name or version does."""
    shape = fact_shapes()[path[0]]
    for name in path[1:]:
        shape = (shape.item if name == "*" else shape.fields.get(name)) or ANY
    is_name = shape.identity or (shape.kind == "text" and not shape.values)
    return not is_name


def _faults(rule: Rule, judged: Judged, world: World, printed: Printed) -> Iterator[PrintedFault]:
    read = [path for path, _ in judged.evidence]
    item = judged.item or ""  # a row of a table has no line
    own = [path for path in read if path.startswith(item)]
    places = _lines_of({*read} - RELEASES if item.startswith("tables.") else own, printed)
    # an output may be of some GPUs alone
    if not places or (not item and "gpus.count" in read):
        return
    items = items_of(rule, world) if item else {}
    texts, _ = described(rule, judged, world, items)
    shown = {*read} & printed.at.keys()
    is_remark = shown and shown <= RELEASES
    yield PrintedFault(
        rule.id, "info" if is_remark else judged.severity or rule.severity, rule.row["title"],
        _NOT_KNOWN.sub("", texts["found"]), texts.get("remedy.person", ""),
        rule.row.get("owner", DEFAULT_OWNER), places[0],
        tuple(dict.fromkeys(_name_of(one, printed.facts) for one in own if _ITEM.match(one))),
        tuple(rule.row["sources"]),
    )  # fmt: skip


def _lines_of(read: Iterable[str], printed: Printed) -> list[int]:
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
    return f"GPU {item['index']}" if section == "gpus" else f"adapter {item['name']}"
