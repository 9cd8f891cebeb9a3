"""What reaches a playbook from elsewhere stays text: an edited plan with a right digest under the
real roles, and answers to AWX's surveys."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fakes.role_play import PROJECT, answer_of, environment
from rollout_plans import planned

from unhang.act.plan.plan_document import HostPlan, Remedy, Wave, read_plan, write_plan
from unhang.core.run.own_runs import mark_as_own

NAME = "NCCL_SOCKET_IFNAME"


def attack(marker):
    """A template that leaves a file where it runs."""
    return "{{ lookup('ansible.builtin.pipe', 'touch " + str(marker) + "') }}"


@pytest.fixture
def run_folder(tmp_path):
    """A plan of the role nccl_profile over this machine."""
    (tmp_path / "hosts").write_text(
        f"a ansible_connection=local ansible_python_interpreter={sys.executable}\n[rack1]\na\n"
    )
    folder = tmp_path / "runs" / "20261120T070000Z-0123456789"
    (folder / "nodes").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps(
            {
                "schema": "unhang/run/1",
                "id": folder.name,
                "hosts": ["a"],
                "inventory": [str(tmp_path / "hosts")],
            }
        )
    )
    mark_as_own(folder)
    plan = planned(folder)
    policy = {"nccl": {"settings": {NAME: attack(tmp_path / "ran")}}}
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    host = HostPlan(
        "a",
        boot_id,
        None,
        (Remedy("nccl_profile", policy, ("policy-nccl-settings",), None, None),),
        (),
    )
    write_plan(folder, replace(plan, hosts=(host,), waves=(Wave("canary 1", ("a",)),)))
    return folder


def test_a_template_in_a_plan_whose_digest_is_right_is_text_under_the_real_role(
    run_folder, tmp_path
):
    assert (
        attack(tmp_path / "ran")
        == read_plan(run_folder).by_host["a"].policy["nccl"]["settings"][NAME]
    )
    argv = [sys.executable, "-P", "-m", "unhang", "remediate", str(run_folder), "--no-smoke", "-v"]
    given = environment(tmp_path) | {
        "UNHANG_RUNS": str(run_folder.parent),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    done = answer_of(argv, given)
    assert "nccl_profile" in done.stdout, "the role was played"
    assert not (tmp_path / "ran").exists()


def questions():
    """(playbook, variable) of each free text of a survey."""
    for name in ("audit", "remediate"):
        for question in json.loads((PROJECT / "awx" / f"{name}-survey.json").read_text())["spec"]:
            if question["type"] == "text":
                yield name, question["variable"]


def draining(folder):
    """A playbook of the step of a rollout that the preview of a plan without Slurm does not
    reach."""
    step = {"ansible.builtin.include_role": {"name": "drain", "tasks_from": "drain"}}
    asked = {"drain_adapter": "slurm", "drain_run": "r1", "drain_why": "x"}
    (folder / "draining.yml").write_text(
        json.dumps(
            [
                {
                    "name": "Drain",
                    "hosts": "all",
                    "gather_facts": False,
                    "vars": asked,
                    "tasks": [step],
                }
            ]
        )
    )
    return folder / "draining.yml"


@pytest.mark.parametrize(
    "mark",
    ["!unsafe ", ""],
    ids=["as AWX passes it", "as a template, which shows that the play uses it"],
)
@pytest.mark.parametrize(("playbook", "variable"), list(questions()))
def test_an_answer_to_a_survey_is_text(run_folder, tmp_path, playbook, variable, mark):
    """As AWX passes an answer: a file of variables in which each text is !unsafe (safe_dump of
    awx/main/utils/safe_yaml.py)."""
    marker = tmp_path / "ran"
    answers = {"unhang_plan": str(run_folder)} if playbook == "remediate" else {}
    answers |= {variable: attack(marker)}
    (tmp_path / "answers.yml").write_text(
        "".join(f"{mark}'{name}': {mark}{json.dumps(text)}\n" for name, text in answers.items())
    )
    assert yaml.compose((tmp_path / "answers.yml").read_text())
    played = (
        ["--check", str(draining(tmp_path))]
        if variable == "drain_slurm_host"
        else [f"playbooks/{playbook}.yml"]
    )
    argv = [
        "ansible-playbook",
        *played,
        "-i",
        str(tmp_path / "hosts"),
        "-e",
        f"@{tmp_path / 'answers.yml'}",
    ]
    given = environment(tmp_path) | {
        "UNHANG_RUNS": str(run_folder.parent),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }
    done = answer_of(argv, given)
    assert "PLAY [" in done.stdout and "Traceback" not in done.stdout + done.stderr
    assert marker.exists() == (not mark), done.stdout
