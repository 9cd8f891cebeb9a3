"""The action for GitHub in a repository that is hostile: its step "Install unhang", as action.yml
has it, and the program that the step leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from installed_wheel import PROJECT, finished

STEPS = yaml.safe_load((PROJECT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
# what Python, venv, pip and the build of the project import
HOSTILE = (
    *("venv.py", "pip.py", "ensurepip.py", "hatchling.py", "pathlib.py", "json.py", "unhang.py"),
    *("sitecustomize.py", "usercustomize.py", "subprocess.py", "setup.py", "packed_project.py"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(the repository that is checked, the finished step, the environment of the runner): the
    action's own folder is a copy of the checkout, because the step links into it."""
    place = tmp_path_factory.mktemp("runner")
    action, repository = place / "action", place / "repository"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        if not name.startswith("tests/"):
            (action / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, action / name, follow_symlinks=False)
    (action / "tests").mkdir()
    repository.mkdir()
    for name in HOSTILE:
        text = f"open({str(place / 'pwned')!r}, 'a').write({name + ' '!r})\n"
        (repository / name).write_text(text)
    (repository / "job.sh").write_text("#!/bin/bash\nexport NCCL_DEBUG=WARN\n")
    environment = {
        **{name: one for name, one in os.environ.items() if not name.startswith("PYTHON")},
        "PYTHONPATH": str(repository),  # as many workflows set it
        "RUNNER_TEMP": str(place / "temp"),
        "UNHANG_SOURCE": str(action),
        "UNHANG_PYTHON": sys.executable,
        "UNHANG_LINT": "job.sh",
        "UNHANG_FAIL_ON": "info",
        "UNHANG_SARIF": "",
    }
    (place / "temp").mkdir()
    return repository, step("Install unhang", repository, environment), environment


def step(name, repository, environment):
    (commands,) = [one["run"] for one in STEPS if one["name"] == name]
    return finished(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", commands],
        cwd=repository,
        env=environment,
    )


def run_files(repository):
    """The files of the repository that were run."""
    marks = repository.parent / "pwned"
    return marks.read_text().split() if marks.exists() else []


@pytest.mark.timeout(600)
def test_the_installation_runs_no_file_of_the_repository(installed):
    repository, done, _environment = installed
    assert (done.returncode, run_files(repository)) == (0, []), done.stdout + done.stderr
    assert sorted(path.name for path in repository.iterdir()) == sorted([*HOSTILE, "job.sh"])


def test_what_it_left_lints_and_runs_no_file_of_the_repository_either(installed):
    repository, _done, environment = installed
    done = step("Lint", repository, environment)
    assert (done.returncode, run_files(repository)) == (0, []), done.stdout + done.stderr


def test_the_installed_versions_are_those_with_checksums(installed):
    """And what builds the project is one of them, so nothing else is downloaded."""
    _repository, _done, environment = installed
    python = Path(environment["RUNNER_TEMP"]) / "unhang" / "bin" / "python"
    shown = finished([python, "-I", "-m", "pip", "freeze", "--exclude-editable"])
    pinned = {
        line.split(" ")[0].lower().replace("_", "-")
        for name in ("requirements.txt", "requirements-build.txt")
        for line in (PROJECT / name).read_text().splitlines()
    }
    found = {line.lower().replace("_", "-") for line in shown.stdout.splitlines()}
    assert found and found <= pinned, found - pinned
    assert any(line.startswith("hatchling==") for line in found)
