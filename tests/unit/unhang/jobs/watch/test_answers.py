"""Whether a watcher may end a job for what it saw."""

from __future__ import annotations

import json

import pytest
from inspected import EVIDENCE, agreeing, inspection_of, named_in

from unhang.jobs.watch.answers import with_seen
from unhang.jobs.watch.detector import NO_PROGRESS, Event, detect

TWO_GPUS = EVIDENCE.parent / "two_gpus"


def verdict(scene: str, way: str = "RAS-and-stacks", *ended: int) -> dict:
    document = json.loads((EVIDENCE / f"{scene}-{way}.json").read_text(encoding="utf-8"))
    return inspection_of(with_seen([document], seen(gone=dict.fromkeys(ended, ("", 4711)))))


def seen(**more) -> Event:
    return Event(70.0, NO_PROGRESS, 10.0, "nothing moved", **more)


@pytest.mark.parametrize(
    ("scene", "way", "ended", "hangs"),
    [
        ("never", "RAS-and-stacks", [], True),
        ("spin", "RAS-and-stacks", [], False),
        ("checkpoint", "RAS-and-stacks", [], False),
        ("never", "driver-and-proc", [], False),
        ("killed", "driver-and-proc", [], False),
        ("killed", "driver-and-proc", [1], True),
        ("checkpoint", "RAS-and-stacks", [1], False),
        ("healthy", "RAS-and-stacks", [1], False),
    ],
)
def test_a_job_hangs_by_the_look_alone_which_knows_whom_the_watcher_saw_end(
    scene, way, ended, hangs
):
    """A rank that the look itself finds has not ended."""
    assert (verdict(scene, way, *ended)["state"] == "hung") is hangs


@pytest.mark.parametrize(
    ("scene", "hangs"), [("restore", False), ("import", False), ("baton", True)]
)
def test_work_that_moves_nothing_else_than_a_processor_is_looked_at_and_not_called_a_hang(
    scene, hangs
):
    """No file, no collective and no GPU moves while a rank unpickles or imports: the samples cannot
    tell it from a wait, its stack does."""
    lines = map(
        json.loads,
        (TWO_GPUS / "traces" / f"{scene}.jsonl").read_text(encoding="utf-8").splitlines(),
    )
    events = list(detect(lines, 5.0))
    found = inspection_of(
        [
            json.loads(
                (TWO_GPUS / "evidence" / f"{scene}-RAS-and-stacks.json").read_text(encoding="utf-8")
            )
        ]
    )
    assert {one.what for one in events} == {NO_PROGRESS}
    assert (found["state"] == "hung") is hangs


def test_two_looks_agree_if_they_name_the_same():
    assert named_in(verdict("never")) == named_in(verdict("lock")) != set()
    assert named_in(verdict("never")) != named_in(verdict("path"))


@pytest.mark.parametrize(
    ("scene", "way", "ended", "sources"),
    [
        ("never", "RAS-and-stacks", [], ["/proc", "RAS", "stacks", "the driver"]),
        ("killed", "driver-and-proc", [1], ["/proc", "the driver"]),
        ("killed", "driver-and-proc", [], []),
        ("never", "RAS", [], []),
        ("healthy", "RAS-and-stacks", [], []),
    ],
)
def test_a_job_is_ended_only_where_two_sources_agree(scene, way, ended, sources):
    assert sorted(agreeing(verdict(scene, way, *ended))) == sources


def test_one_source_that_shows_work_forbids_it():
    document = json.loads((EVIDENCE / "never-RAS-and-stacks.json").read_text(encoding="utf-8"))
    document["sections"]["proc"]["log_bytes_2"][0] += 100
    found = inspection_of([document])
    assert (found["state"], found["sources"]["works"], agreeing(found)) == (
        "running",
        ["/proc"],
        [],
    )


