"""The action for GitHub: the commands of its steps, run as the runner runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((PROJECT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
FAULTY = "#!/bin/bash\nexport NCCL_TIMEOUT=1800\n"
HOSTILE = ("json.py", "sitecustomize.py", "usercustomize.py", "unhang.py", "argparse.py")
LOG = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.fixture
def run(tmp_path):
    """(name of a step, its inputs) -> the finished step, in a folder with unhang installed."""
    python = tmp_path / "runner" / "unhang" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "job.sh").write_text(FAULTY)
    (tmp_path / "a b.sh").write_text("#!/bin/bash\nexport NCCL_DEBUG=WARN\n")
    (tmp_path / "job.log").write_text(LOG)

    def finished(step, **given):
        inputs = {name: one["default"] for name, one in ACTION["inputs"].items()} | given
        variables = {
            name: value if "inputs." not in value else inputs[value.split("inputs.")[1].strip(" }")]
            for name, value in STEPS[step]["env"].items()
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]],
            env={
                **os.environ,
                **variables,
                "PYTHONPATH": str(tmp_path),  # as many workflows set it
                "RUNNER_TEMP": str(tmp_path / "runner"),
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return finished


def test_lint_fails_the_step_with_findings_and_writes_them_for_code_hosts(run, tmp_path):
    done = run("Lint", lint="job.sh\na b.sh\n", sarif="lint.sarif")
    assert done.returncode == 1, done.stderr
    assert "job.sh:2: error: NCCL_TIMEOUT=1800 [name-not-real]" in done.stdout
    sarif = json.loads((tmp_path / "lint.sarif").read_text())
    assert [one["ruleId"] for one in sarif["runs"][0]["results"]] == ["name-not-real"]


def test_lint_of_sound_files_passes_and_a_missing_file_does_not(run):
    assert run("Lint", lint="a b.sh").returncode == 0
    assert run("Lint", lint="missing.sh", sarif="lint.sarif").returncode != 0


def test_diagnosis_is_shown_and_summarised_and_fails_nothing(run, tmp_path):
    done = run("Diagnose", logs="job.log\njob.sh")
    assert done.returncode == 0, done.stderr
    assert "CUDA out of memory" in done.stdout
    summary = (tmp_path / "summary").read_text().splitlines()
    assert summary[:2] == ["unhang diagnose:", ""]
    assert all(line.startswith("    ") for line in summary[2:])
    assert run("Diagnose", logs="missing.log").returncode != 0


@pytest.mark.parametrize(
    "given", ["$(touch pwned)", "`touch pwned`", "'; touch pwned; '", "--help"]
)
def test_an_input_is_a_name_and_no_command(run, tmp_path, given):
    assert run("Lint", lint=given).returncode == 2
    assert run("Diagnose", logs=given).returncode != 0
    assert not (tmp_path / "pwned").exists()


def test_a_line_of_a_file_is_no_command_to_the_runner(run, tmp_path):
    (tmp_path / "job.sh").write_text(FAULTY + "::error::owned\n")
    first, *_, last = run("Lint", lint="job.sh").stdout.splitlines()
    assert first.startswith("::stop-commands::") and last == f"::{first.split('::')[2]}::"
    assert len(first) > 40


def test_no_file_of_the_repository_is_run(run, tmp_path):
    """tests/plays/test_action_install.py proves it of the installation."""
    for name in HOSTILE:
        (tmp_path / name).write_text(f"open({str(tmp_path / 'pwned')!r}, 'a').write({name!r})\n")
    assert run("Lint", lint="a b.sh", sarif="lint.sarif").returncode == 0
    assert run("Diagnose", logs="job.log").returncode == 0
    assert not (tmp_path / "pwned").exists()


def test_expressions_of_a_workflow_stand_in_variables_alone():
    for step in STEPS.values():
        assert "${{" not in step["run"]
