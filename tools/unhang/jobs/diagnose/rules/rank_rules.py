"""Rules over ranks and their work: collectives that differ, shared GPUs, builds and data work that did not end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts, Timeout
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.failures import first_failure, killed_first
from unhang.jobs.diagnose.rules.signs import hang_signs, near_end
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]
BRANCH_LINES = 6
NEAR_LINES = 15  # lines; single-rank work at most this many lines before a timeout was still running
CLOCKS_DIFFER_S = 2.0  # seconds by which clocks of hosts may differ
START_UP_SEQ = 50  # a collective so early belongs to start-up
LATE_SEQ = 1000  # a collective so late does not belong to start-up
SERVERS = ("vllm", "vLLM", "sglang", "SGLang", "text-generation", "text_generation", "tensorrt_llm")
SAME_SIZE = ("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLGATHER")


def ranks_called_different_things(facts: Facts) -> Iterator[Evidence]:
    by_group: dict[str | None, list[Timeout]] = {}
    for one in _begun_before_the_first_gave_up(facts.timeouts):
        by_group.setdefault(one.group, []).append(one)
    for several in by_group.values():
        alike = _oldest_of_each_rank(several)
        events = tuple(one.event for one in alike[:6])
        ops = {one.op for one in alike}
        seqs = {one.seq for one in alike if one.seq is not None}
        if len(ops) > 1:
            yield Evidence(
                "rank_desync_app", STRONG + 1, f"ranks wait in different collectives: {', '.join(sorted(ops))}", events, "timeouts-differ-in-operation"
            )
        elif len(seqs) > 1:
            yield Evidence(
                "rank_desync_app", STRONG - 0.5, f"ranks wait at different sequence numbers: {min(seqs)} to {max(seqs)}", events, "timeouts-differ-in-sequence"
            )
        elif _sizes_differ(alike):
            yield Evidence("rank_desync_app", STRONG, "ranks wait in one collective with different sizes", events, "timeouts-differ-in-size")


def _sizes_differ(alike: Sequence[Timeout]) -> bool:
    """Whether a collective that needs the same size on all ranks has several, or some ranks take part in an exchange with nothing."""
    sizes = {one.numel for one in alike if one.numel is not None}
    exchanges = 0 in sizes and any(one.op.startswith("ALLTOALL") for one in alike)
    return len(sizes) > 1 and (exchanges or any(one.op in SAME_SIZE for one in alike))


def _begun_before_the_first_gave_up(timeouts: Sequence[Timeout]) -> list[Timeout]:
    """Without collectives that a rank entered after the timeout of others: it was late."""
    ends = [one.event.prefix.time_s for one in timeouts if one.event.prefix.time_s is not None]
    return [one for one in timeouts if one.event.prefix.time_s is None or one.event.prefix.time_s - one.ran_ms / 1000 <= min(ends) + CLOCKS_DIFFER_S]


def _oldest_of_each_rank(timeouts: Sequence[Timeout]) -> list[Timeout]:
    """The oldest collective of each rank: a rank whose watchdog reports many queued collectives waits in it."""
    kept: dict[int, Timeout] = {}
    nameless = [one for one in timeouts if one.rank is None]
    for one in timeouts:
        if one.rank is not None and (one.rank not in kept or (one.seq or 0) < (kept[one.rank].seq or 0)):
            kept[one.rank] = one
    return [*kept.values(), *nameless]


def recorders_differ(facts: Facts) -> Iterator[Evidence]:
    for group in (facts.flights or {}).get("groups", []):
        if group["calls"]:
            calls = "; ".join(f"{what}: ranks {', '.join(map(str, ranks[:8]))}" for what, ranks in list(group["calls"].items())[:4])
            yield Evidence(
                "rank_desync_app",
                WEIGHTS["decisive"],
                f"flight recorder: collective {group['seq']} of group {group['group']} differs: {calls}",
                (),
                "recorders-differ",
            )
        elif group["behind"]:
            behind = ", ".join(map(str, group["behind"][:16]))
            yield Evidence(
                "rank_desync_app",
                SUPPORTING + 1,
                f"flight recorder: ranks {behind} stopped before the others in group {group['group']}",
                (),
                "recorders-behind",
            )
            yield Evidence("slow_rank_or_io", SUPPORTING + 1, f"flight recorder: ranks {behind} did not get as far as the others", (), "recorders-behind")
        elif group["stuck"]:
            yield Evidence(
                "watchdog_timeout_too_short",
                SUPPORTING,
                f"flight recorder: every rank is in collective {group['seq']} and none has finished it",
                (),
                "recorders-stuck",
            )


def traces_differ(facts: Facts) -> Iterator[Evidence]:
    """NCCL's trace of calls differs between ranks. A rank that is behind matters only if the job hung, because the log of a running job can end anywhere."""
    hangs = bool(hang_signs(facts))
    for one in facts.calls:
        places = tuple({name: place[name] for name in ("file", "line", "text")} for place in (*one["behind"][:4], one))
        if one["calls"]:
            calls = "; ".join(f"{what}: ranks {', '.join(ranks[:8])}" for what, ranks in list(one["calls"].items())[:4])
            why = f"NCCL's trace: call {one['number']} differs: {calls}"
            yield Evidence("rank_desync_app", STRONG + 1, why, (), "traces-differ", places=places[-1:])
        elif one["behind"] and hangs:
            behind = ", ".join(f"{rank['rank']} (at {rank['op']} {rank['number']})" for rank in one["behind"][:8])
            why = f"NCCL's trace: ranks {behind} did not call {one['op']} {one['number']} in which the others wait"
            for cause, weight in (("rank_desync_app", SUPPORTING + 1), ("slow_rank_or_io", SUPPORTING + 1), ("watchdog_timeout_too_short", -SUPPORTING)):
                yield Evidence(cause, weight, why, (), "traces-behind", places=places)


