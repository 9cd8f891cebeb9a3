"""CI runs a fixed set of tests, make nightly every folder and what they leave out, the workflow of
the code host both; a release needs a nightly pass of its commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
TESTS = PROJECT / "tests"
RUN = (PROJECT / ".ci" / "run").read_text(encoding="utf-8")
FOLDERS = sorted(
    {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    - {"bench", "fixtures", "fakes", "support"}
)
WORKFLOW = yaml.safe_load(
    (PROJECT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
)


def planned(target):
    """The commands that make would run for a target."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    return subprocess.run(
        command, cwd=PROJECT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def given_to_pytest(target):
    """The paths in tests/ that a target gives to pytest."""
    return [
        word
        for line in planned(target)
        if "-m pytest" in line
        for word in line.split()
        if word.startswith("tests/")
    ]


@pytest.fixture(scope="module")
def nightly_targets():
    [line] = [line for line in planned("nightly") if "tests/nightly run" in line]
    return line.partition("tests/nightly run ")[2].split()


def test_nightly_runs_each_folder_and_each_test_that_a_tier_leaves_out(nightly_targets):
    folders = {path for target in nightly_targets for path in given_to_pytest(target)}
    assert {f"tests/{folder}" for folder in FOLDERS} - folders == set()
    marked = [
        path
        for folder in FOLDERS
        for path in (TESTS / folder).rglob("test_*.py")
        if path != Path(__file__) and "pytest.mark.nightly" in path.read_text(encoding="utf-8")
    ]
    assert marked
    assert "test-longest" in nightly_targets
    longest = [PROJECT / path for path in given_to_pytest("test-longest")]
    assert [path for path in marked if not any(map(path.is_relative_to, longest))] == []


def test_ci_checks_first_and_then_runs_one_fixed_set():
    first, then = re.findall(
        r"^for target in (.*); do step (?:made|tests) \$target; done$", RUN, re.M
    )
    assert first.split() == ["installed", "check", "vulnerabilities"]
    chosen = [path for target in then.split() for path in given_to_pytest(target)]
    assert "-m 'not slow'" in " ".join(planned("test"))
    assert "-m slow" in " ".join(planned("test-slow"))
    chosen.remove("tests/unit")  # both halves of it
    assert len(chosen) == len({*chosen}) > 10
    assert [path for path in chosen if not (PROJECT / path).exists()] == []
    slow = {path.split("/")[1] for path in chosen if path.endswith(".py")}
    assert {*FOLDERS} - slow - {path.removeprefix("tests/") for path in chosen} == {
        "vm",
        "packages",
    }


@pytest.mark.parametrize("target", ["test", "test-fast", "test-chosen", "test-rules"])
def test_no_two_test_modules_of_a_run_have_the_same_name(target):
    """Pytest collects only the first of them."""
    paths = [PROJECT / path for path in given_to_pytest(target)]
    files = {
        file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    }
    names = [file.name for file in files]
    assert len(names) > 1
    assert [name for name in {*names} if names.count(name) > 1] == []


def test_no_test_is_known_to_be_flaky():
    listed = [line for line in (TESTS / "flaky.txt").read_text().splitlines() if line[:1] != "#"]
    assert listed == []


def test_the_workflow_calls_what_there_is_without_the_action_of_a_third_party(nightly_targets):
    jobs = WORKFLOW["jobs"]
    assert jobs["nightly"]["strategy"]["matrix"] == {"target": nightly_targets}
    assert jobs["run"]["steps"][-1]["run"] == "sudo .ci/run"
    assert jobs["nightly"]["steps"][-1]["run"] == "sudo make ${{ matrix.target }}"
    assert os.access(PROJECT / ".ci" / "run", os.X_OK)
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert [step for step in steps if "uses" in step] == []
    for step in steps:
        text = re.sub(r"\$\{\{.*?\}\}", "value", step["run"])  # the code host fills it in
        done = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True, check=False
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


MAKEFILE = """\
good:
	@echo '======= 3 passed, 1 skipped, 2 warnings in 1.50s ======='
	@echo '======= 40 passed in 61.00s (0:01:01) ======='
bad:
	@echo '======= 1 failed, 2 passed, 1 error in 1.50s ======='; exit 1
slow:
	@sleep 600
"""


