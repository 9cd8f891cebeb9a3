"""Kinds of evidence about one job are intersected: what stacks show of a rank counts against what
dumps say of it. Jobs of eight ranks, tensor 2, data 2, pipeline 2, by gloo, which records neither
messages nor the end of a collective."""

from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang.core.verdict.joined import Seen, one_answer
from unhang.core.verdict.waiting import LAUNCHED, Group, Step, waited_for
from unhang.jobs.diagnose.answer import answer_of

FOLDER = Path(__file__).parents[4] / "fixtures/diagnose_joined"


@pytest.mark.parametrize(
    ("job", "kinds", "roots", "certainty"),
    [
        ("hook", ("dumps",), "0,2", "possible"),  # they send, which no dump has
        ("hook", ("dumps", "stacks"), "6", "possible"),
        ("never", ("dumps", "stacks"), "5", "likely"),
    ],
)
def test_rank_that_stacks_show_in_a_wait_is_no_root(job, kinds, roots, certainty):
    row = diagnose([str(FOLDER / job / kind) for kind in kinds])["waited_for"]
    assert (row["roots"]["ranks"], row["certainty"]) == (roots, certainty)


LOOK = """Process {pid}: python train.py

Thread {pid} ({state}): "MainThread"
    {call}
    main (train.py:{line})
"""
GAVE_UP = """[rank0]:[E1129 10:00:00.1 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) \
ran for 600012 milliseconds before timing out.
"""
IN = "all_reduce (torch/distributed/distributed_c10d.py:3252)"


@pytest.mark.parametrize(
    ("second", "word", "certainty"),
    [
        ([(IN, 40), (IN, 40), (IN, 40), ("loop (train.py:9)", 41)], "no_end", ["possible"]),
        ([(IN, 40), (IN, 40), (IN, 40), ("load (train.py:9)", 41)], "cause", ["likely"]),
        ([(IN, 40), (IN, 40), (IN, 40), ("load (train.py:8)", 41)], "no_end", ["possible"]),
        ([(IN, 40), (IN, 44), (IN, 40), ("load (train.py:9)", 41)], "healthy", []),
    ],
)
def test_a_second_look_shows_who_goes_on(tmp_path, second, word, certainty):
    first = [(IN, 40), (IN, 40), (IN, 40), (second[3][0].replace("8)", "9)"), 41)]
    for look, calls in enumerate((first, second)):
        for rank, (call, line) in enumerate(calls):
            file = tmp_path / f"look{look}" / f"rank{rank}.txt"
            file.parent.mkdir(exist_ok=True)
            state = "active" if "loop" in call else "idle"
            file.write_text(LOOK.format(pid=70 + rank, call=call, line=line, state=state))
    found = diagnose([str(tmp_path)])
    named = [one["certainty"] for one in found["causes"]][:1]
    assert (found["outcome"]["word"], named) == (word, certainty)
    (tmp_path / "job.log").write_text(GAVE_UP)
    assert "rank 3" in str(diagnose([str(tmp_path)])["causes"])


CAME = """[rank{0}]:[E1129] Rank {0} successfully reached monitoredBarrier, but received errors while \
waiting for send/recv from rank 0
"""
MISSES = "[rank0]: RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 9 ms\n"


RAS = """Job summary
===========
  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Warnings
========

#0-0 (33def8db729095a7) MISMATCH
  Communicator ranks have different AllReduce operation counts
"""


def test_two_kinds_that_name_unlike_ranks_contradict_each_other_on_the_screen(tmp_path):
    for rank in range(4):
        call, line = ("load (train.py:9)", 41) if rank == 2 else (IN, 40)
        look = LOOK.format(pid=70 + rank, call=call, line=line, state="idle")
        (tmp_path / f"rank{rank}.txt").write_text(look)
    answers = [
        f"  Rank {rank} has launched up to operation {60 - (rank == behind)} -- GPU {rank} managed"
        f" by process {70 + rank} on node gpu01\n"
        for behind in (2, 1)
        for rank in range(4)
    ]
    said = []
    for counts in (answers[:4], answers[4:]):
        (tmp_path / "ras.txt").write_text(RAS + "".join(counts))
        found = diagnose([str(tmp_path)])
        first, lines = found["causes"][0], answer_of(found).screen.lines
        row = found["waited_for"]["roots"]["ranks"]
        said.append(
            (first["where"][0], first["certainty"], row, "against: RAS: rank 1" in str(lines))
        )
    assert said == [("rank 2", "likely", "2", False), ("rank 2", "possible", "", True)]


def test_rank_that_a_monitored_barrier_misses_is_the_one_and_not_who_came(tmp_path):
    (tmp_path / "log").write_text(CAME.format(1) + CAME.format(2) + MISSES)
    found = diagnose([str(tmp_path)])
    row = found["waited_for"]
    assert (row["roots"]["ranks"], row["certainty"]) == ("3", "sure")
    assert not {"rank 1", "rank 2"} & {*found["causes"][0]["where"]}


def test_server_that_waits_for_requests_is_not_waited_for():
    step = Step(0, "tp", "broadcast", 5, LAUNCHED)
    waits = waited_for([Group("tp", (0, 1))], [step], seen=[0, 1], complete=True)
    assert waits.roots == (1,)
    assert one_answer([waits], Seen(serves=frozenset({1}))).roots == ()


SLOW = "step 1 loss 3\nWARNING: straggler detected: rank 1 takes 3.1x the median\n"
DESTROYED = (
    "h:1:1 [0] NCCL INFO comm 0x1 rank {0} nranks 2 cudaDev 0 busId 1b000 - Destroy COMPLETE"
)
DONE = "step 90 loss 2.1\nTraining complete"


@pytest.mark.parametrize(
    ("ends", "is_healthy"),
    [
        (f"{DONE}\n{DESTROYED}", True),
        (DONE, False),  # it can hang at its end
        (f"{DESTROYED}\n{DONE}\nstep 91 loss 2.1", False),
    ],
)
def test_a_job_all_of_whose_ranks_ended_has_outlived_what_it_reports(tmp_path, ends, is_healthy):
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.log").write_text(SLOW + ends.format(rank))
        (tmp_path / f"stack-rank{rank}.txt").write_text(
            LOOK.format(pid=rank, call=IN, line=4, state="idle")
        )
    assert (diagnose([str(tmp_path)])["outcome"]["word"] == "healthy") is is_healthy