def ranks_share_a_gpu(facts: Facts) -> Iterator[Evidence]:
    """Two ranks in two processes have the same bus id on one host; in the same communicator, if its id is known."""
    seen: dict[tuple, dict[str, Event]] = {}
    for name in ("init_start", "init_complete"):
        for event in facts.of(name):
            if event.prefix.host and event.prefix.pid and event.fields.get("bus"):
                key = (name, event.prefix.host, event.fields["bus"], event.fields.get("comm"), event.fields["nranks"])
                seen.setdefault(key, {}).setdefault(event.prefix.pid, event)
    for key, by_pid in seen.items():
        if len(by_pid) > 1 and len({event.fields["rank"] for event in by_pid.values()}) > 1:
            yield Evidence(
                "rank_device_mapping",
                STRONG + 1,
                f"{len(by_pid)} processes build a communicator on GPU {key[2]} of {key[1]}",
                tuple(by_pid.values())[:4],
                "same-bus-id",
            )
            return


def processes_share_a_gpu(facts: Facts) -> Iterator[Evidence]:
    by_gpu: dict[str, set[str]] = {}
    for event in facts.of("gpu_process"):
        by_gpu.setdefault(event.fields["index"] or "", set()).add(event.fields["pid"] or "")
    gpus = {event.fields["index"] for name in ("gpu_row", "gpu_listed") for event in facts.of(name)} | set(by_gpu)
    crowded = [index for index, pids in by_gpu.items() if len(pids) > 1]
    if crowded and len(by_gpu) < len(gpus) and len(gpus) > 1:
        yield Evidence(
            "rank_device_mapping",
            STRONG,
            f"several processes are on GPU {crowded[0]} and others have none",
            tuple(facts.of("gpu_process"))[:4],
            "processes-on-one-gpu",
        )


