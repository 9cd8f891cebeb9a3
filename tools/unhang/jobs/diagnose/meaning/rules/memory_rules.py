"""Rules over memory: who holds that of a GPU, and whom the kernel killed for that of a host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.evidence import DECISIVE, STRONG, SUPPORTING, Evidence, weighed
from unhang.jobs.diagnose.meaning.signs import hang_signs

_WANTED = re.compile(r"Tried to allocate (?P<size>\d{1,5}(?:\.\d{1,2})?) (?P<unit>[KMG]iB)")
# who holds the rest
_NAMED = re.compile(r"\bProcess \d{1,10} has (?P<size>\d{1,4}(?:\.\d{1,2})?) (?P<unit>[MG]iB)")
GIB = {"bytes": 2.0**-30, "KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0}
OWN_CONTEXT_GIB = 1.5  # CUDA's context and libraries, which PyTorch 1.x does not count as its own
SMALL_PART_GIB = 3.0  # GiB; smaller shares may be equal by accident, and do not fill a GPU
LARGE_PART = 0.15  # of a GPU
MOST_BY_OTHERS = 0.6  # of a GPU
SMALL_SHARE = 0.2  # of a GPU
_MAY_BE_A_RANK = re.compile(r"python|pt_|torchrun")  # the kernel's name of a process
ALIKE = 0.1  # processes whose memory differs by less have loaded the same thing


def memory_held_by_others(facts: Facts) -> Iterator[Evidence]:
    """PyTorch prints a GPU's total and free memory and that of this process; other processes hold
    the rest.

    Decides diagnose_batches/4/239, diagnose_batches/7/027, diagnose_batches/13/e36.
    """
    held = [
        (event, others)
        for event in facts.of("oom_budget")
        if (others := _held_by_others_gib(event)) is not None
    ]
    if not held:
        return
    event, others = max(held, key=lambda one: one[1])
    why = (
        f"{others:.1f} GiB of GPU {event.fields['gpu'] or '(no number)'} are held by other"
        " processes"
    )
    loaded, several = facts.of("resumed"), facts.of("several_local_ranks")
    total, cause = _gib(event, "total"), "orphan_processes_hold_gpu"
    lines: tuple[Event, ...] = (event,)
    if several and {one.fields["gpu"] for one, _ in held} == {"0"}:
        why += ", and the job has several ranks on this host"
        why += ", which load a checkpoint" * bool(loaded)
        cause, lines = "rank_device_mapping", (event, *loaded[:1], *several[:1])
        weight, against = (DECISIVE, STRONG + 1) if loaded else (STRONG, SUPPORTING)
    elif (
        others > MOST_BY_OTHERS * total
        and _own_gib(event) < SMALL_SHARE * total
        and _gib_in(_WANTED, event) < others
    ):
        why += ", and little by the one that failed"
        weight, against = STRONG + 1, DECISIVE
    else:
        is_named = _gib_in(_NAMED, event) > LARGE_PART * total
        weight, against = STRONG + is_named, STRONG if is_named else SUPPORTING
    yield Evidence(cause, weight, why, lines, "memory-held-by-others")
    yield Evidence("oom", -against, why, (event,), "memory-held-by-others")


def _held_by_others_gib(event: Event) -> float | None:
    """The memory that is neither free nor this process's; None if it is not a large part."""
    total, free, own = _gib(event, "total"), _gib(event, "free"), _own_gib(event)
    others = total - free - own - OWN_CONTEXT_GIB
    return others if others > LARGE_PART * total else None


def _gib_in(pattern: re.Pattern[str], event: Event) -> float:
    """All sizes that a line names in such words; 0 if it has none."""
    return sum(float(one["size"]) * GIB[one["unit"]] for one in pattern.finditer(event.text))


def _own_gib(event: Event) -> float:
    # spare: reserved and not allocated, where the message names it by itself
    return _gib(event, "own") + _gib(event, "spare")


def _gib(event: Event, name: str) -> float:
    return float(event.fields.get(name) or 0) * GIB[event.fields.get(f"{name}_unit") or "GiB"]


def processes_hold_equal_parts(facts: Facts) -> Iterator[Evidence]:
    """Two processes hold equal parts of the full GPU: ranks of one job that all use it.

    Decides diagnose_batches/8/020, diagnose_batches/16/h45.
    """
    for event in facts.of("oom_other_process"):
        other, own = event.decimal("other"), event.decimal("own")
        if own > OWN_CONTEXT_GIB and abs(other - own) < ALIKE * own:
            why = (
                f"two processes hold equal parts of the GPU ({other:g} and {own:g} GiB), as ranks"
                " that took the same GPU do"
            )
            weight, against = (
                (SUPPORTING, SUPPORTING) if own < SMALL_PART_GIB else (DECISIVE, STRONG)
            )
            weights = {"rank_device_mapping": weight, "oom": -against}
            weights["orphan_processes_hold_gpu"] = -against
            yield from weighed(weights, why, (event,), "equal-parts-of-one-gpu")
            return


