"""The samples of several nodes as those of one job: moments, nodes that are late or silent, and who
answers for RAS."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from unhang.core.line_pieces import MOST_HELD, joined
from unhang.jobs.inspect.ways import lines_of_tasks
from unhang.jobs.watch.detector import ENDED, NO_PROGRESS, detect, ticks
from unhang.jobs.watch.of_slurm import MOST_IN_A_MOMENT, merged, parsed
from unhang.jobs.watch.plain_samples import plain_sample


def by_node(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The lines of two nodes as those of two tasks."""
    return [(b"1" if b"gpu002" in line else b"0", line) for line in lines]


def samples(
    node: str, rank: int, t: float, switches: int = 0, state: str = "S", ras: dict | None = None
) -> list[dict]:
    row = {
        "t": t,
        "pid": 7,
        "rank": rank,
        "state": state,
        "cpu_s": 1.0,
        "switches": switches,
        "children_cpu_s": 0.0,
    }
    return [
        {"asked_as": node, **line}
        for line in ({"t": t, "ras": ras, "why": "none"}, row, {"t": t, "log_bytes": 100})
    ]


def of_two(count: int, second: int = 1, **state) -> list[dict]:
    """Moments of two nodes whose clocks began 100 s apart; the second has one sample for each
    `second` of the first."""
    lines = []
    for at in range(count):
        lines += samples("gpu001", 0, float(at))
        lines += samples("gpu002", 1, 100.0 + at, **state) if at % second == 0 else []
    return lines


def test_a_moment_has_the_ranks_of_all_nodes_and_the_sum_of_their_logs():
    found = list(ticks(merged(of_two(4), 2)))
    assert [sorted(tick.ranks) for tick in found] == [[0, 1]] * 3
    assert {sum(tick.logs.values()) for tick in found} == {200}
    assert [tick.t for tick in found] == sorted({tick.t for tick in found})


def test_a_job_that_stands_still_on_both_nodes_makes_no_progress():
    events = list(detect(merged(of_two(90), 2), 60))
    assert [event.what for event in events] == [NO_PROGRESS]


def test_a_rank_that_works_on_the_other_node_is_progress():
    lines = [
        line
        for at in range(90)
        for line in (
            *samples("gpu001", 0, float(at)),
            *samples("gpu002", 1, float(at), switches=50 * at),
        )
    ]
    assert list(detect(merged(lines, 2), 60)) == []


def test_a_node_with_half_as_many_samples_delays_no_other_and_its_work_counts():
    lines = [
        line
        for at in range(90)
        for line in (
            *samples("a", 0, float(at)),
            *(samples("b", 1, float(at), switches=50 * at) if at % 2 else []),
        )
    ]
    assert len(list(ticks(merged(lines, 2)))) > 40
    assert list(detect(merged(lines, 2), 60)) == []


def test_the_last_sample_of_a_node_that_fell_silent_is_no_progress_for_ever():
    busy = [
        {"asked_as": "b", "t": 0.0, "gpu": 0, "memory_activity_percent": 40},
        {"asked_as": "b", "t": 1.0, "gpu": 0, "memory_activity_percent": 40},
    ]
    lines = [
        *samples("a", 0, 0.0),
        *busy,
        *(line for at in range(1, 90) for line in samples("a", 0, float(at))),
    ]
    assert NO_PROGRESS in [event.what for event in detect(merged(lines, 2), 60)]


def test_a_rank_that_ended_on_one_node_is_told_while_the_other_goes_on():
    events = list(detect(merged(of_two(20, state="gone"), 2), 60))
    assert [(event.what, event.gone) for event in events] == [(ENDED, {1: ("gpu002", 7)})]


def test_the_answer_of_one_nodes_ras_counts():
    counts = {"counts": {"0": 5, "1": 5}, "missing": []}
    lines = [
        line
        for at in range(3)
        for line in (*samples("a", 0, float(at), ras=counts), *samples("b", 1, float(at)))
    ]
    assert all(tick.counts == counts["counts"] for tick in ticks(merged(lines, 2)))


def test_the_headers_of_all_nodes_pass():
    headers = [
        {"asked_as": node, "schema": "unhang/trace/1", "host": node, "ranks": []}
        for node in ("a", "b")
    ]
    assert list(merged(headers, 2)) == headers