def all_processes_hold_one_gpu(facts: Facts) -> Iterator[Evidence]:
    """Several ranks hang or fail, and all processes use memory of the same GPU: none had chosen its own."""
    rows = facts.of("compute_app")
    pids = {event.fields["pid"] or event.fields["pid2"] for event in rows}
    gpus = {event.fields["bus"] or event.fields["bus2"] for event in rows}
    if len(pids) > 1 and len(gpus) == 1 and (facts.world_size or 2) > 1 and (hang_signs(facts) or facts.first_error):
        why = f"{len(pids)} processes hold GPU {next(iter(gpus))}, and none holds another one"
        yield Evidence("rank_device_mapping", STRONG, why, tuple(rows[:2]), "all-on-one-gpu")


def processes_hold_the_first_gpu_too(facts: Facts) -> Iterator[Evidence]:
    """Processes that work on GPUs of their own also hold a context on a common GPU, which runs out of memory first."""
    by_pid: dict[str, dict[str, Event]] = {}
    for event in facts.of("gpu_process"):
        by_pid.setdefault(event.fields["pid"] or "", {}).setdefault(event.fields["index"] or "", event)
    for event in facts.of("compute_app"):
        by_pid.setdefault(event.fields["pid"] or event.fields["pid2"] or "", {}).setdefault(event.fields["bus"] or event.fields["bus2"] or "", event)
    doubled = [held for held in by_pid.values() if len(held) > 1]
    common = set.intersection(*(set(held) for held in doubled)) if doubled else set()
    if len(doubled) > 1 and len(common) == 1:
        why = f"{len(doubled)} processes of other GPUs hold GPU {next(iter(common))} as well"
        yield Evidence("rank_device_mapping", WEIGHTS["decisive"] + SUPPORTING, why, tuple(doubled[0].values()), "processes-hold-first-gpu")


def steps_wait_for_data(facts: Facts) -> Iterator[Evidence]:
    """Steps that wait longer for their data than they compute."""
    waits = [event for event in facts.of("data_time") if float(event.fields["data"] or 0) > 2 * float(event.fields["compute"] or 0)]
    waits += [event for event in facts.of("data_of_step") if float(event.fields["data"] or 0) * 3 > 2 * float(event.fields["step"] or 0)]
    if len(waits) >= 3:
        yield Evidence("slow_rank_or_io", STRONG, "steps wait longer for their data than they compute", tuple(waits[:2]), "steps-wait-for-data")


def llmc_stopped_before_first_step(facts: Facts) -> Iterator[Evidence]:
    allocated = facts.of("llmc_allocated")
    if not allocated or (facts.world_size or 2) < 2:
        return
    last = allocated[-1]
    if any(event.file == last.file and event.line > last.line for event in facts.of("training_step")) or not near_end(facts, last):
        return
    yield Evidence(
        "rank_device_mapping", STRONG, "llm.c stops after its last allocation, where all processes once took device 0", (last,), "llmc-last-allocation"
    )


def build_did_not_end(facts: Facts) -> Iterator[Evidence]:
    starts = facts.of("build_start")
    if not starts:
        return
    last = starts[-1]
    if any(event.file == last.file and event.line > last.line for event in facts.of("build_done")):
        return
    signs = hang_signs(facts)
    if signs:
        yield Evidence("fused_kernel_build", STRONG + 1, "a build of CUDA extensions began and did not end before the timeout", (last,), "build-unfinished")
    elif near_end(facts, last):
        yield Evidence("fused_kernel_build", STRONG, "the log ends while a CUDA extension is being built", (last,), "build-unfinished")


