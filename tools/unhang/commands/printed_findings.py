"""What the audit's rules find in the facts that the output of tools shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.audit.rules.engine import Engine
from unhang.audit.rules.example_nodes import example_node
from unhang.audit.rules.examples import catalogue_view
from unhang.commands.printed_facts import SEVERAL, Printed
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.jobs.diagnose.looked import PrintedFault

_NOT_KNOWN = re.compile(r"not known \([^()]{0,80}\), |(?: \(|, )not known \([^()]{0,80}\)(?!, )\)?")
_GPU = re.compile(r"\bGPU (\d{1,3})\b")
OF_RELEASES = {"driver", "kernel"}
_ITEM = re.compile(r"^(gpus\.devices|network\.rdma)\[(\d+)\]")


def findings_in(catalogue: Catalogue, printed: Printed) -> Iterator[PrintedFault]:
    """What the rules find, each with the line that shows it; what another finding explains is left
    out. Values in, values out."""
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
    listed = Engine(rules, view).judge(example_node(printed.facts)).listed
    failed = [one for one in listed if one.judged.verdict == "fail"]
    explained = {name for one in failed for name in rules[one.rule].row.get("explains", ())}
    for number, judged, texts, _ in failed:
        rule, found = rules[number], _NOT_KNOWN.sub("", texts["found"])
        named = [int(one) for one in _GPU.findall(found)]
        read = [path.removesuffix(".others") for path, _ in judged.evidence]
        meant = {at for at, one in enumerate(devices) if one["index"] in named}
        of_others = tuple(f"gpus.devices[{at}]" for at in range(len(devices)) if at not in meant)
        # a comparison of GPUs reads all of them
        own = [one for one in read if not (meant and one.startswith(of_others))]
        own += [f"gpus.devices[{at}]" for at in meant]
        places = [at for one in own for path, at in printed.at.items() if path.startswith(one)]
        if not places or rule.id in explained:
            continue
        severity = judged.severity or rule.severity
        sections = {path.partition(".")[0] for path in read if path in printed.at}
        if sections and sections <= OF_RELEASES:
            severity = "info"  # it may be so without harm, and is evidence beside a hang
        whose = [one for path in read for one in _ITEM.findall(path)]
        who = [f"GPU {one}" for one in named] or [
            f"GPU {devices[int(at)]['index']}"
            if kind[0] == "g"
            else f"adapter {printed.facts['network']['rdma'][int(at)]['name']}"
            for kind, at in whose
        ]
        yield PrintedFault(
            rule.id, severity, rule.row["title"], found, texts.get("remedy.person", ""),
            rule.row.get("owner", DEFAULT_OWNER), places[0], tuple(dict.fromkeys(who)),
            tuple(rule.row["sources"]),
        )  # fmt: skip
