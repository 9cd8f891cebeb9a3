"""Rules over several facts about memory: of a GPU, of which other processes hold a part, and of /dev/shm, which dead processes fill."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.facts import Facts
from unhang.diagnose.scanning import Event
from unhang.diagnose.weights import WEIGHTS

DECISIVE, STRONG, SUPPORTING = WEIGHTS["decisive"], WEIGHTS["strong"], WEIGHTS["supporting"]
GIB = {"bytes": 2.0**-30, "KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0}
OWN_CONTEXT_GIB = 1.5  # CUDA's context and libraries, which PyTorch 1.x does not count as its own
SMALL_PART_GIB = 3.0  # any two small models are as alike as that, and do not fill a GPU
LARGE_PART = 0.15  # of a GPU
MOST_OF_A_GPU = 0.8
UNKNOWN_PART = 0.1  # of a GPU, which may be held by nobody that the error names
MANY_SEGMENTS = 4
LARGE_SHM_GIB = 8.0
FULL = 95  # per cent
ALIKE = 0.1  # processes whose shares of a GPU differ by less hold the same thing


def memory_held_by_others(facts: Facts) -> Iterator[Evidence]:
    """PyTorch says what a GPU has, what is free and what this process holds; the rest is held by others."""
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
    else:
        yield Evidence("orphan_processes_hold_gpu", STRONG, why, (event,), "memory-held-by-others")
        yield Evidence("oom", -SUPPORTING, why, (event,), "memory-held-by-others")


def memory_is_the_own_of_one_process(facts: Facts) -> Iterator[Evidence]:
    """What ran out is told by the error, who took it only by its numbers: here the process that failed holds nearly all of the GPU itself."""
    own = [event for event in facts.of("oom_budget") if _gib(event, "own") > MOST_OF_A_GPU * _gib(event, "total") and _is_accounted_for(event)]
    if own:
        why = f"the process that failed holds {_gib(own[0], 'own'):.1f} of {_gib(own[0], 'total'):.1f} GiB of the GPU itself"
        yield Evidence("oom", DECISIVE, why, (own[0],), "memory-is-its-own")


def _is_accounted_for(event: Event) -> bool:
    """Whether what is neither free nor this process's is little more than its own context: contexts of other processes show by their sum."""
    total, free, own = (_gib(event, name) for name in ("total", "free", "own"))
    return total - free - own - OWN_CONTEXT_GIB <= UNKNOWN_PART * total


def _held_by_others_gib(event: Event) -> float | None:
    """What is neither free nor this process's; None where it is no large part."""
    total, free, own = (_gib(event, name) for name in ("total", "free", "own"))
    others = total - free - own - OWN_CONTEXT_GIB
    return others if others > LARGE_PART * total else None


def _gib(event: Event, name: str) -> float:
    return float(event.fields[name] or 0) * GIB[event.fields[f"{name}_unit"] or "GiB"]


def processes_hold_equal_parts(facts: Facts) -> Iterator[Evidence]:
    """Another process holds as much of the full GPU as this one: ranks of one job that all took it."""
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
    """Shared memory is full of segments of several starts: its size is not what is wrong."""
    full = [event for event in facts.of("shm") if int(event.fields["percent"] or 0) >= 95]
    listed = facts.of("shm_file")
    starts = {event.fields["when"] for event in listed}
    if full and len(listed) >= MANY_SEGMENTS and len(starts) > 1:
        why = f"shared memory of {full[0].fields['size']} is full of segments of {len(starts)} starts"
        yield Evidence("shm_leftovers", DECISIVE + SUPPORTING, why, (full[0], *listed[:1], listed[-1]), "segments-of-dead-processes")
        yield Evidence("shm_too_small", -DECISIVE, why, (full[0],), "segments-of-dead-processes")


def large_shared_memory_is_full(facts: Facts) -> Iterator[Evidence]:
    """Shared memory is full although it is large: one job does not fill it, segments of earlier ones do, and its size is not sure to be the fault."""
    for event in facts.of("shm"):
        size = (event.fields["size"] or "").strip()
        number = size[:-1]
        is_large = number.replace(".", "", 1).isdigit() and (size[-1] == "T" or (size[-1] == "G" and float(number) >= LARGE_SHM_GIB))
        if is_large and int(event.fields["percent"] or 0) >= FULL:
            why = f"shared memory of {size} is full, as segments of dead processes fill it"
            yield Evidence("shm_leftovers", STRONG, why, (event,), "large-shm-full")
            yield Evidence("shm_too_small", -STRONG, why, (event,), "large-shm-full")
            return
