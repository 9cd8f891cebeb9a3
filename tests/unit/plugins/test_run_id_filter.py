"""Names of runs, and whether the run that a lock names is over."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[3] / "plugins" / "filter" / "unhang_run_id.py"


def load_filters(path):
    """A plugin's filters, loaded by path as Ansible loads them."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()


FILTERS = load_filters(PLUGIN)
new_run_id, run_is_over = FILTERS["unhang_run_id"], FILTERS["unhang_run_is_over"]


def named(pid):
    """The id of a run of this machine by another process."""
    return new_run_id().rsplit("-", 1)[0] + f"-{pid}"


def test_a_runs_id_says_when_where_and_which_process():
    first = new_run_id()
    assert first.endswith(f"-{os.getpid()}")
    assert first.startswith("20")


def test_a_process_that_is_gone_is_over():
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True).stdout.strip()
    assert run_is_over({"run": named(gone)})


@pytest.mark.parametrize(("words", "over"), [(["ansible-playbook"], False), (["something"], True)])
def test_a_process_that_lives_is_over_only_when_it_is_no_ansible(words, over):
    waiting = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        waiting.stdout.readline()  # /proc knows a new process before it knows its words
        assert run_is_over({"run": named(waiting.pid)}) is over
    finally:
        waiting.communicate(b"\n")


def test_a_process_that_ended_and_waits_for_its_parent_is_over():
    ended = subprocess.Popen([sys.executable, "-c", "", "ansible-playbook"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert run_is_over({"run": named(ended.pid)})
    finally:
        ended.wait()


def test_our_own_number_in_another_id_was_an_earlier_process():
    assert run_is_over({"run": named(os.getpid())})


@pytest.mark.parametrize("holder", [None, {}, {"run": ""}, {"run": "nightly"}, {"run": "20261120T070000Z-another.host-1"}, {"run": None}])
def test_what_cannot_be_known_is_not_over(holder):
    assert run_is_over(holder) is False
