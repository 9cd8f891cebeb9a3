"""The parts of this repository for AWX: an execution environment, surveys, and playbooks that
ansible-runner runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import awx_tools
import pytest
import yaml
from fakes.role_play import DEADLINE_S, PROJECT, environment
from rollout_plans import HOSTS, planned

from unhang.act.rollout.journal import read_journal

SURVEYS = {"remediate-survey.json": "remediate.yml", "audit-survey.json": "audit.yml"}


@pytest.fixture(scope="module")
def tools():
    """The folder with ansible-builder and ansible-runner."""
    return awx_tools.ready(PROJECT / ".cache" / "awx")


def run(tools, folder, *argv, **variables):
    """A finished program with the tools on its path."""
    captured = {
        "capture_output": True,
        "text": True,
        "stdin": subprocess.DEVNULL,
        "timeout": DEADLINE_S,
    }
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=folder,
        env={**environment(folder), "PYTHONPATH": str(tools), **variables},
        **captured,
    )
    sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
    return done


def test_the_execution_environment_passes_ansible_builders_schema(tools, tmp_path):
    argv = [
        sys.executable,
        "-m",
        "ansible_builder",
        "create",
        "-f",
        PROJECT / "execution-environment.yml",
        "-c",
        tmp_path / "context",
        "--output-filename",
        "Containerfile",
    ]
    assert run(tools, tmp_path, *argv).returncode == 0
    made = (tmp_path / "context" / "Containerfile").read_text()
    assert "ENV PYTHONPATH=/runner/project/tools:/runner/project/module_utils" in made
    broken = tmp_path / "broken.yml"
    broken.write_text(
        (PROJECT / "execution-environment.yml").read_text().replace("package_pip", "package_pipe")
    )
    refused = run(
        tools,
        tmp_path,
        sys.executable,
        "-m",
        "ansible_builder",
        "create",
        "-f",
        broken,
        "-c",
        tmp_path / "other",
    )
    assert refused.returncode != 0
    assert "package_pipe" in refused.stdout + refused.stderr


def test_the_execution_environment_has_the_versions_that_are_pinned():
    given = yaml.safe_load((PROJECT / "execution-environment.yml").read_text())["dependencies"]
    pinned = (PROJECT / "requirements.txt").read_text()
    assert given["ansible_core"]["package_pip"] in pinned
    assert given["ansible_runner"]["package_pip"] in awx_tools.PACKAGES


@pytest.mark.parametrize(("survey", "playbook"), SURVEYS.items())
def test_a_survey_asks_for_variables_that_its_playbook_takes(survey, playbook):
    spec = json.loads((PROJECT / "awx" / survey).read_text())["spec"]
    text = (PROJECT / "playbooks" / playbook).read_text()
    of_drain = yaml.safe_load(
        (PROJECT / "roles" / "drain" / "meta" / "argument_specs.yml").read_text()
    )["argument_specs"]["drain"]["options"]
    for question in spec:
        assert (
            re.search(rf"\b{question['variable']}\b", text) or question["variable"] in of_drain
        ), question["variable"]
        if question["type"] == "text":
            assert question["min"] <= len(question["default"]) <= question["max"]
            continue
        defaults = str(question["default"]).split("\n")
        assert question["type"] in ("integer", "multiplechoice", "multiselect")
        assert question["type"] == "integer" or set(defaults) <= set(question["choices"])
        assert (
            question["type"] != "integer"
            or question["min"] <= question["default"] <= question["max"]
        )


def test_every_role_and_severity_that_can_be_chosen_is_known():
    spec = {
        row["variable"]: row.get("choices")
        for row in json.loads((PROJECT / "awx" / "remediate-survey.json").read_text())["spec"]
    }
    text = " ".join((PROJECT / "playbooks" / "remediate.yml").read_text().split())
    assert f"remediate_order: [{', '.join(spec['unhang_roles'])}]" in text
    assert str(spec["unhang_severities"]) in text


def test_the_survey_asks_for_what_a_rollout_needs():
    spec = {
        row["variable"]: row
        for row in json.loads((PROJECT / "awx" / "remediate-survey.json").read_text())["spec"]
    }
    of_drain = yaml.safe_load(
        (PROJECT / "roles" / "drain" / "meta" / "argument_specs.yml").read_text()
    )["argument_specs"]["drain"]["options"]
    defaults = yaml.safe_load((PROJECT / "roles" / "drain" / "defaults" / "main.yml").read_text())
    assert {"unhang_plan", "unhang_max_failed", "unhang_smoke", "drain_adapter"} <= spec.keys()
    assert spec["drain_adapter"]["choices"] == of_drain["drain_adapter"]["choices"]
    for name in spec.keys() & defaults.keys():
        assert str(spec[name]["default"]).lower() == str(defaults[name]).lower(), name


def answers(survey):
    """The extra variables that AWX makes from the survey's own defaults."""
    spec = json.loads((PROJECT / "awx" / survey).read_text())["spec"]
    return {
        row["variable"]: row["default"].split("\n")
        if row["type"] == "multiselect"
        else row["default"]
        for row in spec
    }


