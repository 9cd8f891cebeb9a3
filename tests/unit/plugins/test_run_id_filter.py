"""Ids of runs, and whether the run that a lock names has ended."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unhang.core.ansible.controllers import is_over

PLUGIN = Path(__file__).resolve().parents[3] / "plugins" / "filter" / "unhang_run_id.py"


def load_filters(path):
    """A plugin's filters, loaded by path as Ansible loads them."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()


FILTERS = load_filters(PLUGIN)
new_run_id, controller = (FILTERS[name] for name in ("unhang_run_id", "unhang_run_controller"))


def holder(pid, **more):
    """A lock of a run that this machine's process has taken."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    return {
        "run": "first",
        "controller": {**controller(), "pid": pid, "born": int(stat[19]), **more},
    }


def test_a_runs_id_says_when_where_and_which_process():
    first = new_run_id()
    assert first.endswith(f"-{os.getpid()}")
    assert first.startswith("20")


def test_a_process_that_lives_is_not_over_and_one_that_ended_is():
    waiting = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = holder(waiting.pid)
    try:
        assert not is_over(held)
    finally:
        waiting.communicate(b"\n")
    assert is_over(held)


def test_a_process_that_ended_and_waits_for_its_parent_is_over():
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = holder(ended.pid)
    ended.stdin.close()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert is_over(held)
    finally:
        ended.wait()


def test_another_process_with_the_number_of_the_first_does_not_keep_the_lock():
    assert is_over(holder(os.getpid(), born=1))
    assert not is_over(holder(os.getpid()))


@pytest.mark.parametrize(
    "other",
    [{"machine": "f" * 32}, {"boot": "another"}, {"pid_namespace": "pid:[1]"}, {"boot": None}],
)
def test_a_controller_of_the_same_name_that_is_another_machine_or_container_is_never_over(other):
    assert is_over(holder(os.getpid(), born=1, **other)) is None


@pytest.mark.parametrize(
    "held",
    [
        None,
        {},
        {"run": "", "controller": {}},
        {"controller": "x"},
        {"controller": {"pid": 1}},
        {"run": None, "controller": None},
    ],
)
def test_what_cannot_be_known_is_not_over(held):
    assert not is_over(held)


def test_a_path_in_the_folder_of_runs_follows_the_variable_and_else_the_checkout(
    monkeypatch, tmp_path
):
    runs_path = load_filters(PLUGIN)["unhang_runs_path"]
    monkeypatch.delenv("UNHANG_RUNS", raising=False)
    assert runs_path("smoke") == str(PLUGIN.parents[2] / "runs" / "smoke")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("UNHANG_RUNS", "~/mine")
    assert runs_path("latest/admission") == str(tmp_path / "mine" / "latest" / "admission")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNHANG_RUNS", "relative")
    assert runs_path("smoke") == str(tmp_path / "relative" / "smoke")
