"""Processes that write the history at the same time, or are killed while writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_folders import Fleet, facts, finding

import unhang
from unhang.audit.history.database import reading
from unhang.audit.history.location import ROLLBACK, WRITE_AHEAD
from unhang.audit.history.recording import record
from unhang.audit.history.run_rows import run_rows

TOOLS = str(Path(unhang.__file__).resolve().parents[1])
MODULE_UTILS = str(Path(TOOLS).parent / "module_utils")
RECORD = """
import os, sys
from pathlib import Path
from unhang.audit.history import database
from unhang.audit.history.recording import keep_run
database.journal_mode = lambda folder: os.environ["JOURNAL"]
for folder in sys.argv[2:]:
    if line := keep_run(Path(folder), sys.argv[1]):
        sys.exit(line)
"""
DEADLINE_S = 120


@pytest.fixture
def fleet(tmp_path):
    """A maker of runs."""
    return Fleet(tmp_path)


@pytest.fixture
def db(tmp_path):
    """A file that does not exist yet."""
    return tmp_path / "state" / "history.db"


@pytest.fixture(params=[WRITE_AHEAD, ROLLBACK])
def journal(request, monkeypatch):
    """The journal mode for each kind of file system, on this machine's: the test is about SQLite's
    own locks and those of unhang."""
    monkeypatch.setattr("unhang.audit.history.database.journal_mode", lambda folder: request.param)
    return request.param


def started(db, journal, *folders):
    """Another program that stores runs, on a file system that supports this journal."""
    environment = {
        **os.environ,
        "JOURNAL": journal,
        "PYTHONPATH": os.pathsep.join((TOOLS, MODULE_UTILS)),
    }
    return subprocess.Popen(
        [sys.executable, "-c", RECORD, str(db), *map(str, folders)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_writers_at_once_lose_nothing_and_make_the_file_together(fleet, db, journal):
    runs = [
        fleet.run(
            {"a": facts(f"{number}.0"), f"b{number}": facts()}, [finding("bad", f"b{number}")]
        )
        for number in range(12)
    ]
    writers = [started(db, journal, *runs[place::4]) for place in range(4)]
    problems = [writer.communicate(timeout=DEADLINE_S)[1] for writer in writers]
    assert (problems, [writer.returncode for writer in writers]) == ([""] * 4, [0] * 4)
    with reading(db) as connection:
        assert {row.id for row in run_rows(connection)} == {run.name for run in runs}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert connection.execute(
            "SELECT count(*) FROM findings WHERE to_run IS NULL"
        ).fetchone() == (12,)
        spans = connection.execute(
            "SELECT from_run, to_run FROM facts JOIN hosts ON hosts.id = host WHERE name = 'a' AND"
            " section = 'driver' ORDER BY 1"
        ).fetchall()
    assert (
        [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]]
        and spans[-1][1] is None
        and len(spans) == 12
    )


def test_a_writer_that_is_killed_leaves_the_last_state(fleet, db, journal):
    record(fleet.run({"a": facts()}, []), db)
    run = fleet.run({f"n{number}": facts() for number in range(100)}, [])
    writer = started(db, journal, run)
    beside = db.with_name("history.db-wal" if journal == WRITE_AHEAD else "history.db-journal")
    while not beside.exists() and writer.poll() is None:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=DEADLINE_S)
    with reading(db) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert len(run_rows(connection)) in (1, 2)
