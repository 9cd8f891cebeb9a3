"""The faulty GPUs of a node of the job, each with one verb, as the audit has it: by NVML's recovery
action and the Xids since the job began. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.core.gpu_verbs import TABLES, GpuVerb, gpu_verbs
from unhang.core.verdict.likely_causes import kernel_clues
from unhang.jobs.inspect.inspection import FaultyGpu
from unhang.jobs.inspect.rank_looks import host_of, section
from unhang_node.base.parse.values import as_maps, number_of

# USER_HZ, the unit of a process's start in /proc, is 100 on every machine with GPUs
TICKS_PER_S = 100


def faulty_gpus(document: Mapping[str, Any]) -> list[GpuVerb]:
    """document: the evidence of one node."""
    nvml, log = section(document, "nvml"), section(document, "kernel_log")
    devices = as_maps(nvml.get("gpus_1")) or None
    faults = {"events": events_of_the_job(document), "resets": as_maps(log.get("resets"))}
    sections = {"gpus": {"devices": devices}, "faults": faults}
    return gpu_verbs(sections, {name: table(name) for name in TABLES})


def verb_clue(one: GpuVerb) -> str:
    """One line for people: what the GPU needs, and for what."""
    wants = {"power-cycle": "power-cycle its node", "replace": "replace it"}.get(one.verb, one.verb)
    return f"{one.name} asks to {wants}, for {', '.join(one.because)}"


def gpu_row(document: Mapping[str, Any], one: GpuVerb) -> FaultyGpu:
    """The row of unhang/inspection/1."""
    host, because = host_of(document), list(one.because)
    return FaultyGpu(host, one.index, one.uuid, one.pci_address, one.verb, because)


def clues_of(document: Mapping[str, Any]) -> list[str]:
    """What a GPU of the node needs, and what its kernel log says."""
    needs = [verb_clue(one) for one in faulty_gpus(document)[:1]]
    return [*needs, *kernel_clues(kernel_lines(document))]


def kernel_lines(document: Mapping[str, Any]) -> list[str]:
    """The kernel's lines about faults since the job's ranks began."""
    return [str(event["line"]) for event in events_of_the_job(document) if event.get("line")]


def events_of_the_job(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The kernel's faults since the job's ranks began. One without a time is left out: it may be a
    month old."""
    began_s = (
        min((number_of(row.get("started")) for row in as_maps(document.get("ranks"))), default=0.0)
        / TICKS_PER_S
    )
    events = as_maps(section(document, "kernel_log").get("events"))
    return [
        event
        for event in events
        if event.get("last_s") is not None and number_of(event["last_s"]) >= began_s
    ]