def ranks_share_a_gpu(facts: Facts) -> Iterator[Evidence]:
    """Two ranks in two processes have the same bus id on one host; in the same communicator, if its
    id is known.

    Decides diagnose/rank_device_mapping/same-bus.
    """
    for (host, bus, *_), by_pid in _members(facts, "host", "bus", "comm", "nranks", of="pid"):
        if len({event.fields["rank"] for event in by_pid.values()}) > 1:
            yield Evidence(
                "rank_device_mapping",
                STRONG + 1,
                f"{len(by_pid)} processes build a communicator on GPU {bus} of {host}",
                tuple(by_pid.values())[:4],
                "same-bus-id",
            )
            return


def _members(facts: Facts, *by: str, of: str) -> Iterator[tuple[tuple, dict[str, Event]]]:
    """Of NCCL's lines of members of communicators that are alike in `by` and several in `of`:
    (values, {value of `of`: its first line})."""
    found: dict[tuple, dict[str, Event]] = {}
    for event in facts.set_up:
        part = {**event.fields, "host": event.prefix.host, "pid": event.prefix.pid}
        if part["pid"] and part.get("bus"):
            key = tuple(map(part.get, by))
            found.setdefault(key, {}).setdefault(str(part[of]), event)
    yield from (one for one in found.items() if len(one[1]) > 1)


def rank_changes_its_gpu(facts: Facts) -> Iterator[Evidence]:
    """torch warns that it chose the GPU of a barrier, a rank then builds a communicator of the same
    ranks on another GPU, and no step follows: the barrier took a GPU that is not the rank's own.

    Decides diagnose_batches/3/045.
    """
    if (
        not facts.has("torch-barrier-device-unknown")
        or facts.of("training_step")
        or facts.of("healthy_end")
    ):
        return
    for (host, rank, *_), by_gpu in _members(facts, "host", "rank", "pid", "nranks", of="bus"):
        why = f"rank {rank} on {host} builds communicators on GPUs {' and '.join([*by_gpu][:2])}"
        lines = tuple(by_gpu.values())[:2]
        yield Evidence("rank_device_mapping", STRONG, why, lines, "rank-changes-gpu")
        return


def all_processes_hold_one_gpu(facts: Facts) -> Iterator[Evidence]:
    """Several ranks hang or fail, and all processes use memory of the same GPU: none had chosen its
    own.

    Decides diagnose_batches/9/016, diagnose_batches/12/c10.
    """
    rows = facts.of("compute_app")
    pids = {event.fields["pid"] or event.fields["pid2"] for event in rows}
    gpus = {event.fields["bus"] or event.fields["bus2"] for event in rows}
    if (
        len(pids) > 1
        and len(gpus) == 1
        and (facts.world_size or 2) > 1
        and (hang_signs(facts) or facts.first_error)
    ):
        why = f"{len(pids)} processes hold GPU {next(iter(gpus))}, and none holds another one"
        yield Evidence("rank_device_mapping", STRONG, why, tuple(rows[:2]), "all-on-one-gpu")


def killed_for_memory_is_no_rank(facts: Facts) -> Iterator[Evidence]:
    """The kernel killed processes whose numbers and names are no rank's, and nothing but its lines
    reports a failure. A container's numbers are not the kernel's, so that the name must be foreign
    too. Whether the job went on is not known: clocks of logs differ.

    Keeps silent: diagnose_odd_ones/tables/memory-of-a-stranger.
    """
    killed = [one for one in facts.has("kernel-oom-kill") if one.fields.get("task")]
    ranks = {pid for _, pid in facts.rank_of_process}
    of_kernel = {one.file for one in killed}
    if (
        killed
        and ranks
        and facts.of("training_step")
        and not hang_signs(facts)
        and not any(
            one.fields["pid"] in ranks or _MAY_BE_A_RANK.search(one.fields["task"] or "")
            for one in killed
        )
        and all(one.file in of_kernel and "oom" in one.signature.for_ for one in facts.faults)
    ):
        why = f"{killed[0].fields['task']} is no rank of the job, whose lines report no failure"
        yield Evidence("oom", -DECISIVE, why, (killed[0],), "killed-is-no-rank")
