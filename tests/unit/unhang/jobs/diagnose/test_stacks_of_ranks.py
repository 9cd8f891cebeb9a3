"""Stacks of a hanging job, as py-spy prints them: which process waits for what."""

from __future__ import annotations

from unhang.jobs.diagnose.diagnosing import diagnose

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