def samples(log_bytes: int, counts: int, cpu_s: float, calls: int | None = None) -> list[dict]:
    """200 s in which a rank's log, counts, processor time and what it wrote grow by so much each
    second."""
    rank = {"pid": 1, "rank": 0, "state": "S", "children_cpu_s": 0.0}
    return [
        line
        for t in range(200)
        for line in (
            {"t": float(t), "ras": {"counts": {"0": 5 + counts * t}}},
            {"t": float(t), **rank, "cpu_s": 1.0 + cpu_s * t, "switches": int(100 * cpu_s * t),
             "call_bytes": calls and calls * t},
            {"t": float(t), "log_bytes": 10 + log_bytes * t},
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ((0, 0, 0.0), True),  # still
        ((80, 0, 0.0), False),  # its log
        ((0, 1, 0.01), False),  # its counts
        ((0, 1, 0.0), True),  # counts of one asleep
        ((80, 0, 0.0, 80), False),  # what it wrote
        ((80, 0, 0.0, 60), False),  # the same with its launcher's label before each line
        ((80, 0, 0.0, 0), True),  # what another job prints
    ],
)
def test_a_log_that_grows_is_progress_and_counts_of_a_rank_that_never_ran_are_none(given, is_told):
    assert bool(list(detect(samples(*given), 60.0))) is is_told


def ranks_that_wake(*periods_s: float) -> list[dict]:
    """200 s of a job without RAS and GPUs, each of whose ranks wakes up so often; 0: never."""
    return [
        {"t": float(t), "pid": rank, "rank": rank, "state": "S", "cpu_s": 1.0,
         "children_cpu_s": 0.0, "switches": 5 + int(t / period) if period else 5}
        for t in range(0, 200, 2)
        for rank, period in enumerate(periods_s)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("periods_s", "woken"),
    [((2, 0.5), None), ((5, 0), (0,)), ((5, 5), (0, 1)), ((0, 0), ()), ((2, 2, 0), (0, 1))],
    ids=["small steps", "one polls", "loaders poll", "asleep", "one sleeps"],
)
def test_all_ranks_that_wake_all_the_time_are_progress_and_some_that_do_are_noted(periods_s, woken):
    """A gloo job of slow steps has no other sign; a worker that hangs is asked for each 5 s."""
    events = list(detect(ranks_that_wake(*periods_s), 60.0))
    assert {one.woken for one in events} == (set() if woken is None else {woken})


@pytest.mark.parametrize(
    ("scene", "state"), [("never", "unknown"), ("loader", "hung"), ("baton", "hung")]
)
def test_a_rank_that_wakes_in_its_own_lines_is_no_hang_and_one_in_a_library_s_wait_is(scene, state):
    """It may poll for a file or a shard for hours. Two looks some seconds apart saw it asleep."""
    path = TWO_GPUS / "evidence" / f"{scene}-RAS-and-stacks.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert inspection_of([document])["state"] == "hung"
    found = inspection_of(with_seen([document], seen(woken=(1,))))
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == (state, [1])


@pytest.mark.parametrize(
    ("what", "frames", "woken", "state"),
    [
        ("store", ["wait (/app/train.py:9)"], (), "hung"),
        ("own loop", ["finish (/app/train.py:12)"], (0,), "unknown"),
    ],
)
def test_a_rank_that_the_watcher_saw_end_is_named_where_the_others_wait(what, frames, woken, state):
    """The look finds nothing of it; those that are left may as well finish their work."""
    document = json.loads((EVIDENCE / "never-RAS-and-stacks.json").read_text(encoding="utf-8"))
    document["sections"].pop("ras")
    document["ranks"] = [row for row in document["ranks"] if row["rank"] == 0]
    pid = document["ranks"][0]["pid"]
    for number in ("processes", "processes_2"):
        dumps = [row for row in document["sections"]["stacks"][number] if row["pid"] == pid]
        document["sections"]["stacks"][number] = [
            {**row, "threads": [{"frames": frames}]} for row in dumps
        ]
    for number in ("ranks_1", "ranks_2"):
        for row in document["sections"]["proc"][number]:
            row.update(state="S", switches=5, cpu_s=1.0)
    event = seen(woken=woken, gone={1: ("", 4711)})
    found = inspection_of(with_seen([document], event))
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == (state, [1]), found
    assert "its process has ended (pid 4711)" in found["headline"]
