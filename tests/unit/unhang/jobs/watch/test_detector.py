"""The detector over traces recorded at real jobs with NCCL: it speaks in each hang, after it began,
and never at a job that works."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from healthy_months import OF_ONE_GPU, OF_TWO_GPUS, endless
from neighbours import with_neighbour

from unhang.jobs.watch.detector import ENDED, NO_PROGRESS, STOPPED, detect, signs_of_progress, ticks

TRACES = Path(__file__).parents[4] / "fixtures" / "inspect" / "traces"
HANGS = {
    "never": NO_PROGRESS, "spin": NO_PROGRESS, "lock": NO_PROGRESS, "differ": NO_PROGRESS,
    "loader": NO_PROGRESS, "allgather": NO_PROGRESS,
    "path": NO_PROGRESS, "first": NO_PROGRESS, "stopped": STOPPED, "inflight": STOPPED,
    "killed": ENDED,
}  # fmt: skip
HEALTHY = ("healthy", "slow", "compile", "checkpoint", "evaluation", "longstep")
DAY_S = 86_400


def trace(name: str) -> list[dict]:
    """With another user's job beside it, which trains."""
    return neighboured(TRACES / f"{name}.jsonl")


def neighboured(path: Path) -> list[dict]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(with_neighbour(map(json.loads, lines)))


@pytest.mark.parametrize("name", HANGS)
def test_it_speaks_in_a_hang_and_not_before(name):
    lines = trace(name)
    events = list(detect(lines, 5.0))
    began = lines[0]["happened"] - lines[0]["at"]
    assert HANGS[name] in {event.what for event in events}
    assert all(event.t >= began + 4 for event in events)


@pytest.mark.parametrize("path", OF_TWO_GPUS, ids=lambda path: path.stem)
def test_it_is_silent_at_a_job_that_works_on_two_gpus(path):
    assert list(detect(neighboured(path), 5.0)) == []


@pytest.mark.parametrize("name", HEALTHY)
def test_it_is_silent_at_a_job_that_works(name):
    """Dynamo traces for 5 s without a file or a compiler: such a phase of a minute would be looked
    at, and inspect says that it compiles."""
    assert list(detect(trace(name), 8.0 if name == "compile" else 5.0)) == []


@pytest.mark.slow
def test_a_day_of_healthy_jobs_with_noise_is_no_alarm():
    """A month of them: tests/bench/bench_watch.py."""
    day = endless(random.Random(1), DAY_S, (*OF_ONE_GPU, *OF_TWO_GPUS))
    assert list(detect(with_neighbour(day), 10.0)) == []


def beside_a_job_on_the_same_gpus(name: str, *, silent_every: int) -> list[dict]:
    """With a stranger that computes on each GPU; its process answers at RAS's port now and then."""
    return [
        {**line, "pids": [*line["pids"], 999_999], "memory_activity_percent": 20}
        if "gpu" in line
        else {**line, "ras": None}
        if "ras" in line and int(line["t"]) % silent_every == 0
        else line
        for line in trace(name)
    ]


@pytest.mark.parametrize("silent_every", [2, 3, 1000])
@pytest.mark.parametrize("name", HANGS)
def test_a_job_on_the_same_gpus_that_answers_at_the_same_port_hides_no_hang(name, silent_every):
    lines = beside_a_job_on_the_same_gpus(name, silent_every=silent_every)
    assert HANGS[name] in {event.what for event in detect(lines, 5.0)}


@pytest.mark.parametrize("silent_every", [3, 1000])
@pytest.mark.parametrize("name", ["healthy", "slow", "checkpoint"])
def test_beside_such_a_job_one_that_works_is_silent(name, silent_every):
    lines = beside_a_job_on_the_same_gpus(name, silent_every=silent_every)
    assert list(detect(lines, 5.0)) == []


def test_another_communicator_of_other_ranks_is_progress():
    def at(t, pid, counts):
        ras = {"counts": counts, "missing": []} if counts else None
        row = {"t": float(t), "pid": pid, "rank": 0, "state": "S", "cpu_s": 1.0, "switches": 5}
        return [{"t": float(t), "ras": ras}, row]

    lines = [*at(0, 1, {"0": 5}), *at(50, 2, None), *at(55, 2, {"0": 5}), *at(70, 2, {"0": 5})]
    assert list(detect(lines, 60)) == []


def test_bytes_far_beyond_those_of_the_rank_at_rest_are_progress_and_a_heartbeat_is_not():
    def job(rate):
        return [
            {"t": float(t), "pid": rank, "rank": rank, "state": "S", "cpu_s": 1.0,
             "switches": t if rank else 5, "arrived_bytes_s": rate if rank else 221.0}
            for t in range(100)
            for rank in (0, 1)
        ]  # fmt: skip

    assert list(detect(job(40_894.0), 60)) == []
    assert NO_PROGRESS in {event.what for event in detect(job(2_000.0), 60)}


