"""Rules over peer-to-peer between GPUs: in use when output stopped, not supported, or disabled in a run that then succeeds."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.rules.signs import hang_signs, near_end
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]


def peer_to_peer_went_silent(facts: Facts) -> Iterator[Evidence]:
    """Channels over P2P, then nothing: no error, no end of initialisation, no step."""
    p2p = [event for event in facts.of("transport") if (event.fields.get("value") or event.fields.get("old") or "").startswith("P2P")]
    worked = facts.of("training_step") or facts.of("average_bandwidth") or facts.of("comm_destroyed")
    if not p2p or worked or any(event.signature.kind == "error" and event.signature.for_ and not event.quoted for event in facts.events):
        return
    signs = hang_signs(facts)
    if not (facts.of("init_complete") or facts.of("rings_connected")) and near_end(facts, p2p[-1]):
        why = "initialisation stops once channels over peer-to-peer are chosen"
        yield Evidence("acs_iommu", SUPPORTING + 0.6, why, (p2p[-1],), "p2p-silent")
        yield Evidence("driver_p2p_bug", SUPPORTING, why, (p2p[-1],), "p2p-silent")
    elif signs:
        why = "peer-to-peer is in use and the job hangs"
        yield Evidence("acs_iommu", SUPPORTING - 0.4, why, (p2p[-1],), "p2p-and-hang")
        yield Evidence("driver_p2p_bug", SUPPORTING - 0.8, why, (p2p[-1],), "p2p-and-hang")


def no_peer_access(facts: Facts) -> Iterator[Evidence]:
    signs = hang_signs(facts)
    rows = [event for event in facts.of("topology") if any(word in (event.fields["value"] or "").split() for word in ("CNS", "GNS", "TNS", "NS"))]
    if rows:
        weight = STRONG if signs else SUPPORTING + (1 if facts.of("geforce") else 0)
        yield Evidence("unsupported_p2p_geforce", weight, "nvidia-smi topo -p2p says that peer access is not supported", (*rows[:3], *signs[:1]), "topo-no-p2p")


def cards_without_peer_access(facts: Facts) -> Iterator[Evidence]:
    """GeForce 40 and 50 have no peer-to-peer over PCIe; drivers before 550.40.07 claimed it for the 40 series."""
    cards = [event for event in facts.of("geforce") if (event.fields["value"] or "").startswith(("40", "50"))]
    p2p = [event for event in facts.of("transport") if (event.fields.get("value") or event.fields.get("old") or "").startswith("P2P")]
    helped = facts.of("p2p_disable_helps")
    if cards and (helped or (p2p and hang_signs(facts))) and not facts.of("p2p_disable_no_help"):
        yield Evidence(
            "unsupported_p2p_geforce",
            STRONG,
            f"GeForce RTX {cards[0].fields['value']} has no peer-to-peer, and the job uses it",
            (cards[0], *(helped or p2p)[:1]),
            "geforce-p2p",
        )


def peer_to_peer_off_and_it_runs(facts: Facts) -> Iterator[Evidence]:
    """A job that works with peer-to-peer disabled shows where the fault is; cards, driver and machine decide which of three causes it is."""
    helped = facts.of("p2p_disable_helps")
    if not helped or facts.of("p2p_disable_no_help"):
        return
    if facts.of("bad_driver"):
        yield Evidence(
            "driver_p2p_bug",
            STRONG,
            "the job runs without peer-to-peer, under a driver known for it",
            (helped[0], facts.of("bad_driver")[0]),
            "p2p-off-bad-driver",
        )
    elif not facts.of("geforce"):
        yield Evidence("acs_iommu", SUPPORTING, "the job runs without peer-to-peer, on cards that offer it", (helped[0],), "p2p-off-runs")


def several_gpus_hang_and_one_works(facts: Facts) -> Iterator[Evidence]:
    """One GPU works and several GPUs of one machine hang: the difference is peer-to-peer, unless there is evidence of a network or another cause."""
    works, signs = facts.of("one_gpu_works"), hang_signs(facts)
    nodes = [event for event in facts.of("transport") if "NET/" in event.text]
    if works and signs and not nodes and not facts.of("p2p_disable_no_help"):
        why = "one GPU works, several GPUs of one machine hang"
        yield Evidence("unsupported_p2p_geforce" if facts.of("geforce") else "acs_iommu", SUPPORTING, why, (works[0], signs[0]), "several-gpus-hang")


def busy_without_end(facts: Facts) -> Iterator[Evidence]:
    """Every GPU is at full load and the log has no further output: kernels of a collective wait for each other."""
    loads = facts.of("utilisation")
    if len(loads) > 1 and all(int(event.fields["load"] or 0) >= 95 for event in loads) and not facts.of("training_step") and facts.of("init_complete"):
        why = "all GPUs are at full load in the first collectives, and the log has no further output"
        yield Evidence("acs_iommu", SUPPORTING, why, (loads[0],), "busy-without-end")
        yield Evidence("driver_p2p_bug", SUPPORTING / 2, why, (loads[0],), "busy-without-end")


def known_bad_driver_and_hang(facts: Facts) -> Iterator[Evidence]:
    bad = [event for event in facts.of("bad_driver") if not event.quoted]
    signs = [*hang_signs(facts), *facts.of("soft_lockup")]
    silent = facts.of("phase") and not facts.of("training_step")
    if bad and (signs or silent):
        yield Evidence(
            "driver_p2p_bug",
            STRONG,
            f"driver {bad[0].fields['value']} is known for peer-to-peer hangs, and this job hangs",
            (bad[0], *signs[:2]),
            "bad-driver-and-hang",
        )


def driver_package_upgraded_and_hang(facts: Facts) -> Iterator[Evidence]:
    """The package manager installed another driver, and the job hangs since then; if the job is refused instead, module and libraries differ."""
    upgraded, signs = facts.of("driver_package_upgraded"), hang_signs(facts)
    if upgraded and signs:
        why = f"the driver's packages went from {upgraded[-1].fields['old']} to {upgraded[-1].fields['value']}, and the job hangs"
        yield Evidence("driver_p2p_bug", SUPPORTING + 0.5, why, (upgraded[-1], signs[0]), "driver-upgraded-and-hang")


def steps_worked_and_another_library_does(facts: Facts) -> Iterator[Evidence]:
    """The job made steps, then hung, and does not hang with another library: NCCL fails in such a step, and the ranks' calls are right."""
    signs, works = hang_signs(facts), [event for event in facts.events if event.signature.id == "other-backend-works-reported"]
    if works and signs and facts.of("training_step"):
        yield Evidence(
            "nccl_bug", STRONG - 0.4, "steps had worked, and the job runs over another library than NCCL", (works[0], signs[0]), "steps-and-other-library"
        )
