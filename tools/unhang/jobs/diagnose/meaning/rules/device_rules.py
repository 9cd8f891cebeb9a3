"""Rules over GPUs, their links, the driver and the libraries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

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
    p2p = _over_p2p(facts)
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


def _over_p2p(facts: Facts) -> list[Event]:
    return [
        event
        for event in facts.of("transport")
        if (event.fields.get("value") or event.fields.get("old") or "").startswith("P2P")
    ]


def no_peer_access(facts: Facts) -> Iterator[Evidence]:
    """nvidia-smi's table of peer access says that GPUs cannot reach each other directly.

    Decides diagnose_batches/1/135, diagnose_outputs/pcie_and_gpus/topo-p2p-ns.
    """
    signs = hang_signs(facts)
    rows = [
        event
        for event in facts.of("topology")
        if {"CNS", "GNS", "TNS", "NS"} & {*(event.fields["value"] or "").split()}
    ]
    if rows:
        weight = STRONG if signs else SUPPORTING + (1 if facts.of("geforce") else 0)
        yield Evidence(
            "unsupported_p2p_geforce",
            weight,
            "nvidia-smi topo -p2p says that peer access is not supported",
            (*rows[:3], *signs[:1]),
            "topo-no-p2p",
        )


def cards_without_peer_access(facts: Facts) -> Iterator[Evidence]:
    """GeForce 40 and 50 have no peer-to-peer over PCIe; drivers before 550.40.07 claimed it for the
    40 series.

    Decides diagnose_batches/15/g19, diagnose/unsupported_p2p_geforce/direct-pointer.
    """
    cards = [
        event
        for event in facts.of("geforce")
        if (event.fields["value"] or "").startswith(("40", "50"))
    ]
    p2p = _over_p2p(facts)
    if cards and p2p and hang_signs(facts):
        yield Evidence(
            "unsupported_p2p_geforce",
            STRONG,
            f"GeForce RTX {cards[0].fields['value']} has no peer-to-peer, and the job uses it",
            (cards[0], *p2p[:1]),
            "geforce-p2p",
        )


def old_kernel_and_hang(facts: Facts) -> Iterator[Evidence]:
    """A program warns of an old kernel, and the job hangs: weak evidence still.

    Decides diagnose_batches/10/044, diagnose/kernel_too_old/interrupted.
    """
    warned = facts.said("kernel_warning")
    signs = hang_signs(facts)
    if warned and signs:
        yield Evidence(
            "kernel_too_old",
            SUPPORTING + 0.5,
            "the kernel is old and the job hangs in start-up; still weak evidence",
            (warned[0], *signs[:1]),
            "old-kernel-and-hang",
        )


def several_nccl_libraries(facts: Facts) -> Iterator[Evidence]:
    """NCCL libraries of several versions are loaded in one job, or several wheels of it are
    installed.

    Decides diagnose_batches/4/236, diagnose_batches/7/004,
    diagnose/nccl_version_conflict/two-loaded.
    """
    loaded = {
        _nccl_release(event.fields["value"] or ""): event
        for event in facts.of("nccl_version")
        if event.id == "fact-nccl-version"
    }
    if len(loaded) > 1 and not _separate_runs(facts, list(loaded.values())):
        events = tuple(loaded.values())[:4]
        same_job = len({event.file for event in events}) == 1
        yield Evidence(
            "nccl_version_conflict",
            STRONG + 1.5 if same_job else SUPPORTING,
            f"NCCL {' and '.join(sorted(map(str, loaded))[:4])} are loaded in one job",
            events,
            "two-nccl-loaded",
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


def link_has_fewer_lanes(facts: Facts) -> Iterator[Evidence]:
    """A GPU uses fewer lanes than it and its slot have. Only a lower speed means an idle GPU that
    saves power.

    Decides diagnose_outputs/pcie_and_gpus/link-width-of-smi.
    """
    rows = [
        (event.number(now), event.number("max"), event)
        for fact, now in (("link_width", "now"), ("link_limited", "width"))
        for event in facts.of(fact)
    ]
    narrow = [row for row in rows if 0 < row[0] < row[1]]
    if narrow:
        now, most, event = min(narrow, key=lambda row: row[0])
        yield Evidence(
            "pcie_link_degraded",
            STRONG,
            f"a link uses {now} lanes of {most}",
            (event,),
            "fewer-lanes",
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


def container_sees_no_gpu(facts: Facts) -> Iterator[Evidence]:
    """No GPU is visible, and the program runs in a container.

    Decides diagnose_batches/6/372.
    """
    unseen = facts.said("no_gpu")
    if unseen and facts.of("container"):
        lines = (unseen[0], facts.of("container")[0])
        yield Evidence(
            "container_gpu_access",
            STRONG,
            "no GPU is seen, and this runs in a container",
            lines,
            "container-no-gpu",
        )