@pytest.fixture
def checkout(tmp_path):
    """git() in a clone with one commit, the script of the nightly run and its page."""
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")

    def git(*arguments):
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    for folder in ("tests", "docs"):
        (tmp_path / folder).mkdir()
    shutil.copy(TESTS / "nightly", tmp_path / "tests")
    shutil.copy(PROJECT / "docs" / "testing.md", tmp_path / "docs")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a change")
    return git


def nightly(folder, *arguments, **environment):
    """(exit code, what it says last) of the script."""
    done = subprocess.run(
        ["sh", "tests/nightly", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.rpartition("unhang: ")[2]


def result(folder):
    """The rows of the page, each without its date."""
    page = (folder / "docs" / "testing.md").read_text()
    before, _, after = page.partition(f"{'| --- ' * 8}|\n")
    assert (PROJECT / "docs" / "testing.md").read_text().startswith(before)
    return [re.sub(r" \d{4}-\d\d-\d\d \|", "", row) for row in after.splitlines()]


def test_a_release_needs_a_pass_of_each_target_on_its_commit(checkout, tmp_path):
    makefile = (PROJECT / "Makefile").read_text()
    assert "\nrelease: passed-nightly " in makefile
    assert "tests/nightly passed $(NIGHTLY)\n" in makefile
    commit = checkout("rev-parse", "HEAD")
    refused = f"docs/testing.md has no pass of `make %s` on {commit}: run tests/nightly run %s\n"
    assert nightly(tmp_path, "passed", "good") == (2, refused % ("good", "good"))
    assert nightly(tmp_path, "run", "good", "bad")[0] == 2
    assert nightly(tmp_path, "passed", "good") == (0, "")
    assert nightly(tmp_path, "passed", "good", "bad") == (2, refused % ("bad", "bad"))
    (tmp_path / "new").touch()
    assert nightly(tmp_path, "passed", "good") == (
        2,
        "the checkout differs from the commit that passed: ?? new\n",
    )
    (tmp_path / "new").unlink()
    checkout("add", ".")
    checkout("commit", "-qm", "the result alone")
    assert nightly(tmp_path, "passed", "good") == (0, "")
    (tmp_path / "Makefile").write_text(f"{MAKEFILE}# another\n")
    checkout("commit", "-qam", "another")
    assert nightly(tmp_path, "passed", "good")[1].startswith("docs/testing.md has no pass of ")


def test_the_page_has_the_commit_and_the_counts_of_each_target(checkout, tmp_path):
    commit = checkout("rev-parse", "--short=12", "HEAD")
    code, said = nightly(tmp_path, "run", "bad", "good", "slow", NIGHTLY_TARGET_S="2")
    assert (code, said.partition(";")[0]) == (2, "these targets failed: bad slow")
    rows = [
        f"| bad | {commit} | failed | 2 | 2 | 0 | 0 |",
        f"| good | {commit} | passed | 43 | 0 | 1 | 0 |",
        f"| slow | {commit} | out of time | 0 | 0 | 0 | 0 |",
    ]
    assert {*rows} <= {*result(tmp_path)}
    checkout("commit", "-qam", "the result")
    later = checkout("rev-parse", "--short=12", "HEAD")
    assert nightly(tmp_path, "run", "good") == (0, "")
    rows[1] = rows[1].replace(commit, later)
    assert {*rows} <= {*result(tmp_path)}


def test_a_nightly_run_is_of_one_commit(checkout, tmp_path):
    (tmp_path / "new").touch()
    assert nightly(tmp_path, "run", "good") == (
        2,
        "the checkout differs from its commit: ?? new; commit or stash that\n",
    )
    (tmp_path / "new").unlink()
    changing = "changing:\n\t@touch changed; echo '=== 1 passed in 1s ==='\n"
    (tmp_path / "Makefile").write_text(changing)
    checkout("commit", "-qam", "a target that changes the checkout")
    assert nightly(tmp_path, "run", "changing") == (
        2,
        "the checkout was changed while the tests ran: they are of no commit\n",
    )
    assert nightly(tmp_path, "passed", "changing")[0] == 2