def work_was_going_on(facts: Facts) -> Iterator[Evidence]:
    """A rank was busy with data, or with saving, when the others timed out."""
    waits = [event for name in ("timeout", "store_timeout") for event in facts.of(name) if not event.quoted]
    if not waits:
        return
    first = min(waits, key=lambda event: (event.file, event.line))
    data = [event for event in facts.of("data_progress") if event.file == first.file and event.line <= first.line]
    data += _open_ended(facts, first)
    data.sort(key=lambda event: event.line)
    done = [event for event in facts.of("data_done") if event.file == first.file]
    if data and not any(event.line > data[-1].line for event in done) and int(data[-1].fields.get("percent") or 0) < 100:
        percent = data[-1].fields.get("percent")
        what = f"{(data[-1].fields['what'] or '').strip()} {f'stood at {percent} %' if percent else 'was going on'}"
        yield from _work_outlasts_limit(f"{what} when the others' timeout expired", data[-1], first)
        return
    alone = [event for event in facts.of("single_rank_work") if event.file == first.file and 0 < first.line - event.line <= NEAR_LINES]
    # Rank 0 saves, so it does not wait for itself; if it waits in a different call than the others, it is no longer saving.
    if alone and {one.rank for one in facts.timeouts} != {0} and not _saver_waits_elsewhere(facts.timeouts):
        yield Evidence(
            "watchdog_timeout_too_short",
            STRONG,
            "a rank was saving, merging or evaluating when the others' timeout expired",
            (alone[-1], first),
            "single-rank-work",
        )
        yield Evidence("slow_rank_or_io", SUPPORTING, "one rank worked while the others waited", (alone[-1],), "single-rank-work")


def _saver_waits_elsewhere(timeouts: Sequence[Timeout]) -> bool:
    """Whether rank 0 and another rank wait in different calls, or in one with different sizes."""
    calls = {one.rank: (one.op, one.seq, one.numel) for one in _oldest_of_each_rank(timeouts) if one.rank is not None}
    return 0 in calls and any(call != calls[0] for call in calls.values())


def _work_outlasts_limit(why: str, work: Event, wait: Event, id_: str = "data-work-unfinished") -> Iterator[Evidence]:
    """Work took longer than the others' limit: a slow rank, which people also call a limit that is too short."""
    yield Evidence("slow_rank_or_io", STRONG + 1, why, (work, wait), id_)
    yield Evidence("watchdog_timeout_too_short", STRONG - 0.4, why, (work, wait), id_)


def bar_still_moved(facts: Facts) -> Iterator[Evidence]:
    """A progress bar continues after the first timeout: its rank was working while the others waited."""
    waits = [event for name in ("timeout", "store_timeout") for event in facts.of(name) if not event.quoted]
    for wait in waits[:1]:
        bars = [event for event in facts.of("bar") if event.file == wait.file]
        before = [event for event in bars if event.line < wait.line]
        after = [event for event in bars if event.line > wait.line and before and _is_further(before[-1], event)]
        if after:
            why = f"a progress bar still moved, at {after[-1].fields['percent']} %, after the others had given up"
            yield from _work_outlasts_limit(why, after[-1], wait, "bar-still-moved")


def _is_further(before: Event, after: Event) -> bool:
    return before.fields["all"] == after.fields["all"] and int(after.fields["percent"] or 0) >= int(before.fields["percent"] or 0) and before.text != after.text


def _open_ended(facts: Facts, first: Event) -> list[Event]:
    """The last progress line, if it is close to the timeout and not complete: a bar that was complete long before is not evidence."""
    return [event for event in facts.of("data_open") if event.file == first.file and 0 <= first.line - event.line <= NEAR_LINES]


def weights_were_loading(facts: Facts) -> Iterator[Evidence]:
    """A rank was loading weights from slow storage when the others timed out."""
    waits = [event for name in ("timeout", "store_timeout", "missing_ranks") for event in facts.of(name) if not event.quoted]
    loading = [event for event in facts.of("load_progress") if waits and event.file == waits[0].file and event.line <= waits[0].line]
    if loading and int(loading[-1].fields["percent"] or 0) < 100 and waits[0].line - loading[-1].line <= NEAR_LINES:
        why = f"weights were loaded to {loading[-1].fields['percent']} % when the others' timeout expired"
        yield from _work_outlasts_limit(why, loading[-1], waits[0], "weights-loading")