def test_gpus_that_show_no_process_count_where_the_driver_shows_no_rank_as_in_a_container():
    def inside(line):
        return {**line, "pids": []} if line.get("gpu") == 0 else line

    works = [inside(line) for line in trace("longstep")]
    assert list(detect(works, 5.0)) == []
    stands = [
        {**line, "memory_activity_percent": 0} if line.get("gpu") == 0 else line for line in works
    ]
    began = next(at for at, line in enumerate(stands) if line.get("t", 0) > 8)
    still = [
        {**line, "ras": None} if "ras" in line else line
        for line in stands[began:]
        if "log_bytes" not in line
    ]
    assert NO_PROGRESS in {event.what for event in detect(still, 5.0)}


def test_equal_process_numbers_of_two_nodes_are_two_processes():
    """The neighbour on another node has the number of a rank here."""
    lines = [
        {**line, "asked_as": "b", "pids": [508]}
        if line.get("gpu") == 7
        else {**line, "asked_as": "a"}
        for line in trace("never")
    ]
    ranks = {line["pid"] for line in lines if "rank" in line}
    assert 508 in ranks
    assert NO_PROGRESS in {event.what for event in detect(lines, 5.0)}


def test_a_gloo_job_beside_a_gpu_that_trains_makes_progress_by_ranks_that_wake_up():
    awake = [
        {"t": float(at), "pid": 1, "rank": 0, "state": "S", "switches": 30 * at}
        for at in range(100)
    ]
    assert list(detect(with_neighbour(awake), 60)) == []
    asleep = [{**line, "switches": 7} for line in awake]
    assert NO_PROGRESS in {event.what for event in detect(with_neighbour(asleep), 60)}


def test_it_speaks_again_only_after_the_same_time():
    lines = trace("never")
    step = lines[-1]["t"]
    tail = [line for line in lines if line.get("t") == step]
    longer = [*lines, *({**line, "t": step + more} for more in range(1, 12) for line in tail)]
    said = [event.t for event in detect(longer, 5.0)]
    assert len(said) >= 3
    assert all(b - a >= 5.0 for a, b in itertools.pairwise(said))


def test_each_sign_is_needed():
    """The signs that each healthy trace lives on: without one of them it would be an alarm."""
    wanted = {
        "healthy": "collectives",
        "evaluation": "GPU memory",
        "longstep": "GPU memory",
        "checkpoint": "work of rank 1",
        "compile": "work of rank 1",
    }
    for name, sign in wanted.items():
        assert any(
            sign in signs_of_progress(*pair) for pair in itertools.pairwise(ticks(trace(name)))
        ), name


SEEN = {
    "collective": {"ras": {"counts": {"0": 1}}},
    "work on a GPU": {"gpu": 0, "pids": [7]},
    "log": {"log_bytes": 5},
}


@pytest.mark.parametrize("seen", [(), ("log",), ("collective", "file"), (*SEEN, "file")], ids=str)
def test_that_a_thing_did_not_move_is_said_only_of_what_was_looked_at(seen):
    row = {"pid": 7, "rank": 0, "state": "S", "cpu_s": 1.0, "children_cpu_s": 0.0, "switches": 5}
    others = [SEEN[name] for name in seen if name in SEEN]
    rows = [{**row, "read_bytes": 4 if "file" in seen else None}, {"ras": None}, *others]
    lines = [{"t": float(at), **one} for at in range(70) for one in rows]
    (event,) = detect(lines, 60)
    moved, _, unseen = event.why.partition(" moved for 60 s")
    for name in (*SEEN, "file"):
        assert (f"no {name}" in moved, f"no {name}" in unseen) == (name in seen, name not in seen)


@pytest.mark.parametrize(
    "log, expected",
    [({}, "its output goes to no file"), ({"log_bytes": 5}, "its log did not grow")],
)
def test_without_a_rank_it_says_what_it_could_see(log, expected):
    lines = [
        {"t": float(at), "waiting": "no rank yet", **more}
        for at in range(100)
        for more in ({}, log)
    ]
    (event,) = detect(lines, 60)
    assert (
        "no process with a rank was found" in event.why
        and expected in event.why
        and "no file and no log" not in event.why
    )


def test_hostile_samples_are_passed_over():
    lines = [
        {"t": "x"},
        {"t": 1, "ras": 5},
        {"t": 1, "rank": None},
        {"t": 2, "ras": {"counts": 7}},
        {"t": 2, "rank": 1, "state": "S"},
        {},
    ]
    assert list(detect(lines, 5.0)) == []
