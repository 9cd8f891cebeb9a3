"""Rules over memory: GPU memory that other processes hold, and /dev/shm filled by processes that have ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.weights import WEIGHTS

DECISIVE, STRONG, SUPPORTING = WEIGHTS["decisive"], WEIGHTS["strong"], WEIGHTS["supporting"]
_WANTED = re.compile(r"Tried to allocate (?P<size>\d{1,5}(?:\.\d{1,2})?) (?P<unit>[KMG]iB)")
GIB = {"bytes": 2.0**-30, "KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0}
OWN_CONTEXT_GIB = 1.5  # CUDA's context and libraries, which PyTorch 1.x does not count as its own
SMALL_PART_GIB = 3.0  # GiB; smaller shares may be equal by accident, and do not fill a GPU
LARGE_PART = 0.15  # of a GPU
MOST_OF_A_GPU = 0.8
MOST_BY_OTHERS = 0.6  # of a GPU
SMALL_SHARE = 0.2  # of a GPU
UNKNOWN_PART = 0.1  # share of a GPU that may be unaccounted for in the error
MANY_SEGMENTS = 4
LARGE_SHM_GIB = 8.0
FULL = 95  # per cent
ALIKE = 0.1  # processes whose memory differs by less have loaded the same thing


def memory_held_by_others(facts: Facts) -> Iterator[Evidence]:
    """PyTorch prints a GPU's total and free memory and that of this process; other processes hold the rest."""
    held = [(event, others) for event in facts.of("oom_budget") if (others := _held_by_others_gib(event)) is not None]
    if not held:
        return
    event, others = max(held, key=lambda one: one[1])
    why = f"{others:.1f} GiB of GPU {event.fields['gpu']} are held by other processes"
    loaded = facts.of("resumed")
    if facts.of("several_local_ranks") and {one.fields["gpu"] for one, _ in held} == {"0"}:
        weight = DECISIVE if loaded else STRONG
        reason = f"{why}, and the job has several ranks on this host" + (", which load a checkpoint" if loaded else "")
        yield Evidence("rank_device_mapping", weight, reason, (event, *loaded[:1], *facts.of("several_local_ranks")[:1]), "memory-held-by-others")
        yield Evidence("oom", -(STRONG + 1 if loaded else SUPPORTING), reason, (event,), "memory-held-by-others")
    elif others > MOST_BY_OTHERS * _gib(event, "total") and _gib(event, "own") < SMALL_SHARE * _gib(event, "total") and _wanted_gib(event) < others:
        yield Evidence("orphan_processes_hold_gpu", STRONG + 1, f"{why}, and little by the one that failed", (event,), "memory-held-by-others")
        yield Evidence("oom", -STRONG, why, (event,), "memory-held-by-others")
    else:
        yield Evidence("orphan_processes_hold_gpu", STRONG, why, (event,), "memory-held-by-others")
        yield Evidence("oom", -SUPPORTING, why, (event,), "memory-held-by-others")


def memory_is_the_own_of_one_process(facts: Facts) -> Iterator[Evidence]:
    """By the numbers of the error, the failed process itself holds nearly all of the GPU's memory."""
    own = [event for event in facts.of("oom_budget") if _gib(event, "own") > MOST_OF_A_GPU * _gib(event, "total") and _is_accounted_for(event)]
    if own:
        why = f"the process that failed holds {_gib(own[0], 'own'):.1f} of {_gib(own[0], 'total'):.1f} GiB of the GPU itself"
        yield Evidence("oom", DECISIVE, why, (own[0],), "memory-is-its-own")


def _is_accounted_for(event: Event) -> bool:
    """Whether the memory that is neither free nor this process's is little more than its own context; contexts of other processes would add up to more."""
    total, free, own = (_gib(event, name) for name in ("total", "free", "own"))
    return total - free - own - OWN_CONTEXT_GIB <= UNKNOWN_PART * total


def _held_by_others_gib(event: Event) -> float | None:
    """The memory that is neither free nor this process's; None if it is not a large part."""
    total, free, own = (_gib(event, name) for name in ("total", "free", "own"))
    others = total - free - own - OWN_CONTEXT_GIB
    return others if others > LARGE_PART * total else None


def _wanted_gib(event: Event) -> float:
    """What the failed allocation had asked for; 0 if the line does not say so."""
    asked = _WANTED.search(event.text)
    return float(asked["size"]) * GIB[asked["unit"]] if asked else 0.0


def _gib(event: Event, name: str) -> float:
    return float(event.fields[name] or 0) * GIB[event.fields[f"{name}_unit"] or "GiB"]


