"""What is said of a rank agrees with each line of it: nobody is behind in a call that a line of
theirs names, whatever the clocks and labels before the line are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_diagnosis import diagnose

from unhang.core.verdict.waited_rows import waited_headline, waited_in, waited_lines
from unhang.jobs.diagnose.affected import who_is_meant
from unhang.jobs.diagnose.diagnosing import read_all
from unhang.jobs.diagnose.log_facts import gather_facts
from unhang.jobs.diagnose.logs.line_prefixes import parse_prefix
from unhang.jobs.diagnose.meaning.evidence import Evidence
from unhang.jobs.diagnose.meaning.rules.failures import first_failure

FOLDER = Path(__file__).parents[4] / "fixtures" / "diagnose_claims"
CALL = re.compile(r"\[rank(\d+)\].*SeqNum=(\d+), OpType=(\w+)")
CAUGHT = (
    "[rank{rank}]:[E1121 {time} ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4096, NumelOut=4096,"
    " Timeout(ms)=600000) ran for {ran} milliseconds before timing out."
)
STATE = (
    "[rank{rank}]:[E1121 {time} ProcessGroupNCCL.cpp:2168] [PG ID {pg} PG GUID {pg}({name}) Rank"
    " {number}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued"
    " work: {seq}, last completed work: {done}"
)
WRAPPERS = ("", "2026-11-21T03:{minute:02}:01.510Z stderr ", "2026-11-21 05:{minute:02}:01,510 ")


def ranks(folded):
    """0-1,5 -> {0, 1, 5}"""
    parts = [part.partition("-") for part in folded.split(",") if part]
    return {rank for first, _, last in parts for rank in range(int(first), int(last or first) + 1)}


def false_claims(answer, calls):
    """The calls of which a row says that a rank never made them, though a line of that rank names
    them. calls: (rank, number, operation, group or None)."""
    waits = answer["waited_for"]["waits"] if answer["waited_for"] else []
    return [
        (rank, seq, op)
        for wait in waits
        for rank, seq, op, group in calls
        if rank in ranks(wait["behind"]["ranks"])
        and (seq, op, group or wait["group"]) == (wait["seq"], wait["operation"], wait["group"])
    ]


def test_batch_without_a_measured_run_time_was_called_by_each_rank_that_reports_it():
    answer = diagnose([str(FOLDER / "coalesced.log")])
    row = waited_in(answer["waited_for"])
    assert row.roots.count == 0 and false_claims(answer, _calls("coalesced.log")) == []
    assert waited_headline(row) == (
        "ranks of the job call different things at #812: ranks 5-7 ALLREDUCE 4718592; ranks 0-4"
        " COALESCED"
    )
    assert answer["facts"]["ranks"]["not_arrived"] == []


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ([("rank 5",), ("rank 5", "rank 0")], ["rank 5"]),
        ([("rank 5", "mlx5_0"), ()], ["rank 5", "mlx5_0"]),
        ([("rank 5",), ("rank 0",)], ["rank 5", "rank 0"]),
    ],
)
def test_of_the_ranks_that_kinds_of_evidence_infer_those_are_meant_that_all_name(named, found):
    facts = gather_facts([])
    evidence = [Evidence("slow_rank_or_io", 4.0, "", (), "x", who=who) for who in named]
    assert who_is_meant(evidence, facts) == found


def test_rank_that_only_says_what_the_others_say_is_not_meant(tmp_path):
    said = [f"[rank{rank}] epoch 0 step 0/{812 if rank == 2 else 820}" for rank in range(4)]
    gave_up = [CAUGHT.format(rank=rank, time="03:14:00.1", seq=5, op="ALLREDUCE", ran=600012)
               for rank in (0, 1, 3)]  # fmt: skip
    (tmp_path / "job.log").write_text("\n".join([*said, *gave_up]) + "\n")
    found = diagnose([str(tmp_path)])["causes"][0]
    assert (found["cause"], found["where"]) == ("rank_desync_app", ["rank 2"])


def test_who_prints_that_it_waited_is_not_the_one_that_is_waited_for(tmp_path):
    wait = "gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(f"[rank{rank}]: RuntimeError: [{wait}\n")
    assert {tuple(one["where"]) for one in diagnose([str(tmp_path)])["causes"]} == {()}


def test_what_follows_an_exception_of_all_ranks_is_not_the_first(tmp_path):
    shared = "Traceback (most recent call last):\nKeyError: 'layers.7.weight'\n"
    for name, more in ("w0", ""), ("w1", "ValueError: too late\n"), ("w2", ""):
        (tmp_path / name).write_text(shared + more)
    assert "KeyError" in first_failure(gather_facts(read_all([str(tmp_path)])[1])).text


def test_times_of_a_collector_and_of_the_program_make_nobody_late():
    answer = diagnose([str(FOLDER / "clocks.log")])
    row = waited_in(answer["waited_for"])
    assert row.roots.count == 0 and false_claims(answer, _calls("clocks.log")) == []
    assert ranks(row.waits[0].waiting.ranks) == {0, 1, 2, 3}
    assert not any("never called" in line for line in waited_lines(row))


def test_rank_that_came_after_the_others_gave_up_is_waited_for_and_not_called_absent(tmp_path):
    log = tmp_path / "job.log"
    rows = [CAUGHT.format(rank=rank, time="03:14:00.1", seq=5, op="ALLREDUCE", ran=600012)
            for rank in (0, 1, 3)]  # fmt: skip
    rows.append(CAUGHT.format(rank=2, time="03:24:40.1", seq=5, op="ALLREDUCE", ran=600006))
    log.write_text("\n".join(rows) + "\n")
    row = waited_in(diagnose([str(log)])["waited_for"])
    assert (row.roots.ranks, row.waits[0].reported.ranks) == ("2", "2")
    assert waited_lines(row)[0] == "a line of rank 2 names it too, late or in another group"
    assert row.waits[0].behind.count == 0


@pytest.mark.parametrize(
    ("one", "other", "apart_s"),
    [
        ("2026-11-21T03:08:01Z x", "2026-11-21 03:08:04Z x", 3),
        ("2026-11-21T03:08:01Z x", "2026-11-21T05:08:04+02:00 x", 3),
        ("2026-11-21T03:08:01Z x", "2026-11-21T03:08:04 x", None),
        ("[rank1]:[E1121 03:08:01.5 a.cpp:1] x", "2026-11-21T03:08:04Z x", None),
        ("[rank1]:[E1121 03:08:01.5 a.cpp:1] x", "Nov 21 03:08:04 h kernel: x", None),
        ("[1671442880.2] x", "2022-12-19T09:41:23Z x", None),
        ("no time", "2026-11-21T03:08:04Z x", None),
    ],
)
def test_times_of_unlike_formats_have_no_distance(one, other, apart_s):
    first, last = (parse_prefix(line, len(line)).time for line in (one, other))
    assert last.since(first) == apart_s


def test_label_of_srun_is_a_task_and_the_set_of_missing_ranks_is_that_set():
    answer = diagnose([str(FOLDER / "srun-labels.log")])
    assert (answer["waited_for"]["roots"]["ranks"], answer["causes"][0]["where"]) == (
        "13", ["rank 13"],
    )  # fmt: skip
    assert answer["facts"]["ranks"]["not_arrived"] == [13]
    assert {one["rank"] for one in answer["facts"]["failures"]} - {None} == {12, 13, 14, 15}


def test_set_of_missing_ranks_is_read_behind_any_label(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "0: [rank12]: " + CAUGHT.format(rank=12, time="03:14:00.1", seq=5, op="ALLREDUCE", ran=9)
        + "\n1: gpu11: missing ranks: {13, 14}\n"
    )  # fmt: skip
    assert diagnose([str(log)])["facts"]["ranks"]["not_arrived"] == [13, 14]


@pytest.mark.parametrize("label", ["{}: ", "[default{}]:", "[1,{}]<stderr>: "])
@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        ([(1, "[rank13]: starting")], 13),
        ([(1, "[rank1]: starting")], 1),
        ([(0, "starting")], 1),
        ([(0, "[rank12]: starting")], None),
        ([(1, "[rank8]: starting"), (1, "[rank9]: starting")], None),
        ([(1, "gpu12: [rank13]: starting"), (1, "waits for [rank7]")], None),
    ],
)
def test_label_of_a_launcher_is_the_rank_that_its_other_lines_name(tmp_path, label, lines, rank):
    log = tmp_path / "job.log"
    rows = [label.format(task) + text for task, text in lines]
    error = label.format(1) + "RuntimeError: CUDA error: out of memory"
    log.write_text("\n".join([*rows, error, "the end of it"]) + "\n")
    assert diagnose([str(log)])["facts"]["first_error"]["rank"] == rank


@st.composite
def watchdogs(draw):
    """(log, calls) of 4 ranks: each with a wrapper, an operation, a number, a run time and perhaps
    a line about its group."""
    rows, calls = [], []
    for rank in range(4):
        for _ in range(draw(st.integers(0, 2))):
            minute = draw(st.integers(0, 40))
            wrapper = draw(st.sampled_from(WRAPPERS)).format(minute=draw(st.integers(0, 40)))
            call = {
                "rank": rank, "time": f"03:{minute:02}:0{rank}.051", "seq": draw(st.integers(7, 8)),
                "op": draw(st.sampled_from(("ALLREDUCE", "COALESCED", "BROADCAST"))),
                "ran": draw(st.sampled_from((0, 600012))),
            }  # fmt: skip
            rows.append(wrapper + CAUGHT.format(**call))
            pg = draw(st.sampled_from((None, (0, "default_pg", rank), (3, "mesh_tp", rank % 2))))
            calls.append((rank, call["seq"], call["op"], pg and pg[1]))
            if pg:
                named = dict(zip(("pg", "name", "number"), pg, strict=True))
                rows.append(wrapper + STATE.format(**call, **named, done=call["seq"] - 1))
    return "\n".join(rows) + "\n", calls


@settings(max_examples=60, deadline=None)
@given(job=watchdogs())
def test_nobody_is_behind_in_a_call_that_a_line_of_theirs_names(tmp_path_factory, job):
    log = tmp_path_factory.mktemp("claims") / "job.log"
    log.write_text(job[0])
    assert false_claims(diagnose([str(log)]), job[1]) == []


def _calls(name):
    found = CALL.findall((FOLDER / name).read_text())
    return [(int(rank), int(seq), op, None) for rank, seq, op in found]