def limit_ran_out_everywhere(facts: Facts) -> Iterator[Evidence]:
    """There are only timeouts in the same collective: its position in the job decides what is likely."""
    if not facts.timeouts or first_failure(facts) is not None or killed_first(facts) is not None:
        return
    if len({(one.op, one.seq) for one in facts.timeouts}) > 1 or _sizes_differ(facts.timeouts):
        return
    one, events = facts.timeouts[0], tuple(timeout.event for timeout in facts.timeouts[:6])
    large = (one.numel or 0) > 1
    if large and one.seq is not None and _is_late(facts, one.seq):
        yield from _late_and_large(facts, events)
        return
    why = "the ranks that report wait in the same collective and no other cause shows"
    yield Evidence("watchdog_timeout_too_short", SUPPORTING + 0.4, why, events, "same-collective")
    if one.seq is not None and one.seq <= START_UP_SEQ and large:
        heard = {timeout.rank for timeout in facts.timeouts}
        weight = SUPPORTING - 0.3 if facts.world_size == len(heard) > 1 else SUPPORTING / 2  # if all ranks wait, none is busy elsewhere
        why = "the hang is in start-up, in the first large transfers between GPUs"
        yield Evidence("acs_iommu", weight, why, events[:1], "start-up-transfer")
        yield Evidence("driver_p2p_bug", weight, why, events[:1], "start-up-transfer")
    elif one.seq is not None and one.seq > LATE_SEQ:
        yield Evidence("nccl_bug", WEIGHTS["weak"], "many collectives had worked before this one", events[:1], "late-hang")


def _is_late(facts: Facts, seq: int) -> bool:
    """Whether many steps had worked: they are in the log, or the sequence number is too high for a start-up."""
    works = facts.of("training_step") or facts.of("bar") or _serves(facts)
    return seq > (LATE_SEQ if works else 10 * LATE_SEQ)


def _serves(facts: Facts) -> bool:
    return any(name in event.text for event in facts.events for name in SERVERS)


def _late_and_large(facts: Facts, events: tuple[Event, ...]) -> Iterator[Evidence]:
    """A thousand collectives had completed within the limit: in training a rank then made another call, or none; a server waits inside NCCL."""
    why = "many collectives had worked before this large one, so the limit is not the reason"
    first, second = ("nccl_bug", "rank_desync_app") if _serves(facts) else ("rank_desync_app", "nccl_bug")
    yield Evidence(first, SUPPORTING + 0.4, why, events[:2], "late-hang")
    yield Evidence(second, SUPPORTING - 0.4, why, events[:1], "late-hang")
    yield Evidence("watchdog_timeout_too_short", SUPPORTING - 0.9, "the ranks that report wait in the same collective", events, "same-collective")


def decided_by_each_rank(facts: Facts) -> Iterator[Evidence]:
    """Each rank decided by its own metric whether to save or stop, and the job hung at the beginning of an epoch."""
    monitored = facts.of("monitored")
    signs = [*hang_signs(facts), *(event for event in facts.of("utilisation") if int(event.fields["load"] or 0) >= 95)]
    if monitored and signs:
        why = f"each rank decides by its own {monitored[-1].fields['metric']}, and the job hung after that"
        yield Evidence("rank_desync_app", SUPPORTING + 1, why, (monitored[-1], signs[0]), "decided-by-each-rank")


def collective_in_a_branch_of_one_rank(facts: Facts) -> Iterator[Evidence]:
    """Quoted code calls a collective on one rank only, and the job hung."""
    signs = hang_signs(facts)
    for branch in facts.of("rank_branch") if signs else ():
        deeper = [
            call
            for call in facts.of("collective_in_code")
            if call.file == branch.file
            and 0 < call.line - branch.line <= BRANCH_LINES
            and len(call.fields["indent"] or "") > len(branch.fields["indent"] or "")
        ]
        if deeper:
            why = f"{deeper[0].fields['call']} is in a branch that only one rank takes, and the job hung"
            yield Evidence("rank_desync_app", STRONG, why, (branch, deeper[0], signs[0]), "collective-on-one-rank")
            yield Evidence("watchdog_timeout_too_short", -SUPPORTING, why, (branch,), "collective-on-one-rank")
            return
