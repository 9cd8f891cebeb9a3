"""Rules over the placement of a job: ranks that never started, tasks that see only one GPU, builds for which a rank still waits."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs, near_end
from unhang.jobs.diagnose.weights import WEIGHTS

DECISIVE, STRONG = WEIGHTS["decisive"], WEIGHTS["strong"]


def some_ranks_never_started(facts: Facts) -> Iterator[Evidence]:
    """Lightning prints each starting rank and the world size; if some never start and nothing follows, they were not launched."""
    members = facts.of("member")
    if not members or facts.of("training_step") or facts.timeouts or _steps_follow(facts, members[-1]):
        return
    started, wanted = {event.fields["rank"] for event in members}, max(int(event.fields["nranks"] or 0) for event in members)
    if len(started) < wanted and (near_end(facts, members[-1]) or hang_signs(facts)):
        why = f"{len(started)} of {wanted} ranks start, the others print nothing"
        weight = WEIGHTS["weak"] if len(started) == 1 and _log_ends_with(facts, members[-1]) else STRONG
        yield Evidence("launch_mismatch", weight, why, (members[-1],), "ranks-never-started")


def _steps_follow(facts: Facts, event: Event) -> bool:
    """Whether an epoch's progress bar moves after this line: then all ranks take part, and the others have logs of their own."""
    return any(one.file == event.file and one.line > event.line and "Epoch" in one.text and one.fields["done"] not in ("0", None) for one in facts.of("bar"))


def _log_ends_with(facts: Facts, event: Event) -> bool:
    """Whether no line follows and there is no sign of a hang: then the job may have just begun, or each rank has its own log."""
    last = facts.last.get(event.file, ())
    return bool(last) and last[-1][0] == event.line and not hang_signs(facts)


def one_gpu_per_task_and_no_ipc(facts: Facts) -> Iterator[Evidence]:
    """Each task sees its own GPU only, and ranks of a node cannot open each other's GPU memory."""
    refused = [event for event in (*facts.of("ipc_refused"), *facts.of("peer_refused")) if not event.quoted]
    single = facts.of("one_gpu_per_task")
    if refused and single:
        cause = "container_gpu_access" if facts.of("container") else "rank_device_mapping"
        why = "each task sees one GPU only, so ranks of a node cannot reach each other's memory"
        yield Evidence(cause, DECISIVE, why, (single[0], refused[0]), "one-gpu-per-task")
        yield Evidence("unsupported_p2p_geforce", -STRONG, why, (single[0],), "one-gpu-per-task")


def one_gpu_per_task_and_shared_memory(facts: Facts) -> Iterator[Evidence]:
    """Each task sees its own GPU only, so NCCL uses host memory between GPUs of a node that have NVLink or peer access."""
    single, detour = facts.of("one_gpu_per_task"), [event for event in facts.of("transport") if " via SHM" in event.text]
    if single and detour and not any(" via P2P" in event.text for event in facts.of("transport")):
        why = "each task sees one GPU only, so ranks of a node go through host memory"
        yield Evidence("container_gpu_access", STRONG, why, (single[0], detour[0]), "one-gpu-per-task-shm")


def geforce_and_gpudirect(facts: Facts) -> Iterator[Evidence]:
    """GeForce cards have no GPUDirect RDMA: their memory cannot be registered with an adapter, with any module."""
    refused = [event for event in facts.events if event.signature.id == "nccl-ib-registration-bad-address" and not event.quoted]
    if refused and facts.of("geforce"):
        why = "a GeForce card does not support GPUDirect RDMA, and the job tries to register its memory"
        yield Evidence("unsupported_p2p_geforce", DECISIVE, why, (refused[0], facts.of("geforce")[0]), "geforce-gpudirect")


def guessed_gpu_and_another_communicator(facts: Facts) -> Iterator[Evidence]:
    """PyTorch guessed the GPU of a rank, and then one rank sets up a communicator while another waits in an existing one: they use different GPUs."""
    guesses = [event for event in facts.events if event.signature.id == "torch-barrier-device-unknown"]
    waits = [event for event in facts.of("store_timeout") if not event.quoted and "setting up NCCL communicator" in event.text]
    elsewhere = [one for one in facts.timeouts if waits and one.rank is not None and one.rank != waits[0].prefix.rank]
    if guesses and elsewhere:
        why = f"a rank sets up a communicator of its own while rank {elsewhere[0].rank} waits in another, and PyTorch had guessed the GPU"
        yield Evidence("rank_device_mapping", STRONG, why, (guesses[0], waits[0], elsewhere[0].event), "guessed-gpu")
        yield Evidence("watchdog_timeout_too_short", -WEIGHTS["supporting"], why, (waits[0],), "guessed-gpu")


