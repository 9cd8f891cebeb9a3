"""Stacks of a hanging job, as py-spy prints them: which process waits for what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_diagnosis import diagnose

RECORDED = Path(__file__).parents[4] / "fixtures" / "inspect" / "two_gpus" / "evidence"
COLLECTIVE = """\
Process {pid}: python train.py
Thread {pid} (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    step (train.py:88)
"""
LOADER = """\
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    wait (threading.py:320)
    _try_get_data (torch/utils/data/dataloader.py:1133)
    main (train.py:130)
"""


def causes(folder, **stacks):
    """(cause, reason) of each cause above a remark."""
    for name, text in stacks.items():
        (folder / f"{name}.txt").write_text(text)
    found = diagnose([str(folder)])["causes"]
    return [
        (one["cause"], one["evidence"][0]["says"]) for one in found if one["severity"] != "info"
    ]


def test_processes_that_all_wait_for_data_or_all_for_a_collective_are_no_sign_of_it(tmp_path):
    for number, stack in enumerate((COLLECTIVE, LOADER)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert causes(folder, rank0=stack.format(pid=10), rank1=stack.format(pid=11)) == []


SAVING = """\
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    save (torch/serialization.py:1004)
    keep (train.py:70)
    main (train.py:131)
"""


def test_rank_that_saves_while_the_others_wait_is_named_without_a_verdict_on_it(tmp_path):
    for rank in range(4):
        stack = (SAVING if rank == 2 else COLLECTIVE).format(pid=10 + rank)
        (tmp_path / f"rank{rank}.txt").write_text(stack)
    answer = diagnose([str(tmp_path)])
    assert [one["severity"] for one in answer["causes"]] == ["info"]
    assert answer["outcome"]["word"] == "no_end"
    why = answer["outcome"]["why"]
    assert why.startswith("rank 2 is saving in main (train.py:131) > keep (train.py:70)")
    assert why.endswith("whether it is late or hangs, a second dump shows")
    assert answer["outcome"]["line"]["file"].endswith("rank2.txt")


@pytest.mark.parametrize(
    ("scene", "does"),
    [
        ("checkpoint", "saving"),
        ("compile", "compiling"),
        ("evaluation", "evaluating"),
        ("import", "importing"),
        ("restore", "restoring"),
    ],
)
def test_recorded_rank_that_is_busy_and_healthy_gets_no_cause_of_one_dump(tmp_path, scene, does):
    look = json.loads((RECORDED / f"{scene}-RAS-and-stacks.json").read_text(encoding="utf-8"))
    ranks = {row["pid"]: row["rank"] for row in look["ranks"]}
    for process in look["sections"]["stacks"]["processes"]:
        thread = next(one for one in process["threads"] if one["is_main"])
        state = "active" if thread["active"] else "idle"
        frames = "".join(f"    {frame}\n" for frame in thread["frames"])
        (tmp_path / f"rank{ranks[process['pid']]}.txt").write_text(
            f"Process {process['pid']}: python job.py\n"
            f'Thread {process["pid"]} ({state}): "MainThread"\n{frames}'
        )
    answer = diagnose([str(tmp_path)])
    assert [one["cause"] for one in answer["causes"] if one["severity"] != "info"] == []
    assert answer["outcome"]["why"].startswith(f"rank 1 is {does} in ")


STAGE = """\
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    {call} (torch/distributed/distributed_c10d.py:2753)
    {stage} (train.py:{line})
    run (train.py:91)
    main (train.py:124)
"""
LEFT = """\
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    {call} (torch/distributed/distributed_c10d.py:5356)
    main (train.py:126)
"""
IN_STEPS = [("send", "forward", 49), ("all_reduce", "sync", 68), ("recv", "forward", 47)] * 3


@pytest.mark.parametrize(
    ("call", "left", "named"),
    [("barrier", (6,), ["rank 6"]), ("barrier", (), []), ("all_reduce", (6,), []),
     ("send", (6,), []), ("barrier", (5, 6, 7), [])],
)  # fmt: skip
def test_rank_of_a_pipeline_that_waits_outside_of_the_others_loop_is_named(
    tmp_path, call, left, named
):
    for rank, (own, stage, line) in enumerate(IN_STEPS[:8]):
        form = LEFT if rank in left else STAGE
        text = form.format(pid=rank, call=call if rank in left else own, stage=stage, line=line)
        (tmp_path / f"rank{rank}.txt").write_text(text)
    found = diagnose([str(tmp_path)])
    assert [one for one in found["causes"] if one["severity"] != "info"] == []
    assert [who for one in found["causes"] for who in one["where"]] == named
    told = "rank 6 waits in barrier, called by main (train.py:126), and left the calls"
    assert found["outcome"]["why"].startswith(told) == bool(named)