def processes_hold_equal_parts(facts: Facts) -> Iterator[Evidence]:
    """Another process holds as much of the full GPU as this one: ranks of one job that all use it."""
    for event in facts.of("oom_other_process"):
        other, own = float(event.fields["other"] or 0), float(event.fields["own"] or 0)
        if own > OWN_CONTEXT_GIB and abs(other - own) < ALIKE * own:
            why = f"another process holds as much of the GPU as this one ({other:g} and {own:g} GiB), as ranks that took the same GPU do"
            small = own < SMALL_PART_GIB
            yield Evidence("rank_device_mapping", SUPPORTING if small else DECISIVE, why, (event,), "equal-parts-of-one-gpu")
            for cause in ("oom", "orphan_processes_hold_gpu"):
                yield Evidence(cause, -SUPPORTING if small else -STRONG, why, (event,), "equal-parts-of-one-gpu")
            return


def segments_of_dead_processes(facts: Facts) -> Iterator[Evidence]:
    """Shared memory is full of segments of several starts, so its size is not the fault."""
    full = [event for event in facts.of("shm") if int(event.fields["percent"] or 0) >= 95]
    listed = facts.of("shm_file")
    starts = {event.fields["when"] for event in listed}
    if full and len(listed) >= MANY_SEGMENTS and len(starts) > 1:
        why = f"shared memory of {full[0].fields['size']} is full of segments of {len(starts)} starts"
        yield Evidence("shm_leftovers", DECISIVE + SUPPORTING, why, (full[0], *listed[:1], listed[-1]), "segments-of-dead-processes")
        yield Evidence("shm_too_small", -DECISIVE, why, (full[0],), "segments-of-dead-processes")


def large_shared_memory_is_full(facts: Facts) -> Iterator[Evidence]:
    """Shared memory is full although it is large: one job does not fill it, but segments of earlier jobs may, so its size may not be the fault. That is
    clear where the container was started again, or the segments are counted."""
    for event in facts.of("shm"):
        size = (event.fields["size"] or "").strip()
        number = size[:-1]
        is_large = number.replace(".", "", 1).isdigit() and (size[-1] == "T" or (size[-1] == "G" and float(number) >= LARGE_SHM_GIB))
        if is_large and int(event.fields["percent"] or 0) >= FULL:
            why = f"shared memory of {size} is full, as segments of dead processes fill it"
            shown = (*facts.of("shm_counted")[:1], *facts.of("restarted")[:1])
            more = DECISIVE if shown else 0.0
            yield Evidence("shm_leftovers", STRONG + more, why, (event, *shown), "large-shm-full")
            yield Evidence("shm_too_small", -STRONG - more, why, (event,), "large-shm-full")
            yield Evidence("disk_full", -STRONG, why, (event,), "large-shm-full")
            return


def full_and_no_process_listed(facts: Facts) -> Iterator[Evidence]:
    """After an allocation failed nvidia-smi shows a full GPU and no process on it: one in another container, or without a name, holds the memory."""
    full = [event for event in facts.of("gpu_load") if int(event.fields["used"] or 0) > MOST_OF_A_GPU * int(event.fields["total"] or 1)]
    failed = [event for event in facts.events if event.signature.id == "cuda-out-of-memory" and not event.quoted]
    empty = [event for event in facts.of("no_gpu_process") if failed and event.file == failed[0].file and event.line > failed[0].line]
    if full and empty:
        why = f"{full[0].fields['used']} of {full[0].fields['total']} MiB are in use after the job had failed, and no process is listed"
        yield Evidence("orphan_processes_hold_gpu", STRONG + 1, why, (full[0], empty[0]), "full-and-no-process")
        yield Evidence("oom", -STRONG, why, (empty[0],), "full-and-no-process")


def held_by_a_process_that_is_not_listed(facts: Facts) -> Iterator[Evidence]:
    """nvidia-smi shows used memory and no process, and fuser finds one on the GPU's device file: it runs in another container, or its job has ended."""
    shown = (*facts.of("gpu_load"), *facts.of("gpu_memory"))
    used = [event for event in shown if int(event.fields["used"] or 0) > SMALL_PART_GIB * 1024]
    for event in facts.of("gpu_device_holder"):
        empty = [one for one in facts.of("no_gpu_process") if one.file == event.file]
        if used and empty:
            why = f"{used[0].fields['used']} MiB are in use, nvidia-smi lists no process, and {event.fields['pid']} has the GPU open"
            yield Evidence("orphan_processes_hold_gpu", STRONG + 1, why, (used[0], empty[0], event), "held-and-not-listed")
            yield Evidence("oom", 1 - STRONG, why, (event,), "held-and-not-listed")
            return


