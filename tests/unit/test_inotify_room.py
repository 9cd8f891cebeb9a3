"""Test beds share the machine's limit on inotify instances: nobody sets it back while another still
needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from inotify_room import INSTANCES, room_for_nodes

SUPPORT = Path(__file__).resolve().parents[1] / "support"
HOLDS = """
import pathlib, sys
sys.path.insert(0, {support!r})
from inotify_room import room_for_nodes
with room_for_nodes(pathlib.Path({folder!r}), pathlib.Path({limit!r})):
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def limit(tmp_path):
    path = tmp_path / "max_user_instances"
    path.write_text("128\n")
    return path


def another(tmp_path, limit):
    """A process that needs the room until its standard input ends."""
    text = HOLDS.format(support=str(SUPPORT), folder=str(tmp_path / "cache"), limit=str(limit))
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"holds\n"
    return process


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_last_one_sets_it_back_whoever_was_first(tmp_path, limit, is_killed):
    first = another(tmp_path, limit)
    with first, room_for_nodes(tmp_path / "cache", limit):
        assert limit.read_text() == str(INSTANCES)
        if is_killed:
            first.kill()
        first.stdin.close()
        first.wait()
        assert limit.read_text() == str(INSTANCES)
    assert limit.read_text() == "128\n"


def test_one_that_ends_earlier_leaves_it_to_the_other(tmp_path, limit):
    with another(tmp_path, limit) as other:
        with room_for_nodes(tmp_path / "cache", limit):
            pass
        assert limit.read_text() == str(INSTANCES)
        other.stdin.close()
        other.wait()
    assert limit.read_text() == "128\n"


def test_a_limit_that_is_high_enough_is_left_alone(tmp_path, limit):
    limit.write_text("8192\n")
    with room_for_nodes(tmp_path / "cache", limit):
        assert limit.read_text() == "8192\n"
    assert limit.read_text() == "8192\n"
