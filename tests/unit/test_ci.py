"""CI runs every folder of tests, make nightly what they leave out, the workflow of the code host
both; a release needs a nightly pass of its commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
RUN = (PROJECT / ".ci" / "run").read_text(encoding="utf-8")
TARGETS = (PROJECT / "tests" / "tests.mk").read_text(encoding="utf-8")
FOLDERS = sorted(
    {
        path.relative_to(PROJECT / "tests").parts[0]
        for path in (PROJECT / "tests").rglob("test_*.py")
    }
    - {"bench", "fixtures", "fakes", "support"}
)
WORKFLOW = yaml.safe_load(
    (PROJECT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_ci_and_the_target_for_all_tests_run_each_folder(folder):
    [fast] = re.findall(r"^for folder in (.*); do$", RUN, re.MULTILINE)
    [slow] = re.findall(r"slow_tests\.py (.*) --begun-s", RUN)
    by_make_test = re.findall(
        r"\$\(BY_FILE\) tests/(unit|whole) \$\(TEST_ARGS\)", TARGETS.partition("\ntest-unit:")[0]
    )
    run = [*fast.split(), *re.findall(r"tests/(\w+)", slow), *by_make_test]
    assert run.count(folder) == 1, f"tests/{folder} is to run once in .ci/run"
    [tiers] = re.findall(r"^TIERS := (.*)$", TARGETS, re.MULTILINE)
    assert folder in by_make_test or f"test-{folder}" in tiers.split()


def test_make_nightly_runs_each_test_that_a_tier_leaves_out():
    [named] = re.findall(r"-m nightly (tests/.*) \$\(TEST_ARGS\)$", TARGETS, re.MULTILINE)
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in (PROJECT / "tests" / folder).rglob("test_*.py")
    }
    marked = {path for path, text in texts.items() if "pytest.mark.nightly" in text} - {
        Path(__file__)
    }
    assert marked
    assert {
        path
        for path in marked
        if not any(path.is_relative_to(PROJECT / folder) for folder in named.split())
    } == set()


@pytest.mark.parametrize(
    ("job", "command"), [("run", "sudo .ci/run"), ("nightly", "sudo make nightly")]
)
def test_the_workflow_calls_what_there_is_without_the_action_of_a_third_party(job, command):
    steps = WORKFLOW["jobs"][job]["steps"]
    assert steps[-1]["run"] == command
    assert os.access(PROJECT / ".ci" / "run", os.X_OK)
    assert re.search(r"^nightly:", TARGETS, re.MULTILINE)
    assert [step for step in steps if "uses" in step] == []
    for step in steps:
        done = subprocess.run(
            ["bash", "-n"], input=step["run"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_workflow_runs_for_changes_and_each_night_with_rights_to_read_alone():
    # YAML 1.1 reads the key `on` as true
    assert {*WORKFLOW[True]} == {"push", "pull_request", "schedule"}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [job["if"] for job in WORKFLOW["jobs"].values()] == [
        "github.event_name != 'schedule'",
        "github.event_name == 'schedule'",
    ]


@pytest.fixture
def checkout(tmp_path):
    """git() in a clone with one commit and the script of the nightly run."""
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")

    def git(*arguments):
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    (tmp_path / "tests").mkdir()
    shutil.copy(PROJECT / "tests" / "nightly", tmp_path / "tests")
    (tmp_path / ".gitignore").write_text(".cache/\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a change")
    return git


def nightly(folder, step):
    """(exit code, what it says) of a step of the nightly run."""
    done = subprocess.run(
        ["sh", "tests/nightly", step], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_release_needs_a_nightly_run_of_its_commit_that_came_to_its_end(checkout, tmp_path):
    assert re.search(r"^release: passed-nightly ", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    commit = checkout("rev-parse", "HEAD")
    refused = (
        2,
        f"unhang: make nightly has not passed on {commit} in this checkout: run it first\n",
    )
    assert nightly(tmp_path, "passed") == refused
    assert nightly(tmp_path, "begin") == (0, "")
    assert nightly(tmp_path, "passed") == refused
    assert nightly(tmp_path, "end") == (0, "")
    assert nightly(tmp_path, "passed") == (0, "")
    assert nightly(tmp_path, "begin") == (0, "")
    assert nightly(tmp_path, "passed") == refused, "a later run that did not come to its end"
    assert nightly(tmp_path, "end") == (0, "")
    (tmp_path / "new").touch()
    assert nightly(tmp_path, "passed") == (
        2,
        (
            "unhang: expected the commit that make nightly passed on, found a change beside it: ??"
            " new\n"
        ),
    )
    checkout("add", ".")
    checkout("commit", "-qm", "another")
    assert nightly(tmp_path, "passed")[1].startswith("unhang: make nightly has not passed on ")


def test_a_nightly_run_is_of_one_commit(checkout, tmp_path):
    (tmp_path / "new").touch()
    assert nightly(tmp_path, "begin") == (
        2,
        (
            "unhang: expected a commit without changes beside it, found: ?? new; commit or stash"
            " them\n"
        ),
    )
    (tmp_path / "new").unlink()
    assert nightly(tmp_path, "begin") == (0, "")
    checkout("commit", "-q", "--allow-empty", "-m", "made while the tests ran")
    assert nightly(tmp_path, "end") == (
        2,
        "unhang: the checkout was changed while the tests ran: they are of no commit\n",
    )
    assert nightly(tmp_path, "passed")[0] == 2
