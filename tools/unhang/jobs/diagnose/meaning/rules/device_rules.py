"""Rules over GPUs, their links, the driver and the libraries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from unhang.core.text import listed
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.evidence import HINTING, STRONG, SUPPORTING, Evidence, weighed
from unhang.jobs.diagnose.meaning.signs import hang_signs, near_end, speed_falls

_NOT_IDLE = 8.0  # GT/s: the speed of PCIe 3; a link that saves power has 2.5 or 5


def peer_to_peer_went_silent(facts: Facts) -> Iterator[Evidence]:
    """Channels over P2P, then nothing: no error, no end of initialisation, no step. A program that
    NCCL gave an error is not silent.

    Decides diagnose_batches/2/102, diagnose/acs_iommu/silent-after-p2p.
    """
    p2p = facts.of("over_p2p")
    worked = facts.said("training_step", "average_bandwidth", "comm_destroyed", "library_failed")
    if (
        not p2p
        or worked
        or any(event.kind == "error" and event.signature.for_ for event in facts.plain)
    ):
        return
    if not facts.said("init_complete", "rings_connected") and near_end(facts, p2p[-1]):
        why = "initialisation stops once channels over peer-to-peer are chosen"
        weights = {"acs_iommu": SUPPORTING + 0.6, "driver_p2p_bug": SUPPORTING}
        yield from weighed(weights, why, (p2p[-1],), "p2p-silent")
    elif hang_signs(facts):
        why = "peer-to-peer is in use and the job hangs"
        weights = {"acs_iommu": SUPPORTING - 0.4, "driver_p2p_bug": SUPPORTING - 0.8}
        yield from weighed(weights, why, (p2p[-1],), "p2p-and-hang")


def several_nccl_libraries(facts: Facts) -> Iterator[Evidence]:
    """NCCL libraries of several versions are loaded in one job, or several wheels of it are
    installed.

    Decides diagnose_batches/4/236, diagnose_batches/7/004,
    diagnose/nccl_version_conflict/two-loaded.
    """
    loaded: dict[str, Event] = {}
    hosts: dict[str, set[str]] = {}
    # a line that names its host says more than an error's
    for event in sorted(facts.of("nccl_version"), key=lambda event: bool(event.prefix.host)):
        if event.id == "fact-nccl-version":
            release = _nccl_release(event.fields["value"] or "")
            loaded[release] = event
            hosts.setdefault(release, set()).update(filter(None, [event.prefix.host]))
    if len(loaded) > 1 and not _separate_runs(facts, list(loaded.values())):
        events = tuple(loaded.values())[:4]
        files = {event.file for event in events}
        meet: dict[str | None, set[str]] = {}  # communicator -> the files of its ranks
        for event in facts.of("init_start"):
            meet.setdefault(event.fields["comm"], set()).add(event.file)
        meet.pop(None, None)
        same_job = len(files) == 1 or any(map(files.issubset, meet.values()))
        told = tuple(
            f"NCCL {one} on {listed(sorted(hosts[one]), 2)}" if hosts[one] else f"NCCL {one}"
            for one in sorted(loaded)[:4]
        )
        yield Evidence(
            "nccl_version_conflict",
            STRONG + 1.5 if same_job else SUPPORTING,
            f"one job loads {' and '.join(told)}",
            events,
            "two-nccl-loaded",
            who=told,
        )
    wheels = {
        (event.fields["name"], event.fields["value"]): event for event in facts.of("nccl_wheel")
    }
    if len(wheels) > 1:
        yield Evidence(
            "nccl_version_conflict",
            STRONG,
            "several NCCL wheels are installed",
            tuple(wheels.values())[:4],
            "two-nccl-wheels",
        )


def _nccl_release(value: str) -> str:
    """2.10.3 for the 21.0.3 that PyTorch 1.10 to 1.12 print, because they decode NCCL's number
    21003 as one of releases before 2.9."""
    parts = value.split(".")
    if len(parts) != 3 or int(parts[0]) < 20:
        return value
    code = int(parts[0]) * 1000 + int(parts[1]) * 100 + int(parts[2])
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"


def _separate_runs(facts: Facts, versions: list[Event]) -> bool:
    """Whether the job was started again between one version and the next: then somebody tried
    several versions."""
    starts = [event for event in facts.of("launch_shape") if event.file == versions[0].file]
    return all(
        any(one.line < start.line < other.line for start in starts)
        for one, other in itertools.pairwise(versions)
    )


def link_is_slower_than_the_card(facts: Facts) -> Iterator[Evidence]:
    """The kernel finds a switch or slot of an older generation above a card. Many machines are
    built so; it matters if the job is slow.

    Decides diagnose_outputs/pcie_and_gpus/card-behind-older-switch,
    diagnose_documented/gpu_nccl_torch_2/dmesg-gen5-cards-behind-gen4-switch.
    """
    limited = [
        event
        for event in facts.said("link_limited")
        if _NOT_IDLE <= event.decimal("speed") < event.decimal("most")
    ]
    if limited:
        slow = speed_falls(facts)
        why = (
            f"a card for {limited[0].fields['most']} GT/s is behind a link of"
            f" {limited[0].fields['speed']} GT/s"
        )
        yield Evidence(
            "pcie_link_degraded",
            STRONG if slow else HINTING,
            why,
            (*limited[:2], *slow[:1]),
            "slower-than-the-card",
        )