def runner(tools, folder, playbook, inventory, given, runs):
    """Runs a playbook by ansible-runner as AWX does: with answers of the survey, and an exposed
    folder for runs."""
    (folder / "env").mkdir()
    (folder / "env" / "extravars").write_text(
        json.dumps({**given, "ansible_python_interpreter": sys.executable})
    )
    argv = [
        sys.executable,
        "-m",
        "ansible_runner",
        "run",
        folder,
        "--project-dir",
        PROJECT,
        "-p",
        playbook,
        "--inventory",
        inventory,
    ]
    return run(tools, folder, *argv, UNHANG_RUNS=str(runs))


def test_ansible_runner_runs_the_audit_and_writes_in_the_run_folder_alone(tools, tmp_path):
    runs = tmp_path / "exposed"
    before = sorted(str(path) for path in PROJECT.glob("*"))
    done = runner(
        tools,
        tmp_path,
        "playbooks/audit.yml",
        PROJECT / "inventory" / "local",
        answers("audit-survey.json"),
        runs,
    )
    assert done.returncode == 0
    assert [path.name for path in (runs / "latest" / "nodes").iterdir()] == ["localhost.json"]
    assert (runs / "latest" / "findings.json").is_file()
    assert sorted(str(path) for path in PROJECT.glob("*")) == before


def test_ansible_runner_rolls_out_a_plan_and_its_journal_lies_in_the_plans_run_folder(
    tools, tmp_path
):
    runs = tmp_path / "exposed"
    folder = runs / "20261120T070000Z-0123456789"
    (folder / "nodes").mkdir(parents=True)
    planned(folder)
    hosts = {
        host: {"ansible_host": f"192.0.2.{at}", "ansible_ssh_extra_args": "-o ConnectTimeout=1"}
        for at, host in enumerate(HOSTS, 1)
    }
    (tmp_path / "hosts.json").write_text(
        json.dumps({"all": {"children": {"rack1": {"hosts": hosts}}}})
    )
    before = sorted(str(path) for path in PROJECT.glob("*"))
    given = answers("remediate-survey.json") | {"unhang_apply": "true", "unhang_plan": str(folder)}
    done = runner(tools, tmp_path, "playbooks/remediate.yml", tmp_path / "hosts.json", given, runs)
    assert done.returncode == 2
    assert (
        "a deferred: the journal has no change of it (lock: a: it did not answer when it was read again)"
        in done.stdout
    )
    assert [
        (entry.host, entry.step, entry.status)
        for entry in read_journal(folder).entries
        if entry.host
    ] == [("a", "lock", "failed")]
    assert sorted(str(path) for path in PROJECT.glob("*")) == before
