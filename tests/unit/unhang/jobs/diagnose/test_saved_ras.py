"""What NCCL's RAS answered, saved as a file: the same rank is named as at the live job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from job_diagnosis import diagnose
from read_again import fits

CAPTURES = Path(__file__).parents[4] / "fixtures" / "ras"
HEAD = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  {first}
    1         4         1         2         2         8   RUNNING  {second}

Errors
======
{errors}
Warnings
========
{warnings}
"""


def parts(name):
    """{form: text} of a capture."""
    text = (CAPTURES / f"{name}.txt").read_text(encoding="utf-8")
    found = re.split(r"==== (verbose status|json)\n", text)
    return {
        form: one.partition("\n[0.")[0] for form, one in zip(found[1::2], found[2::2], strict=True)
    }


@pytest.fixture
def answer(tmp_path):
    def answer(*texts):
        for number, text in enumerate(texts):
            (tmp_path / f"ras-{number}.txt").write_text(text, encoding="utf-8")
        found = diagnose([str(tmp_path)])
        fits(found, "diagnosis-1")
        return found

    return answer


def roots(found):
    return found["waited_for"] and found["waited_for"]["roots"]["ranks"]


@pytest.mark.parametrize("form", ["json", "verbose status"])
@pytest.mark.parametrize("scene", ["never", "spin"])
def test_rank_that_launched_fewer_operations_is_waited_for(answer, scene, form):
    found = answer(parts(f"{scene}-second")[form])
    assert (roots(found), found["waited_for"]["certainty"]) == ("1", "possible")
    assert found["next"]["command"].startswith("ncclras -v > ras-1; sleep 10")
    assert found["outcome"]["why"].startswith("NCCL's RAS: rank 1 (process ")
    assert not found["found"]
    assert (
        f"--pid {found['outcome']['why'].partition('(process ')[2].split()[0]}"
        in (found["collect_next"][0])
    )


@pytest.mark.parametrize("form", ["json", "verbose status"])
def test_two_answers_alike_make_it_sure(answer, form):
    found = answer(parts("never-first")[form], parts("never-second")[form])
    assert (roots(found), found["waited_for"]["certainty"]) == ("1", "sure")


def test_ranks_in_different_operations_wait_for_each_other(answer):
    """The text of this answer has one of the two operations alone."""
    found = answer(parts("differ-second")["json"])
    assert found["causes"][0]["cause"] == "rank_desync_app"
    assert found["causes"][0]["certainty"] != "sure"
    wait = found["waited_for"]["waits"][0]
    calls = {call["what"]: call["ranks"] for call in wait["calls"]}
    assert (wait["role"], calls) == ("different", {"AllGather #1": "1", "AllReduce #225": "0"})


def test_one_rank_in_an_operation_that_no_other_called_is_the_odd_one(answer):
    found = answer(
        HEAD.format(first="MISMATCH", second="OK", errors="", warnings="""
#0-0 (4df11a56c0a98c23) MISMATCH
  Communicator ranks have different AllGather operation counts
  7 ranks have not launched any operations
  Rank 5 has launched up to operation 1 -- GPU 1 managed by process 4105 on node 10.0.0.2
""")
    )  # fmt: skip
    assert found["causes"][0]["cause"] == "rank_desync_app"
    assert "rank 5 (process 4105" in str(found["causes"][0]["evidence"])


@pytest.mark.parametrize("form", ["json", "verbose status"])
def test_rank_that_does_not_answer_is_named_with_its_process(answer, form):
    """NCCL 2.28.9 forgets a comma in this JSON."""
    found = answer(parts("killed-second")[form])
    first = found["causes"][0]
    assert (first["cause"], *first["where"][:2]) == ("rank_failed", "rank 1", "host 127.0.0.1")
    assert "rank 1 (process 705 on node 127.0.0.1)" in str(first["evidence"])


def test_counts_that_rise_show_a_job_that_runs(answer):
    found = answer(parts("healthy-first")["json"], parts("healthy-second")["json"])
    assert (found["outcome"]["word"], found["found"]) == ("healthy", False)


@pytest.mark.parametrize("form", ["json", "verbose status"])
def test_one_answer_of_a_healthy_job_accuses_nobody(answer, form):
    found = answer(parts("healthy-second")[form])
    assert (found["found"], found["waited_for"]) == (False, None)


