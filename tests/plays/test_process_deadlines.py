"""Programs that outlive their deadline."""

from __future__ import annotations

import time
from pathlib import Path

from unhang_node.base.process import run_process

PATIENT_S = 120  # seconds to wait for an event that is immediate on an idle machine


def shell(text, **options):
    return run_process(["/bin/sh", "-c", text], **{"deadline_s": PATIENT_S, **options})


def test_a_deadline_ends_the_program_and_its_children(tmp_path):
    done = shell(f"sleep 1000 & echo $! >{tmp_path}/pid; echo begun; wait", deadline_s=2)
    assert (done.code, done.timed_out, done.stdout) == (None, True, "begun\n")
    child = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    until = time.monotonic() + PATIENT_S
    while child.exists() and child.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_program_that_closes_its_outputs_is_still_waited_for():
    assert shell("exec >&- 2>&-; sleep 0.3; exit 4").code == 4
    assert shell("exec >&- 2>&-; sleep 1000", deadline_s=1).timed_out