def process_changed_its_gpu(facts: Facts) -> Iterator[Evidence]:
    """A process built a communicator on one GPU and, as the same rank, the next one on another: the first GPU was guessed, usually from the rank."""
    for before, after in (*_other_gpu_of_a_rank(facts), *_other_gpu_of_a_process(facts)):
        why = f"process {before.prefix.pid} used GPU {_gpu(before)} in one communicator and uses GPU {_gpu(after)} in the next"
        yield Evidence("rank_device_mapping", STRONG, why, (before, after), "process-changed-gpu")
        return


def _gpu(event: Event) -> str | None:
    return event.fields.get("gpu") or event.fields.get("bus")


def _other_gpu_of_a_rank(facts: Facts) -> Iterator[tuple[Event, Event]]:
    """Two lines of one rank of one process, in communicators of the same size, with different GPUs."""
    seen: dict[tuple, Event] = {}
    for event in facts.of("init_complete"):
        if event.prefix.pid and event.fields.get("bus"):
            key = (event.file, event.prefix.host, event.prefix.pid, event.fields["rank"], event.fields["nranks"])
            if seen.setdefault(key, event).fields["bus"] != event.fields["bus"]:
                yield seen[key], event


def _other_gpu_of_a_process(facts: Facts) -> Iterator[tuple[Event, Event]]:
    """A process of one GPU, and a line of its next communicator, which may not be complete, on another GPU."""
    gpus: dict[tuple, dict[str, Event]] = {}
    for event in facts.of("init_complete"):
        if event.prefix.pid and event.fields.get("gpu"):
            gpus.setdefault((event.file, event.prefix.host, event.prefix.pid), {}).setdefault(event.fields["gpu"] or "", event)
    for event in facts.of("rank_graph"):
        used = gpus.get((event.file, event.prefix.host, event.prefix.pid), {})
        before = next(iter(used.values())) if len(used) == 1 else None  # a process of several GPUs has several ranks
        if before is not None and before.line < event.line and before.fields["gpu"] != event.fields["gpu"]:
            yield before, event


def one_job_for_each_machine(facts: Facts) -> Iterator[Evidence]:
    """The launch is for several machines, and DeepSpeed's launcher starts a job of its own host: each machine has a first rank, and none meets the others."""
    alone = [event for event in facts.of("local_only") if not event.quoted]
    wanted, told = facts.of("machines_of_launch"), [event for event in facts.of("several_nodes") if not event.quoted]
    if alone and (wanted or told):
        why = "the job is for several machines, and DeepSpeed's launcher finds no hostfile and starts a job of one host"
        yield Evidence("launch_mismatch", STRONG + 1 if wanted else WEIGHTS["supporting"], why, ((*wanted, *told)[0], alone[0]), "one-job-for-each-machine")
        if wanted:
            why = "the first rank of each machine opens the same port"
            yield Evidence("port_in_use", -WEIGHTS["supporting"], why, (alone[0],), "one-job-for-each-machine")


def one_rank_waits_for_a_build(facts: Facts) -> Iterator[Evidence]:
    """More ranks looked for an extension than loaded it: the others wait for a lock."""
    asked = [event for event in facts.of("build_start") if "extensions root" in event.text]
    loaded = [event for event in facts.of("build_done") if event.text.startswith("Loading extension module")]
    modules = {event.fields.get("module") for event in loaded}
    if len(asked) > 1 and len(modules) == 1 and 0 < len(loaded) < len(asked) and (near_end(facts, loaded[-1]) or hang_signs(facts)):
        why = f"{len(asked)} processes looked for the extension and {len(loaded)} loaded it"
        yield Evidence("fused_kernel_build", STRONG, why, (asked[-1], loaded[-1]), "one-rank-waits-for-a-build")