def test_rank_among_many_that_are_only_counted_is_named(answer):
    """The text names only ranks that differ, and counts the others."""
    found = answer(
        HEAD.format(first="MISMATCH", second="OK", errors="", warnings="""
#0-0 (4df11a56c0a98c23) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 60
  Rank 5 has launched up to operation 59 -- GPU 1 managed by process 4105 on node 10.0.0.2
""")
    )  # fmt: skip
    wait = found["waited_for"]["waits"][0]
    assert (roots(found), wait["waiting"]["ranks"], wait["seq"]) == ("5", "0-4,6-7", 60)


def test_named_ranks_below_a_count_are_not_missing(answer):
    found = answer(
        HEAD.format(first="MISMATCH", second="OK", errors="", warnings="""
#0-0 (4df11a56c0a98c23) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 60
  2 ranks have launched up to operation 59
  Rank 5 -- GPU 1 managed by process 4105 on node 10.0.0.2
  Rank 6 -- GPU 2 managed by process 4106 on node 10.0.0.2
""")
    )  # fmt: skip
    assert roots(found) == "5-6"


def test_number_in_a_small_communicator_is_not_the_rank_of_the_job(answer):
    """Rank 1 of a tensor group; only the process is known."""
    found = answer(
        HEAD.format(first="OK", second="MISMATCH", errors="", warnings="""
#1-2 (77aa11) MISMATCH
  Communicator ranks have different AllGather operation counts
  Rank 0 has launched up to operation 900 -- GPU 0 managed by process 4104 on node 10.0.0.2
  Rank 1 has launched up to operation 899 -- GPU 1 managed by process 4105 on node 10.0.0.2
""")
    )  # fmt: skip
    assert "process 4105 on node 10.0.0.2" in found["outcome"]["why"]
    assert "rank 1" not in found["outcome"]["why"]


def test_process_that_ras_takes_for_dead_is_said_to_be(answer):
    found = answer(
        HEAD.format(first="INCOMPLETE", second="OK", warnings="", errors="""
INCOMPLETE
  Missing communicator data from 1 job process
  Process 4105 on node 10.0.0.2 managing GPU 1

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4105 on node 10.0.0.2 managing GPU 1

#0-0 (4df11a56c0a98c23) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 5 -- GPU 1 managed by process 4105 on node 10.0.0.2
""")
    )  # fmt: skip
    assert found["causes"][0]["cause"] == "rank_failed"
    assert "rank 5 (process 4105 on node 10.0.0.2) is dead" in str(found["causes"][0]["evidence"])


def test_lines_of_ras_within_another_text_are_found(answer):
    found = answer(
        "it hangs since noon, ncclras -v says\n"
        "#0-0 (5a1c0e2277) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  511 ranks have launched up to operation 118231\n"
        "  Rank 406 has launched up to operation 118230 -- GPU 2 managed by process 3311 on node"
        " 198.51.100.40\n"
    )
    assert roots(found) == "406"


@pytest.mark.parametrize("line", ["Job summary: 3 steps done", "part 7 (of 9) INCOMPLETE"])
def test_words_of_ras_in_another_program_s_log_are_no_answer(answer, line):
    found = answer(f"step 1\n{line}\nstep 2\n")
    assert (found["waited_for"], found["found"]) == (None, False)


def test_rank_that_left_its_communicator_is_the_one_that_the_others_wait_for(answer):
    lines = (
        "#0-0 (f10288c07ba06b80) MISMATCH\n  Communicator ranks have different status\n"
        + "".join(
            f"  Rank {rank} has status {status} -- GPU {rank} managed by process {6550 + rank} on node"
            " 192.0.2.2\n"
            for rank, status in ((0, "RUNNING"), (1, "NOCOMM"))
        )
    )
    found = answer(HEAD.format(first="MISMATCH", second="OK", errors="", warnings=lines))
    first = found["causes"][0]
    assert (first["cause"], first["where"]) == ("rank_desync_app", ["rank 1", "host 192.0.2.2"])
    assert "has aborted or destroyed a communicator" in first["evidence"][0]["says"]


def test_nobody_is_absent_where_ras_counts_all_ranks_equally(answer):
    caught = (
        "[rank3]:[E1122 05:44:31.771 ProcessGroupNCCL.cpp:685] [Rank 3] Watchdog caught collective"
        " operation timeout: WorkNCCL(SeqNum=22, OpType=ALLREDUCE, NumelIn=64, NumelOut=64,"
        " Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
    )
    even = HEAD.format(first="OK", second="OK", errors="", warnings="")
    found = answer(even, f"[rank5] step 9 loss 2.1\n{caught}")
    assert "counts equally many launches of all 8 ranks" in found["outcome"]["why"]
    assert found["waited_for"]["missing"]["count"] == found["waited_for"]["roots"]["count"] == 0
    assert "no line of the other ranks" in answer("", caught)["outcome"]["why"]
