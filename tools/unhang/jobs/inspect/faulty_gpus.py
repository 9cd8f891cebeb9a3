"""The faulty GPUs of a node of the job, each with one verb, as the audit has it: by NVML's recovery
action and the Xids since the job began. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.core.verdict.gpu_verbs import TABLES, GpuVerb, gpu_verbs
from unhang.jobs.inspect.ends import events_of_the_job
from unhang.jobs.inspect.rank_looks import host_of, section
from unhang_node.base.parse.values import as_maps


def faulty_gpus(document: Mapping[str, Any]) -> list[GpuVerb]:
    """document: the evidence of one node."""
    nvml, log = section(document, "nvml"), section(document, "kernel_log")
    devices = as_maps(nvml.get("gpus_1")) or None
    faults = {"events": events_of_the_job(document), "resets": as_maps(log.get("resets"))}
    sections = {"gpus": {"devices": devices}, "faults": faults}
    return gpu_verbs(sections, {name: table(name) for name in TABLES})


def verb_clue(one: GpuVerb) -> str:
    """One line for people: what the GPU needs, and for what."""
    return f"{one.name} asks to {_to_do(one.verb)}, for {', '.join(one.because)}"


def _to_do(verb: str) -> str:
    return (
        "power-cycle its node" if verb == "power-cycle" else verb.replace("replace", "replace it")
    )


def gpu_row(document: Mapping[str, Any], one: GpuVerb) -> dict[str, Any]:
    """The row of unhang/inspection/1."""
    return {
        "host": host_of(document),
        "gpu": one.index,
        "uuid": one.uuid,
        "pci_address": one.pci_address,
        "verb": one.verb,
        "because": list(one.because),
    }
