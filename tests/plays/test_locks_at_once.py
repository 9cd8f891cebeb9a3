"""Many processes lock one node at the same time."""

from __future__ import annotations

import multiprocessing
import os

from unhang_node.change.journal.node_lock import (
    LockRequest,
    NodeLocked,
    free_lock,
    read_lock,
    take_lock,
)


def wish(run, expires_s=600, across_reboot=False):
    return LockRequest(
        run=run, by="ops@ctl1", expires_s=expires_s, across_reboot=across_reboot, takes_over=""
    )


def rush(root, number, answers):
    """One of many processes that want the node at the same time; it releases the lock and takes it
    again."""
    got = 0
    for _ in range(20):
        try:
            fencing = take_lock(root, wish(f"run{number}"), 60).fencing
        except NodeLocked:
            continue
        os.mkdir(f"{root}/alone")  # fails when another one has it too
        got += 1
        os.rmdir(f"{root}/alone")
        free_lock(root, f"run{number}", fencing)
    answers.put(got)


def test_of_many_at_once_only_one_has_the_node(tmp_path):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    runs = [
        context.Process(target=rush, args=(str(tmp_path), number, answers), daemon=True)
        for number in range(3)
    ]
    for run in runs:
        run.start()
    got = [answers.get(timeout=240) for _ in runs]
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0, 0]
    assert all(got)
    assert read_lock(str(tmp_path)) is None
