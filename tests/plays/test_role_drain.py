"""The role drain without a scheduler that it supports: a site's hook, and processes that hold the
GPUs."""

from __future__ import annotations

import json

import pytest
import site_drain
from fakes.role_play import drain_tasks, play_tasks
from site_drain import FREE

ANSWERED = {**FREE, "at": ""}


def play(folder, step, *arguments, **variables):
    """(code, drain_result, all output) of one step, on this machine."""
    host = {"drain_run": "r1", "drain_wait_timeout_s": 0, **variables}
    done = play_tasks(folder, {"gpu001": host}, *drain_tasks(folder, step), arguments=arguments)
    return done.code, json.loads((folder / "said.json").read_text()), done.output


def site(folder, **state):
    """A site's hook with the state of the node; the variables that name it."""
    return {**site_drain.install(folder, {"gpu001": state}), "drain_why": "driver"}


def test_a_hook_drains_and_releases_and_a_preview_changes_nothing(tmp_path):
    variables = site(tmp_path)
    code, result, output = play(tmp_path, "drain", "--check", **variables)
    assert (code, result) == (0, ANSWERED)
    assert "the hook would be called with drain" in output
    assert site_drain.known(tmp_path, "gpu001") == FREE
    assert play(tmp_path, "drain", **variables)[:2] == (
        0,
        {
            "drained": True,
            "by": "site",
            "reason": "unhang r1: driver",
            "jobs": [],
            "owned": True,
            "at": "",
        },
    )
    assert play(tmp_path, "wait", **variables)[0] == 0
    assert play(tmp_path, "release", **variables)[:2] == (0, ANSWERED)


def test_a_hooks_jobs_and_the_drain_of_somebody_else_are_reported(tmp_path):
    variables = site(
        tmp_path,
        drained=True,
        by="alice",
        reason="bad DIMM",
        jobs=[{"id": "7", "user": "bob", "state": "RUNNING"}],
    )
    code, result, output = play(tmp_path, "wait", **variables)
    assert code != 0
    assert "jobs 7 are there; no job was touched" in output
    assert result["jobs"] == [{"id": "7", "user": "bob", "state": "RUNNING", "ends": ""}]
    code, result, output = play(tmp_path, "release", **variables)
    assert (code, result["drained"], result["owned"]) == (0, True, False)
    assert "gpu001 is drained by alice (bad DIMM): left so" in output


def test_a_step_that_is_none_and_an_adapter_that_is_none_are_refused(tmp_path):
    assert (
        "value of drain_adapter must be one of: auto, slurm, kubernetes, command, none"
        in play(tmp_path, "drain", drain_adapter="pbs")[2]
    )
    assert "the role drain needs tasks_from (drain, wait, release)" in play(tmp_path, "main")[2]


@pytest.mark.parametrize("adapter", ["command", "none"])
def test_a_step_takes_few_tasks_for_each_costs_the_controller_a_process(tmp_path, adapter):
    # whatever runs on this machine
    beside = {"drain_beside_jobs": True, "drain_gpus_may_be_held": True}
    variables = {**site(tmp_path), **beside, "drain_adapter": adapter}
    counts = {}
    for step in ("drain", "wait", "release"):
        code, _result, output = play(tmp_path, step, **variables)
        assert code == 0
        tasks = [line for line in output.splitlines() if line.startswith("TASK [drain : ")]
        counts[step] = len([line for line in tasks if "Validating arguments" not in line])
    assert counts == {"drain": 4, "wait": 3, "release": 3}