def memory_is_its_own_by_number(facts: Facts) -> Iterator[Evidence]:
    """In a container PyTorch names even itself by number; what its allocator holds shows that the process with most of the GPU is itself."""
    for event in facts.of("oom_own_number"):
        held, own = float(event.fields["held"] or 0), float(event.fields["own"] or 0)
        if own > held / 2:
            why = f"the process that failed holds {own:g} of the {held:g} GiB itself"
            yield Evidence("oom", DECISIVE, why, (event,), "own-memory-by-number")
            yield Evidence("orphan_processes_hold_gpu", -STRONG, why, (event,), "own-memory-by-number")
            return


def nameless_process_holds_the_gpu(facts: Facts) -> Iterator[Evidence]:
    """An allocation failed, and nvidia-smi lists a process with much memory and no name: one of another container, or one that has ended."""
    held = [event for event in facts.of("nameless_gpu_process") if int(event.fields["mib"] or 0) > SMALL_PART_GIB * 1024]
    failed = [event for event in facts.events if event.signature.id == "cuda-out-of-memory" and not event.quoted]
    if held and failed:
        why = f"a process without a name holds {held[0].fields['mib']} MiB of a GPU"
        yield Evidence("orphan_processes_hold_gpu", STRONG + 1, why, (held[0], failed[0]), "nameless-process-holds")
        yield Evidence("oom", -STRONG, why, (held[0],), "nameless-process-holds")


def worker_without_parent_holds_a_gpu(facts: Facts) -> Iterator[Evidence]:
    """A worker whose parent has ended holds memory of a GPU. The listing of GPUs is of the same host, so process 1 is not a container's own program."""
    holding = {event.fields["pid"] for name in ("app_pid", "compute_app", "gpu_process") for event in facts.of(name) if not event.quoted}
    left = [event for event in facts.of("parentless_worker") if event.fields["pid"] in holding and not event.quoted]
    if left:
        why = f"process {left[0].fields['pid']} outlived the process that started it and holds memory of a GPU"
        yield Evidence("orphan_processes_hold_gpu", STRONG, why, (left[0],), "parentless-worker-holds")


def little_is_free_at_the_start(facts: Facts) -> Iterator[Evidence]:
    """A server reads how much of its GPU is free before it has allocated anything: others hold the rest, above all if nvidia-smi lists them."""
    listed = [event for name in ("app_memory", "gpu_process") for event in facts.of(name) if int(event.fields["used"] or 0) > SMALL_PART_GIB * 1024]
    for event in facts.of("free_at_start"):
        free, total = float(event.fields["free"] or 0), float(event.fields["total"] or 0)
        if total - free > max(LARGE_PART * total, SMALL_PART_GIB):
            why = f"{total - free:.1f} of {total:g} GiB of the GPU were in use before the server had allocated anything"
            yield Evidence("orphan_processes_hold_gpu", STRONG if listed else SUPPORTING, why, (event, *listed[:2]), "little-free-at-start")
            if listed:
                yield Evidence("oom", -SUPPORTING, why, (listed[0],), "little-free-at-start")
            return


def container_has_the_default_of_shm(facts: Facts) -> Iterator[Evidence]:
    """A system call of NCCL failed without a reason, in a container that was started with 64 MB of /dev/shm."""
    started = [event for event in facts.of("docker_without_shm") if not event.quoted]
    failed = [event for event in facts.events if event.signature.id == "nccl-unhandled-error" and "system" in event.text.lower() and not event.quoted]
    if started and failed:
        why = "the container was started without --shm-size and --ipc, and a system call of NCCL failed"
        yield Evidence("shm_too_small", SUPPORTING + 0.5, why, (started[0], failed[0]), "docker-without-shm")


def requests_of_a_scan_fill_the_memory(facts: Facts) -> Iterator[Evidence]:
    """Somebody says that a scan of ports runs at that time, and a process asks for more memory than a host has: a store reads the scan's bytes as a length."""
    told = facts.of("scan_told")
    short = [event for event in facts.events if event.signature.id in ("host-allocation-failed", "kernel-oom-kill") and not event.quoted]
    if told and short:
        why = "a process runs out of memory when a scan of ports runs, whose bytes a store reads as a length"
        yield Evidence("foreign_connections", STRONG, why, (told[0], short[0]), "scan-fills-the-memory")
        yield Evidence("oom", -DECISIVE, why, (short[0],), "scan-fills-the-memory")
