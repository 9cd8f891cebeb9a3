"""Rules over what people describe: parts of a situation that decide nothing alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]
TOGETHER = SUPPORTING + WEIGHTS["hinting"]  # below the score at which a cause gets the severity of its row
HANG = "hang"  # a part that any sign of a hang or a timeout fulfils
EXPERTS = "under ZeRO-3 ranks whose tokens go to different experts gather different parameters, unless the block of experts is a leaf module"
COLLECTIVE_LOAD = "under ZeRO-3 all ranks load a model together, and main_process_first lets one in and holds the others back"
GENERATES = "where parameters are divided, each token gathers them from all ranks, and a rank that ends its text earlier leaves the others waiting"
MIXED = "ranks whose batch has data of one kind only leave out the part of the model for the other kind, and the others wait for its gradients"
NO_SCRIPT = "strategy ddp starts the script again for each GPU, and a notebook has none"
NODE_RANK = "LLaMA-Factory reads NODE_RANK since 0.9.1: with RANK alone every machine starts as the first one and waits for the others"


@dataclass(frozen=True)
class Situation:
    """What stands together for a cause. parts: names of facts, all of which must be told; "one|other" where either will do. id: of its evidence, where that has
    a remedy of its own (the tables OWN_WORDS).
    """

    cause: str
    parts: tuple[str, ...]
    why: str
    weight: float = TOGETHER
    id: str = ""


SITUATIONS = (
    Situation("session_closed", ("session_ends_job",), "the job ends when a session or terminal ends", SUPPORTING),
    Situation("session_closed", ("session_ends_job", "hangup_told"), "the job ends with the terminal, although something was to guard it"),
    Situation("orphan_processes_hold_gpu", ("stopped_by_hand", "memory_stays_taken"), "a run was stopped, and the memory of a GPU stays taken"),
    Situation("shm_too_small", ("no_workers_works", "container_told"), "in a container it works only without worker processes, which share memory"),
    Situation("oom", ("copy_per_process", "ram_runs_out"), "each process holds a copy for itself, and memory runs out"),
    Situation("oom", ("ram_runs_out", "machine_freezes"), "memory fills up, and the whole machine freezes"),
    Situation("rank_device_mapping", ("gpu0_holds_more", "device_not_chosen"), "the first GPU holds parts of all ranks, which choose no device"),
    Situation("rank_device_mapping", ("gpu0_holds_more",), "the first GPU holds what belongs to other ranks", SUPPORTING),
    Situation("cpu_affinity", ("few_cores_busy", "cpu_binding_told"), "a few cores do all the work, and processes are bound to cores"),
    Situation("cpu_affinity", ("few_cores_busy", "slower_told"), "a few cores do all the work, and it is slow"),
    Situation("software_versions_differ", ("versions_unlike", f"machines_told|{HANG}|crash_told"), "machines run different versions of software"),
    Situation("stale_store", ("init_file_named", "file_left"), "the ranks meet through a file, and one is left from an earlier run"),
    Situation("slow_rank_or_io", ("one_rank_prepares", "takes_long"), "one rank prepares data, which takes long"),
    Situation("slow_rank_or_io", ("one_rank_prepares", "others_wait"), "one rank prepares data while the others wait", SUPPORTING),
    Situation("rank_desync_app", ("every_nth", HANG, "only_one_rank"), "it hangs where one rank alone does something every few epochs"),
    Situation("rank_desync_app", ("zero3_told", "experts_told", HANG), EXPERTS, TOGETHER, "experts-under-zero-3"),
    Situation("rank_desync_app", ("sharded_told|zero3_told", "generates_told", HANG), GENERATES, TOGETHER, "generates-while-sharded"),
    Situation("rank_desync_app", ("data_mixed_told", HANG), MIXED, SUPPORTING, "kinds-of-data-mixed"),
    Situation("rank_desync_app", ("zero3_told", "loads_in_main_first"), COLLECTIVE_LOAD, STRONG, "load-in-main-process-first"),
    Situation("launch_mismatch", ("notebook_told", "script_started_again", HANG), NO_SCRIPT, STRONG, "ddp-in-a-notebook"),
    Situation("launch_mismatch", ("rank_for_node_rank", f"{HANG}|takes_long"), NODE_RANK, STRONG, "rank-for-node-rank"),
    Situation("port_in_use", ("two_jobs", "one_job_runs", f"{HANG}|crash_told"), "one job runs, and a second one on the machine does not start", SUPPORTING),
    Situation("jit_cache_shared", ("cache_on_network", "kernels_compiled", f"{HANG}|crash_told"), "kernels are compiled into a cache on shared storage"),
    Situation("disk_full", ("disk_full_told", "writing_told"), "a disk or quota is full, and the job writes"),
    Situation("nvlink_down", ("pair_without_nvlink", "nvlink_elsewhere"), "some GPUs have no NVLink, and others have"),
    Situation("pcie_link_degraded", ("fewer_lanes", "slower_told"), "a PCIe link has fewer lanes, and transfers are slow"),
    Situation("acs_iommu", ("acs_on", f"slower_told|{HANG}"), "ACS or the IOMMU is on, and traffic between GPUs is slow or hangs"),
    Situation("cuda_driver_too_old", ("newer_driver_works", "finds_no_gpu|older_driver"), "it works where the driver is newer"),
    Situation("cuda_driver_too_old", ("older_driver", "finds_no_gpu"), "no GPU is found where the driver is old"),
    Situation("nccl_bug", ("image_with_nccl_works", "nccl_named"), "an image with another release of NCCL works"),
    Situation("env_var_misconfig", ("variable_inherited", f"slower_told|{HANG}"), "a variable from elsewhere is still set, and it is slow or hangs"),
    Situation("cuda_interposer_hang", ("gpu_sharing", "limit_taken_out"), "it works without the limit of the library that shares GPUs"),
    Situation("proxy_env", ("proxy_set", HANG), "a web proxy is set, and processes wait for each other"),
    Situation("foreign_connections", ("stranger_connects", f"crash_told|{HANG}"), "something else connects to the job's ports, and the job fails"),
    Situation("clock_skew", ("clock_off", f"machines_told|crash_told|{HANG}"), "the clocks of machines differ"),
    Situation("mtu_mismatch", ("mtu_unlike",), "interfaces have different MTUs", SUPPORTING),
    Situation("mtu_mismatch", ("mtu_unlike", f"{HANG}|slower_told|crash_told"), "interfaces have different MTUs, and traffic hangs or is slow"),
    Situation("driver_gsp_bug", ("smi_hangs", "only_reboot"), "nvidia-smi itself hangs until the machine is restarted", SUPPORTING),
    Situation("kernel_too_old", ("old_kernel_told", HANG), "it hangs under a kernel older than the 5.5 that accelerate asks for; weak evidence"),
    Situation("kernel_module_not_loaded", ("kernel_updated", "finds_no_gpu|smi_fails"), "the kernel was updated, and no GPU is found"),
    Situation("bar_not_assigned", ("above_4g", "card_missing"), "a setting for address space is named, and a card is not seen"),
    Situation("fabric_manager_down", ("switch_board", "smi_shows_all", "finds_no_gpu"), "nvidia-smi shows the GPUs of a board with NVSwitches, and CUDA none"),
)


def situations_described(facts: Facts) -> Iterator[Evidence]:
    """The strongest situation of each cause all of whose parts are told."""
    strongest: dict[str, Evidence] = {}
    for one in SITUATIONS:
        told = [_told(facts, part) for part in one.parts]
        if all(told) and (one.cause not in strongest or strongest[one.cause].weight < one.weight):
            lines = tuple(events[0] for events in told)
            strongest[one.cause] = Evidence(one.cause, one.weight, one.why, lines, one.id or "described-" + one.cause.replace("_", "-"))
    yield from strongest.values()
    if old := strongest.get("cuda_driver_too_old"):  # peer-to-peer fails only where GPUs are found
        yield Evidence("driver_p2p_bug", -SUPPORTING, old.why, old.events, old.id)


def _told(facts: Facts, part: str) -> Sequence[Event]:
    told = [event for name in part.split("|") for event in (hang_signs(facts) if name == HANG else facts.of(name)) if not event.quoted]
    return told if HANG in part.split("|") else [event for event in told if not event.supposed]


def work_is_longer_than_the_limit(facts: Facts) -> Iterator[Evidence]:
    """Somebody names a limit of time, and work that takes minutes or hours, that is short enough with less data, or whose bar stands at the usual limit."""
    limits = _plain(facts, "limit_told")
    work = [event for name in ("long_work_told", "small_data_works", "bar_at_limit") for event in _plain(facts, name)]
    if limits and work:
        why = "a part of the work takes longer than the limit that somebody names"
        yield Evidence("watchdog_timeout_too_short", STRONG + HINTING, why, (limits[0], work[0]), "work-longer-than-told-limit")
        yield Evidence("slow_rank_or_io", HINTING, why, (work[0],), "work-longer-than-told-limit")


def ranks_were_seen_in_different_calls(facts: Facts) -> Iterator[Evidence]:
    """Somebody who looked at the ranks names different calls for them."""
    seen = _plain(facts, "rank_in_call")
    calls = list(dict.fromkeys(call.strip(".") for event in seen for name in ("call", "second") if (call := event.fields[name])))
    if len(calls) > 1:
        yield Evidence("rank_desync_app", STRONG, f"ranks were seen in different calls: {', '.join(calls[:3])}", tuple(seen[:3]), "seen-in-different-calls")


def container_is_what_differs(facts: Facts) -> Iterator[Evidence]:
    """The job hangs or fails in a container and works outside, or with fewer processes or without loader workers: its shared memory is the usual difference."""
    outside = [event for event in facts.events if event.signature.id == "outside-container-works-reported" and not event.quoted]
    inside, less = [*_plain(facts, "container_fails"), *_plain(facts, "container")], [*_plain(facts, "no_workers_works"), *_plain(facts, "fewer_works")]
    if outside and (signs := hang_signs(facts)) and not facts.of("no_gpu"):
        yield Evidence("shm_too_small", SUPPORTING, "it works outside the container and hangs inside", (outside[0], signs[0]), "container-differs")
    if inside and less:
        why = "in a container it works with fewer processes, so what they share is too small"
        yield Evidence("shm_too_small", SUPPORTING + HINTING, why, (inside[0], less[0]), "container-with-fewer-processes")


def _plain(facts: Facts, name: str) -> Sequence[Event]:
    return [event for event in facts.of(name) if not event.quoted]
