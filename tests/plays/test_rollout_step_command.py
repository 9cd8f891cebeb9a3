"""The controller's part of remediate.yml, on a run folder with one real collector's answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.node_tree import plant
from fakes.nvml_runs import H200X8, collect_in_process

from unhang.act.rollout.baseline import KEPT
from unhang.act.rollout.rollout import proof_of
from unhang.cli import main

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


def printed_by(capsys, *arguments):
    assert main(["rollout-step", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_node_is_proved_by_what_the_judge_finds_after_it_was_read_again(run, capsys):
    folder, read = run
    read("CUDA_VISIBLE_DEVICES=0\n")
    nodes = printed_by(capsys, "begin", folder)["nodes"]
    files = [row.pop("baseline") for row in nodes.values()]
    assert nodes == {
        "gpu001": {"status": "ok", "message": "", "refusals": []},
        "gpu002": {"status": "unreachable", "message": "no route to host", "refusals": []},
    }
    before = "--baseline=" + Path(files[0]).read_text()
    unchanged = printed_by(capsys, before, "prove", folder, "gpu001")
    assert not unchanged["healthy"]
    assert unchanged["reasons"][0].startswith(f"left: {PINNED} (error)")

    read("# CUDA_VISIBLE_DEVICES=0\n")
    proof = printed_by(
        capsys, before, "--about", '{"roles": ["gpu_binding"]}', "prove", folder, "gpu001"
    )
    assert proof["healthy"]
    assert proof["gone"] == [PINNED]
    written = json.loads((folder / "remediation-gpu001.json").read_text())
    assert written == {
        "schema": "unhang/remediation/1",
        "host": "gpu001",
        "roles": ["gpu_binding"],
        **proof,
    }

    read("", status="unreachable")
    lost = printed_by(capsys, before, "prove", folder, "gpu001")
    assert not lost["healthy"]
    assert lost["reasons"][0] == "it was not read: unreachable, no route to host"


def test_what_a_proof_saw_is_kept_beside_the_plan_and_a_node_that_is_not_proved_leaves_nothing(
    run, tmp_path, capsys
):
    folder, read = run
    read("CUDA_VISIBLE_DEVICES=0\n")
    printed_by(capsys, "begin", folder)
    asked = (before_of(folder), f"--beside={tmp_path}", "prove", folder, "gpu001")
    assert not printed_by(capsys, *asked)["healthy"]
    assert proof_of(tmp_path, "gpu001") is None
    read("")
    assert printed_by(capsys, *asked)["healthy"]
    seen = proof_of(tmp_path, "gpu001")
    assert PINNED not in seen.failed
    assert len(seen.hardware["gpus"]) == 8


def before_of(folder, host="gpu001"):
    return "--baseline=" + (folder / f"baseline-{host}.json").read_text()


def test_damage_of_an_unproved_run_stays_damage_when_the_run_is_repeated(run, capsys):
    """The baseline of the first run is returned again: what the second run measures before it acts
    is ignored."""
    folder, read = run
    read("")
    printed_by(capsys, "begin", folder)
    kept = before_of(folder)
    read("", without={"gpus": 7})
    for _ in range(2):
        proof = printed_by(capsys, kept, "prove", folder, "gpu001")
        assert not proof["healthy"]
        assert any(
            line.startswith("lost: of the 8 GPUs of before, 7 are there")
            for line in proof["reasons"]
        )
        assert proof["lost"]
        printed_by(capsys, "begin", folder)
    assert not any(
        line.startswith("lost")
        for line in printed_by(capsys, before_of(folder), "prove", folder, "gpu001")["reasons"]
    )


def test_a_node_without_its_baseline_is_compared_with_the_copy_beside_the_plan_or_not_proved(
    run, tmp_path, capsys
):
    folder, read = run
    read("")
    printed_by(capsys, "begin", folder)
    asked = ("--baseline=null", f"--beside={tmp_path}", "prove", folder, "gpu001")
    assert main(["rollout-step", *map(str, asked)]) == 2
    assert "the baseline of gpu001 is neither on the node nor in " in capsys.readouterr().err
    (tmp_path / KEPT).mkdir()
    (folder / "baseline-gpu001.json").rename(tmp_path / KEPT / "gpu001.json")
    read("", without={"gpus": 7})
    printed_by(capsys, "begin", folder)
    assert "of the 8 GPUs of before, 7 are there" in printed_by(capsys, *asked)["reasons"][0]


@pytest.mark.parametrize("severities", ["", "critical,errors", "c,r,i"])
def test_severities_that_nobody_knows_are_refused(run, capsys, severities):
    folder, read = run
    read("")
    printed_by(capsys, "begin", folder)
    assert (
        main(
            [
                "rollout-step",
                f"--severities={severities}",
                before_of(folder),
                "prove",
                str(folder),
                "gpu001",
            ]
        )
        == 2
    )
    assert "--severities takes some of critical" in capsys.readouterr().err


def test_a_policy_is_refused_with_its_reason_and_mistakes_are_one_line(run, capsys):
    folder, read = run
    read("", policy={"driver": {"versoin": "1"}})
    (refusal,) = printed_by(capsys, "begin", folder)["nodes"]["gpu001"]["refusals"]
    assert refusal.startswith("The policy cannot be used (policy-not-usable)")
    for arguments in (
        ["begin", folder.parent],
        ["prove", folder, "gpu001"],
        [before_of(folder), "prove", folder, "gpu009"],
    ):
        assert main(["rollout-step", *map(str, arguments)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_no_help_lists_it(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "rollout" not in capsys.readouterr().out
