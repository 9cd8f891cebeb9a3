"""What the audit's rules find in the facts that the output of tools shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.audit.rules.engine import Engine, Listed
from unhang.audit.rules.example_nodes import example_node
from unhang.audit.rules.examples import catalogue_view
from unhang.audit.rules.rules import Rule
from unhang.commands.printed_facts import SEVERAL, Printed
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.schemas.shapes import ANY, fact_shapes
from unhang.jobs.diagnose.looked import Printed as Judged
from unhang.jobs.diagnose.looked import PrintedFault

_NOT_KNOWN = re.compile(r"not known \([^()]{0,80}\), |(?: \(|, )not known \([^()]{0,80}\)(?!, )\)?")
OF_RELEASES = {"driver", "kernel"}
_ITEM = re.compile(r"(gpus\.devices|network\.rdma)\[")
# of GPUs: that they do the same does not tell that they are sound
LOADS = {"utilization_percent", "power_draw_w", "memory_used_mib"}


def judged_in(catalogue: Catalogue, printed: Printed) -> Judged:
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
    verdicts = Engine(rules, view).judge(example_node(printed.facts))
    failed = [one for one in verdicts.listed if one.judged.verdict == "fail"]
    explained = {name for one in failed for name in rules[one.rule].row.get("explains", ())}
    faults = [
        fault
        for one in failed
        if rules[one.rule].id not in explained
        for fault in _faults(rules[one.rule], one, printed)
    ]
    passed, odd = (
        {
            path
            for group in verdicts.answers
            for number, verdict, _ in group.counts
            if verdict == word and (when := rules[number].when)
            if not any(path[-1] in LOADS for path in when.reads)
            for path in when.reads
        }
        for word in ("pass", "fail")
    )
    names = {path: name for path, name in printed.names.items() if _tells(path)}
    looked = [
        name
        for path, name in names.items()
        if any(one[: len(path)] == path for one in passed - odd)
    ]
    return faults, (looked, [one for one in names.values() if one not in looked])


def _tells(path: Sequence[str]) -> bool:
    """Whether a value may tell that a part is sound: no name or version does."""
    shape = fact_shapes()[path[0]]
    for name in path[1:]:
        shape = (shape.item if name == "*" else shape.fields.get(name)) or ANY
    is_name = shape.identity or (shape.kind == "text" and not shape.values)
    return not is_name


def _faults(rule: Rule, listed: Listed, printed: Printed) -> Iterator[PrintedFault]:
    judged = listed.judged
    read = [path for path, _ in judged.evidence]
    own = [path for path in read if judged.item and path.startswith(judged.item)]
    own = own or read
    places = [  # of a value, what is below, or is looked up by it; not Xids, which diagnose has
        at
        for one in own
        for path, at in printed.at.items()
        if path.startswith(one) or (one.startswith(path) and _ITEM.match(path) and path[-1] != "]")
    ]
    # an output may be of some GPUs alone
    if not places or (judged.item is None and "gpus.count" in read):
        return
    sections = {path.partition(".")[0] for path in read if path in printed.at}
    # a release may be so without harm, and is evidence beside a hang
    is_remark = sections and sections <= OF_RELEASES
    yield PrintedFault(
        rule.id, "info" if is_remark else judged.severity or rule.severity, rule.row["title"],
        _NOT_KNOWN.sub("", listed.texts["found"]), listed.texts.get("remedy.person", ""),
        rule.row.get("owner", DEFAULT_OWNER), places[0],
        tuple(dict.fromkeys(_name_of(one, printed.facts) for one in own if _ITEM.match(one))),
        tuple(rule.row["sources"]),
    )  # fmt: skip


def _name_of(path: str, facts: dict[str, Any]) -> str:
    section, name, at = re.split(r"[.\[\]]", path)[:3]
    item = facts[section][name][int(at)]
    return f"GPU {item['index']}" if section == "gpus" else f"adapter {item['name']}"
