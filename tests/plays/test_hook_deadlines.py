"""A hook that does not end is killed at its limit."""

from __future__ import annotations

import time
from pathlib import Path

from unhang.core.commands.hook_orphans import call_and_end_all


def test_a_hook_that_does_not_end_is_killed_with_what_it_started(tmp_path):
    left = tmp_path / "left"
    script = f"sleep 1000 & echo $! > {left}; wait"
    assert (
        call_and_end_all(["sh", "-c", script], {"text": "unhang: 1 new"}, limit_s=2)
        == "it did not end within 2 s; it was killed"
    )
    # on a very busy machine it may not have started yet
    started = left.read_text().strip() if left.exists() else ""
    end = time.monotonic() + 60
    while started and is_alive(started):
        assert time.monotonic() < end, started
        time.sleep(0.05)


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
