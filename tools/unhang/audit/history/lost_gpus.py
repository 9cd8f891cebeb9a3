"""What earlier runs read of a node and this run could not: a GPU that fell off the bus reports
neither its serial number nor its UUID."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from unhang.core.errors import UserError
from unhang.core.run.documents import MAX_NODE_BYTES, decode_node, decode_plain
from unhang.core.run.run_folder import file_stem, list_runs, read_run, runs_folder
from unhang.core.strict_json import read_bounded

MOST_RUNS = 100  # that are looked through


class Reading(NamedTuple):
    """What a run read of a node. source: the run and its time, in words."""

    source: str
    sections: Mapping[str, Any]


def sections_of(path: Path) -> Mapping[str, Any]:
    """The facts of a node file as plain values; {} of a node without any, or whose file the judge
    would refuse."""
    try:
        content = read_bounded(path, MAX_NODE_BYTES)
        return (
            (decode_plain(content)["facts"] or {}).get("sections", {})
            if decode_node(content).sections is not None
            else {}
        )
    except (OSError, ValueError):
        return {}


def lost_gpus(
    folder: Path, host: str, sections: Mapping[str, Any]
) -> list[tuple[Mapping[str, Any], str]]:
    """(GPU, source) for each PCI address where an earlier run read a GPU and none answers now, as
    the newest of these runs read it.

    folder: of the run; sections: what it read of the node. Looks through the run folders beside it
    and in the usual place.
    """
    started = str(read_run(folder).document.get("started") or "")
    answering = {gpu["pci_address"]: gpu["uuid"] for gpu in _gpus(sections)}
    lost: dict[str, tuple[Mapping[str, Any], str]] = {}
    for one in _in_folders(folder, host, started):
        if not _same_machine(sections, one.sections):
            continue
        known = {*answering.values(), *(gpu["uuid"] for gpu, _ in lost.values())}
        for gpu in _gpus(one.sections):
            if gpu["uuid"] not in known and gpu["pci_address"] not in answering:
                lost.setdefault(gpu["pci_address"], (gpu, one.source))
    return [lost[address] for address in sorted(lost)]


def _in_folders(folder: Path, host: str, started: str) -> Iterator[Reading]:
    """The newest first, as their ids are sorted by time."""
    found = {
        run.resolve(): run.name
        for parent in (folder.resolve().parent, runs_folder())
        for run in list_runs(parent)
    }
    for run in sorted(found, key=lambda one: one.name, reverse=True)[:MOST_RUNS]:
        try:
            when = str(read_run(run).document.get("started") or "")
        except UserError:
            continue
        if when < started:
            yield Reading(
                f"run {run.name} of {when}", sections_of(run / "nodes" / f"{file_stem(host)}.json")
            )


def _gpus(sections: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The GPUs that answered."""
    return [
        gpu
        for gpu in (sections.get("gpus") or {}).get("devices") or ()
        if gpu.get("uuid") and gpu.get("pci_address")
    ]


def _same_machine(sections: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Not where both have a machine id and they differ: another machine may have had the name."""
    one, other = ((each.get("node") or {}).get("machine_id") for each in (sections, others))
    return not (one and other) or one == other
