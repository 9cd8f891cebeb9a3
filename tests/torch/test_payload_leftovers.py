"""Folders of runs whose launcher was killed: the next survey of the same user removes them, except
those that may still be needed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from smoke_runs import DEADLINE_S, PAYLOAD

DAY_S = 86400
PLAN = {
    "nproc": 1,
    "rank_offset": 0,
    "world_size": 1,
    "master_address": "127.0.0.1",
    "master_port": 1,
    "total_timeout_s": 500,
    "start_timeout_s": 500,
}


def put(parent, name, record=None, age_s=0):
    """A folder in the state in which a run leaves it."""
    folder = parent / name
    folder.mkdir()
    (folder / "events.jsonl").write_text("{}\n")
    if record is not None:
        (folder / "keep-until").write_text(record)
    os.utime(folder, (time.time() - age_s, time.time() - age_s))
    return folder


def survey(parent):
    """The payload's survey in a process of its own, which every launcher runs first."""
    argv = [sys.executable, str(PAYLOAD), "survey"]
    done = subprocess.run(
        argv,
        env={**os.environ, "TMPDIR": str(parent)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert json.loads(done.stdout)["e"] == "survey"
    return sorted(path.name for path in parent.iterdir())


def test_what_is_past_its_time_goes_and_all_else_stays(tmp_path):
    now = int(time.time())
    put(tmp_path, "unhang-smoke-over", f"{now - 1}\n")
    put(tmp_path, "unhang-smoke-untold", age_s=2 * DAY_S)
    stays = [
        put(tmp_path, "unhang-smoke-wanted", f"{now + DAY_S}\n", age_s=9 * DAY_S),
        put(tmp_path, "unhang-smoke-fresh"),
        put(tmp_path, "unhang-smoke-broken", "x", age_s=9 * DAY_S),
        put(tmp_path, "elsewhere", f"{now - 1}\n", age_s=9 * DAY_S),
    ]
    (tmp_path / "unhang-smoke-link").symlink_to(stays[-1])
    assert survey(tmp_path) == sorted([*(path.name for path in stays), "unhang-smoke-link"])
    assert (stays[-1] / "events.jsonl").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_another_users_folder_stays(tmp_path):
    folder = put(tmp_path, "unhang-smoke-theirs", "1\n")
    os.chown(folder, 12345, 12345)
    assert survey(tmp_path) == ["unhang-smoke-theirs"]


@pytest.fixture
def agent(tmp_path):
    """An agent as the playbook starts it, with a rank that never prints anything. (agent, its
    folder)."""
    place = tmp_path / "unhang-smoke-place"
    place.mkdir()
    shutil.copy(PAYLOAD, place)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000000\n")
    python.chmod(0o755)
    argv = [
        sys.executable,
        str(place / PAYLOAD.name),
        "node",
        "--plan",
        json.dumps({**PLAN, "python": str(python)}),
        "--output",
        str(place / "events.jsonl"),
    ]
    with subprocess.Popen(
        argv,
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        until = time.monotonic() + DEADLINE_S
        while (
            "rank_begin" not in shown(place) and process.poll() is None and time.monotonic() < until
        ):
            time.sleep(0.05)
        yield process, place
        process.kill()


def shown(place):
    """The agent's events."""
    events = place / "events.jsonl"
    return events.read_text() if events.exists() else ""


def test_a_folder_stays_while_its_agent_runs_and_until_its_launcher_has_given_up(agent, tmp_path):
    process, place = agent
    assert "rank_begin" in shown(place)
    until = float((place / "keep-until").read_text())
    assert until > time.time() + PLAN["total_timeout_s"]
    (place / "keep-until").write_text("1\n")  # a clock that jumped
    assert "unhang-smoke-place" in survey(tmp_path)
    (place / "keep-until").write_text(f"{until:.0f}\n")
    process.send_signal(signal.SIGKILL)
    process.wait(DEADLINE_S)
    assert "unhang-smoke-place" in survey(tmp_path), "its launcher may still want what it told"
    (place / "keep-until").write_text("1\n")
    assert "unhang-smoke-place" not in survey(tmp_path)


def test_an_agent_clears_away_too(tmp_path):
    put(tmp_path, "unhang-smoke-over", "1\n")
    argv = [
        sys.executable,
        str(PAYLOAD),
        "node",
        "--plan",
        json.dumps({**PLAN, "python": "/bin/true"}),
    ]
    subprocess.run(
        argv,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert list(tmp_path.iterdir()) == []
