"""The judge of the playbooks that change nodes, on a run folder with one real collector's answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import action_loader
from fakes.node_tree import plant
from fakes.nvml_runs import H200X8, collect_in_process
from fakes.role_play import PROJECT

from unhang.act.rollout.baseline import KEPT
from unhang.act.rollout.kept import proof_of

PINNED = "cuda-visible-devices-pinned"
CONTROLLER = {"unhang": "0", "ansible_core": "2", "python": "3"}
RUN = {
    "schema": "unhang/run/1",
    "id": "r",
    "started": "2026-11-20T07:00:00Z",
    "finished": None,
    "inventory": [],
    "limit": None,
    "hosts": ["gpu001", "gpu002"],
}


@pytest.fixture
def run(tmp_path):
    """A run of two nodes, of which one was unreachable, and a function that reads the other
    again."""
    folder = tmp_path / "run"
    (folder / "nodes").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({**RUN, "controller": CONTROLLER, "policy_sources": []})
    )

    def read(environment, status="ok", policy=None, without=None):
        plant(
            tmp_path / "node", {"/etc/os-release": "ID=debian\n", "/etc/environment": environment}
        )
        facts = (
            collect_in_process("--rootfs", str(tmp_path / "node"), "--nvml-recording", str(H200X8))
            if status == "ok"
            else None
        )
        if without:
            section = facts["sections"]["gpus"]
            section["devices"] = section["devices"][: without["gpus"]]
        document = {
            "schema": "unhang/node/1",
            "groups": ["gpu"],
            "policy": policy or {},
            "message": None if facts else "no route to host",
            "facts": facts,
        }
        (folder / "nodes" / "gpu001.json").write_text(
            json.dumps({**document, "host": "gpu001", "status": status})
        )
        lost = {
            **document,
            "host": "gpu002",
            "status": "unreachable",
            "message": "no route to host",
            "facts": None,
        }
        (folder / "nodes" / "gpu002.json").write_text(json.dumps(lost))

    return folder, read


@pytest.fixture
def judge(monkeypatch):
    """judge(folder, part, host="", **options): what the plugin returns."""
    action_loader.add_directory(str(PROJECT / "plugins" / "action"))
    plugin = action_loader.get("rollout_judge", class_only=True)

    def judged(folder, part, host="gpu001", **options):
        monkeypatch.setenv("UNHANG_RUN_DIR", str(folder))
        asked = {"part": part, "severities": ["critical", "error"], **options}
        task = SimpleNamespace(args=asked, async_val=0, check_mode=False, action="rollout_judge")
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/nowhere"))
        action = plugin(task, connection, None, None, None, None)
        return action.run(task_vars={"inventory_hostname": host})

    return judged


def before_of(folder, host="gpu001"):
    return json.loads((folder / f"baseline-{host}.json").read_text())


def test_a_node_is_proved_by_what_the_judge_finds_after_it_was_read_again(run, judge):
    folder, read = run
    read("CUDA_VISIBLE_DEVICES=0\n")
    nodes = judge(folder, "begin")["nodes"]
    files = [row.pop("baseline") for row in nodes.values()]
    assert nodes == {
        "gpu001": {"status": "ok", "message": "", "refusals": []},
        "gpu002": {"status": "unreachable", "message": "no route to host", "refusals": []},
    }
    before = json.loads(Path(files[0]).read_text())
    unchanged = judge(folder, "prove", baseline=before)
    assert unchanged["failed"]
    assert not unchanged["proof"]["healthy"]
    assert unchanged["msg"].startswith(f"left: {PINNED} (error)")

    read("# CUDA_VISIBLE_DEVICES=0\n")
    about = {"roles": ["gpu_binding"]}
    found = judge(folder, "prove", baseline=before, about=about)
    assert not found["failed"]
    assert found["proof"]["healthy"]
    assert found["proof"]["gone"] == [PINNED]
    written = json.loads((folder / "remediation-gpu001.json").read_text())
    assert written == {
        "schema": "unhang/remediation/1",
        "host": "gpu001",
        "roles": ["gpu_binding"],
        **found["proof"],
    }

    reboot = judge(folder, "prove", baseline=before, about=about, pending="the new driver")
    assert reboot["failed"]
    assert reboot["msg"].startswith("a reboot is needed: the new driver; ")

    read("", status="unreachable")
    lost = judge(folder, "prove", baseline=before)
    assert lost["failed"]
    assert lost["msg"].startswith("it was not read: unreachable, no route to host")


def test_what_a_proof_saw_is_kept_beside_the_plan_and_a_node_that_is_not_proved_leaves_nothing(
    run, tmp_path, judge
):
    folder, read = run
    read("CUDA_VISIBLE_DEVICES=0\n")
    judge(folder, "begin")
    asked = {"baseline": before_of(folder), "beside": str(tmp_path)}
    assert judge(folder, "prove", **asked)["failed"]
    assert proof_of(tmp_path, "gpu001") is None
    read("")
    assert judge(folder, "prove", **asked)["proof"]["healthy"]
    seen = proof_of(tmp_path, "gpu001")
    assert PINNED not in seen.failed
    assert len(seen.hardware["gpus"]) == 8


def test_damage_of_an_unproved_run_stays_damage_when_the_run_is_repeated(run, judge):
    """The baseline of the first run is returned again: what the second run measures before it acts
    is ignored."""
    folder, read = run
    read("")
    judge(folder, "begin")
    kept = before_of(folder)
    read("", without={"gpus": 7})
    for _ in range(2):
        found = judge(folder, "prove", baseline=kept)
        assert found["failed"]
        assert "lost: of the 8 GPUs of before, 7 are there" in found["msg"]
        judge(folder, "begin")
    assert "lost" not in judge(folder, "prove", baseline=before_of(folder))["msg"]


def test_missing_hardware_is_waited_for_until_the_time_since_the_first_look_is_over(
    run, judge, monkeypatch
):
    folder, read = run
    read("")
    judge(folder, "begin")
    read("", without={"gpus": 7})
    slept = []
    sleep = time.sleep
    monkeypatch.setattr(
        time, "sleep", lambda asked_s: slept.append(asked_s) if asked_s > 1 else sleep(asked_s)
    )
    asked = {"baseline": before_of(folder), "wait_s": 300}
    first = judge(folder, "prove", **asked)
    assert (first["again"], first["msg"], slept) == (True, first["proof"]["lost"], [10])
    last = judge(folder, "prove", **asked, since=first["since"] - 295)
    assert (last["again"], last["failed"], slept) == (False, True, [10])
    read("")
    assert not judge(folder, "prove", **asked, since=first["since"] - 295)["failed"]


def test_a_node_without_its_baseline_is_compared_with_the_copy_beside_the_plan_or_not_proved(
    run, tmp_path, judge
):
    folder, read = run
    read("")
    judge(folder, "begin")
    with pytest.raises(AnsibleActionFail, match="of gpu001 is neither on the node nor in "):
        judge(folder, "prove", beside=str(tmp_path))
    (tmp_path / KEPT).mkdir()
    (folder / "baseline-gpu001.json").rename(tmp_path / KEPT / "gpu001.json")
    read("", without={"gpus": 7})
    judge(folder, "begin")
    found = judge(folder, "prove", beside=str(tmp_path))
    assert "of the 8 GPUs of before, 7 are there" in found["msg"]


def test_a_policy_is_refused_with_its_reason_and_mistakes_are_one_line(run, judge):
    folder, read = run
    read("", policy={"driver": {"versoin": "1"}})
    (refusal,) = judge(folder, "begin")["nodes"]["gpu001"]["refusals"]
    assert refusal.startswith("The policy cannot be used (policy-not-usable)")
    before = before_of(folder)
    for place, part, options in (
        (folder.parent, "begin", {}),
        (folder, "prove", {}),
        (folder, "prove", {"baseline": before, "host": "gpu009"}),
    ):
        with pytest.raises(AnsibleActionFail) as refused:
            judge(place, part, **options)
        assert "\n" not in str(refused.value)