ODD = (
    None,
    True,
    "x",
    "\x1b[2J",
    [],
    {},
    [[]],
    {"counts": 7},
    {"counts": {"x": "y", "0": None}, "missing": ["\x1b"]},
    1e300,
    10**30,
    -5,
)
FIELDS = (
    "schema",
    "host",
    "ranks",
    "every_s",
    "t",
    "ras",
    "gpu",
    "rank",
    "state",
    "pid",
    "pids",
    "cpu_s",
    "children_cpu_s",
    "read_bytes",
    "switches",
    "log_bytes",
)


@pytest.mark.parametrize("field", FIELDS)
def test_a_hostile_node_spoils_no_watch(field):
    """The values of another node's samples have any type; the watch goes on with what is one of a
    trace, and ends in no fault."""
    lines = []
    for at in range(12):
        lines += samples("gpu001", 0, float(at))
        for odd in ODD:
            header = {
                "asked_as": "gpu002",
                "schema": "unhang/trace/1",
                "host": "gpu002",
                "ranks": [],
                "every_s": 1.0,
            }
            lines += [
                {**line, field: odd}
                for line in (
                    header,
                    *samples("gpu002", 1, float(at)),
                    {"asked_as": "gpu002", "t": float(at), "gpu": 0},
                )
            ]
    written = [json.dumps(line).encode() for line in lines]
    found = list(merged(parsed(by_node(written)), 2))
    assert all(
        "schema" not in line or (line["ranks"] == [] and f"{line['every_s']:g}") for line in found
    )
    assert len(list(ticks(found))) >= 10
    list(detect(found, 5))


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 5000,
        b"{" * 5000,
        b"\xff",
        b'{"asked_as": "a", "t": NaN}',
        b'{"t": 1, "t": 2}',
        b"[]",
        b"7",
        b"srun: error",
        b"",
    ],
)
def test_what_is_no_sample_is_passed_over(line):
    assert list(parsed([(b"0", line)])) == []


def test_a_node_that_sends_one_moment_for_ever_costs_little():
    endless = (
        {"asked_as": "a", "t": 0.0, "rank": number % 7, "state": "R"}
        for number in range(10 * MOST_IN_A_MOMENT)
    )
    found = list(merged([*endless, {"asked_as": "a", "t": 1.0}, {"asked_as": "a", "t": 2.0}], 1))
    assert 7 <= len(found) <= MOST_IN_A_MOMENT + 2


def test_names_of_nodes_that_nobody_asked_are_passed_over():
    found = list(
        merged(
            [
                line
                for number in range(50)
                for line in (
                    *samples(f"n{number}", number, 0.0),
                    *samples(f"n{number}", number, 1.0),
                )
            ],
            2,
        )
    )
    assert {line["rank"] for line in found if "rank" in line} == {0, 1}


def test_pieces_of_lines_that_never_end_are_not_kept_for_ever():
    piece = b"x" * (1 << 20)
    endless = (b"~n%d 1/2 %s" % (number, piece) for number in range(2 * (MOST_HELD >> 20)))
    assert list(islice(joined([*endless, b"~a 1/2 ab", b"~a 2/2 cd"]), 5)) == [b"abcd"]


def test_a_sample_as_it_is_written_stays_whole():
    row = {"asked_as": "a", **samples("a", 1, 3.0)[1], "pids": [7]}
    assert plain_sample(json.dumps(row).encode()) == row


def labelled(task: int, name: str, line: dict) -> list[bytes]:
    """A document as a task prints it in two pieces, after srun's label."""
    text = json.dumps(line).encode()
    return [
        b"%2d: ~%s %d/2 %s" % (task, name.encode(), at, piece)
        for at, piece in ((1, text[:9]), (2, text[9:]))
    ]


def test_a_node_that_gives_the_name_of_another_adds_nothing_to_its_samples():
    mine, theirs = ({"asked_as": "gpu001", "t": 1.0, "rank": rank, "state": "S"} for rank in (0, 1))
    first, second = labelled(0, "gpu001", mine), labelled(1, "gpu001", theirs)
    mixed = [
        first[0],
        second[0],
        second[1],
        first[1],
        *labelled(1, "gpu002", {**theirs, "asked_as": "gpu002"}),
        b"srun: error",
        b"~gpu001 1/1 " + json.dumps(mine).encode(),
    ]
    found = list(parsed(lines_of_tasks(mixed)))
    assert [(line["asked_as"], line["rank"]) for line in found] == [
        ("gpu001", 1),
        ("gpu001/task0", 0),
        ("gpu001", 1),
    ]
