"""Rules over the placement of a job: ranks that never started, tasks that see only one GPU, builds for which a rank still waits."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.log_facts import Facts
from unhang.diagnose.matching.scanning import Event
from unhang.diagnose.rules.signs import hang_signs, near_end
from unhang.diagnose.weights import WEIGHTS

DECISIVE, STRONG = WEIGHTS["decisive"], WEIGHTS["strong"]


def some_ranks_never_started(facts: Facts) -> Iterator[Evidence]:
    """Lightning prints each starting rank and the world size; if some never start and nothing follows, they were not launched."""
    members = facts.of("member")
    if not members or facts.of("training_step") or facts.timeouts:
        return
    started, wanted = {event.fields["rank"] for event in members}, max(int(event.fields["nranks"] or 0) for event in members)
    if len(started) < wanted and (near_end(facts, members[-1]) or hang_signs(facts)):
        why = f"{len(started)} of {wanted} ranks start, the others print nothing"
        weight = WEIGHTS["weak"] if len(started) == 1 and _log_ends_with(facts, members[-1]) else STRONG
        yield Evidence("launch_mismatch", weight, why, (members[-1],), "ranks-never-started")


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
    """A process with one rank built a communicator on one GPU and sets up the next one on another: the first was guessed, usually from the rank."""
    first: dict[tuple[str | None, str], Event] = {}
    several = set()
    for event in facts.of("init_complete"):
        if event.prefix.pid and event.fields.get("gpu"):
            key = (event.prefix.host, event.prefix.pid)
            if first.setdefault(key, event).fields["gpu"] != event.fields["gpu"]:
                several.add(key)  # one process drives several GPUs, or changed later
    for event in facts.of("rank_graph"):
        key = (event.prefix.host, event.prefix.pid or "")
        before = first.get(key)
        if before is not None and key not in several and before.file == event.file and before.line < event.line and before.fields["gpu"] != event.fields["gpu"]:
            why = f"process {key[1]} used GPU {before.fields['gpu']} in one communicator and uses GPU {event.fields['gpu']} in the next"
            yield Evidence("rank_device_mapping", STRONG, why, (before, event), "process-changed-gpu")
            return


def one_job_for_each_machine(facts: Facts) -> Iterator[Evidence]:
    """The launch names several machines, and DeepSpeed's launcher starts a job of its own host: each machine has a first rank, and none meets the others."""
    wanted, alone = facts.of("machines_of_launch"), [event for event in facts.of("local_only") if not event.quoted]
    if wanted and alone:
        why = f"the launch names {wanted[0].fields['value']} machines, and DeepSpeed's launcher, without a hostfile, starts a job of one host"
        yield Evidence("launch_mismatch", STRONG + 1, why, (wanted[0], alone[0]), "one-job-for-each-machine")
        yield Evidence("port_in_use", -WEIGHTS["supporting"], "the first rank of each machine opens the same port", (alone[0],), "one-job-for-each-machine")


def one_rank_waits_for_a_build(facts: Facts) -> Iterator[Evidence]:
    """More ranks looked for an extension than loaded it: the others wait for a lock."""
    asked = [event for event in facts.of("build_start") if "extensions root" in event.text]
    loaded = [event for event in facts.of("build_done") if event.text.startswith("Loading extension module")]
    modules = {event.fields.get("module") for event in loaded}
    if len(asked) > 1 and len(modules) == 1 and 0 < len(loaded) < len(asked) and (near_end(facts, loaded[-1]) or hang_signs(facts)):
        why = f"{len(asked)} processes looked for the extension and {len(loaded)} loaded it"
        yield Evidence("fused_kernel_build", STRONG, why, (asked[-1], loaded[-1]), "one-rank-waits-for-a-build")
