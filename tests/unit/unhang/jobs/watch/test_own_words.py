"""What the watcher writes into its job's log is no progress of the job: with real processes and
files, as `unhang watch -- JOB > job.log 2>&1` has them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unhang.jobs.watch.detector import ticks
from unhang.jobs.watch.own_words import own_words
from unhang_node.base.root import Root
from unhang_node.job.looks import log_of
from unhang_node.job.samples import process_samples

UNHANG = str(Path(sys.executable).with_name("unhang"))
PATIENCE_S = 120
QUIET = "import time; print('job', flush=True); time.sleep(600)"


@pytest.mark.slow
def test_a_job_that_shares_the_watcher_s_log_is_silent_for_as_long_as_it_is(tmp_path):
    """Each look of the watcher writes lines into that file."""
    log = tmp_path / "job.log"
    argv = [UNHANG, "watch", "--every", "0.2", "--no-progress", "1", "--", sys.executable]
    with log.open("w") as file:
        watcher = subprocess.Popen(
            [*argv, "-c", QUIET],
            stdout=file,
            stderr=file,
            env={**os.environ, "UNHANG_WATCHED": str(tmp_path / "watched.jsonl")},
        )
    try:
        until, longest = time.monotonic() + PATIENCE_S, 0
        while longest < 6 and time.monotonic() < until and watcher.poll() is None:
            time.sleep(0.2)
            longest = max(
                map(int, re.findall(r"was found for (\d+) s", log.read_text())), default=0
            )
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(PATIENCE_S)
    assert longest >= 6, log.read_text()
    assert log.read_text().count("looking at the job") > 1


@contextlib.contextmanager
def shared(path):
    """This process's standard error goes to the file; yields its name in a sample."""
    before = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        status = path.stat()
        yield f"{status.st_dev}:{status.st_ino}"
    finally:
        os.dup2(before, 2)
        os.close(before)


def test_of_a_shared_log_what_the_job_wrote_is_left(tmp_path):
    path = tmp_path / "job.log"
    with shared(path) as name, own_words() as words:
        for number in range(3):
            sys.stderr.write("ünhang watch: still hung\n")
            with path.open("ab") as job:
                job.write(b"step\n")
            taken = words.taken_off({"t": 1.0, "log": name, "log_bytes": path.stat().st_size})
            assert taken == {"t": 1.0, "log": name, "log_bytes": 5 * (number + 1)}
        of_a_node = {"asked_as": "gpu001", "log": f"99:{path.stat().st_ino}", "log_bytes": 9999}
        assert words.taken_off(of_a_node)["log_bytes"] == 15  # by NFS, with a device of its own
        assert path.read_text().count("still hung") == 3
        others = [{"log": f"99:{path.stat().st_ino}", "log_bytes": 7}, {"t": 1.0, "log_bytes": 7}]
        assert [words.taken_off(line) for line in others] == others


def test_a_log_that_several_ranks_share_counts_once(tmp_path):
    logs = [tmp_path / name for name in ("one.log", "one.log", "two.log")]
    ranks = [subprocess.Popen([sys.executable, "-c", QUIET], stdout=log.open("ab")) for log in logs]
    try:
        until = time.monotonic() + PATIENCE_S
        while sum(log.stat().st_size for log in set(logs)) < 12 and time.monotonic() < until:
            time.sleep(0.05)
        rows = [{"pid": one.pid, "rank": number, "started": 0} for number, one in enumerate(ranks)]
        assert log_of(Root(), ranks[2].pid)[1] == 4
        [tick] = ticks(process_samples(Root(), rows, 1.0))
        assert sum(tick.logs.values()) == 12
    finally:
        for one in ranks:
            one.kill()
            one.wait()
