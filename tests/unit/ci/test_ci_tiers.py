"""A slow tier of tests is passed over only when exactly its content is on record as passed, and what fails never counts as passed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
DEADLINE_S = 120


class Clone:
    """A small repository with one tier, whose command writes down each of its runs."""

    def __init__(self, folder):
        self.folder = folder / "clone"
        self.write(".ci/tiers/slow", "# a comment\ntests/slow\nroles  # and why\n")
        for path, text in {"tests/slow/test_a.py": "1\n", "roles/x.yml": "a\n", "README.md": "r\n", ".gitignore": "*.pyc\n"}.items():
            self.write(path, text)
        shutil.copy(PROJECT / ".ci" / "tier", self.folder / ".ci" / "tier")
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True)
        self.commit()

    def write(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def tier(self, script="exit 0", name="slow", limit="60", **environment):
        """(exit code, output, number of runs of the command). script: of sh."""
        runs = self.folder.parent / "runs"
        runs.write_text("")
        command = [sys.executable, ".ci/tier", name, limit, "sh", "-c", f"echo run >> {runs}; {script}"]
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": DEADLINE_S, "check": False}
        done = subprocess.run(command, cwd=self.folder, env={**kept, **environment}, **said)
        return done.returncode, done.stdout, len(runs.read_text().splitlines())

    @property
    def records(self):
        return sorted(path.name for path in (self.folder / ".ci" / "passed").glob("*"))

    def commit(self):
        for command in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "more"]):
            subprocess.run(["git", *command], cwd=self.folder, check=True)


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


def test_content_without_a_record_runs_the_tier_and_content_on_record_is_passed_over(clone):
    code, said, runs = clone.tier()
    assert (code, runs, clone.records) == (0, 1, ["slow.json"])
    assert "slow runs: this content (2 files of .ci/tiers/slow" in said
    assert "commit .ci/passed/slow.json with the change" in said
    code, said, runs = clone.tier()
    assert (code, runs) == (0, 0)
    assert "slow passed over: exactly this content (2 files of .ci/tiers/slow" in said


def test_a_clone_of_what_was_committed_with_its_record_passes_the_tier_over(clone, tmp_path):
    clone.tier()
    clone.commit()
    other = Clone.__new__(Clone)
    other.folder = tmp_path / "other" / "clone"
    subprocess.run(["git", "clone", "-q", clone.folder, other.folder], check=True)
    assert other.tier()[2] == 0
    other.write("roles/x.yml", "b\n")
    assert other.tier()[2] == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"content": null}', "\0"])
def test_a_record_that_says_nothing_lets_nothing_be_passed_over(clone, text):
    clone.write(".ci/passed/slow.json", text)
    assert clone.tier()[2] == 1


@pytest.mark.parametrize("change", ["content", "new file", "file gone", "mode", "list of paths"])
def test_changed_content_runs_the_tier(clone, change):
    clone.tier()
    if change == "content":
        clone.write("roles/x.yml", "b\n")
    elif change == "new file":
        clone.write("tests/slow/test_b.py", "1\n")
    elif change == "file gone":
        (clone.folder / "tests/slow/test_a.py").unlink()
    elif change == "mode":
        (clone.folder / "roles/x.yml").chmod(0o755)
    else:
        clone.write(".ci/tiers/slow", "tests/slow\nroles\nREADME.md\n")
    assert clone.tier()[2] == 1
    assert clone.tier()[2] == 0


@pytest.mark.parametrize("path", ["README.md", "tests/slow/old.pyc"])
def test_what_the_tier_does_not_cover_may_change(clone, path):
    clone.tier()
    clone.write(path, "other\n")
    assert clone.tier()[2] == 0


def test_failing_is_tried_once_more_and_never_counts(clone):
    code, said, runs = clone.tier("exit 3")
    assert (code, runs, clone.records) == (1, 2, [])
    assert "slow FAILED (code 3) AND IS TRIED ONCE MORE" in said
    assert "slow FAILED ON ITS SECOND TRY TOO" in said
    assert clone.tier("exit 0")[2] == 1


def test_passing_on_the_second_try_counts_and_is_said(clone):
    code, said, runs = clone.tier("test -e again || { touch again; exit 1; }")
    assert (code, runs, clone.records) == (0, 2, ["slow.json"])
    assert "slow PASSED ON ITS SECOND TRY ONLY" in said


def test_a_run_out_of_time_is_ended_with_all_that_it_started_and_never_counts(clone):
    alive = clone.folder.parent / "alive"
    code, said, runs = clone.tier(f"sleep 1000 & echo $! > {alive}; wait", limit="2")
    assert (code, runs, clone.records) == (1, 1, [])
    assert "slow failed: out of time" in said
    state = Path(f"/proc/{alive.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_ending_a_tier_ends_what_it_started(clone, tmp_path):
    told = tmp_path / "pid"
    command = [sys.executable, ".ci/tier", "slow", "60", "sh", "-c", f"sleep 600 & echo $! >{told}.new; mv {told}.new {told}; wait"]
    process = subprocess.Popen(command, cwd=clone.folder, env={"PATH": os.environ["PATH"]})
    until = time.monotonic() + DEADLINE_S
    while not told.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(DEADLINE_S) == 143
    state = Path(f"/proc/{told.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    assert clone.records == []


def test_content_that_changed_while_the_tier_ran_is_not_recorded(clone):
    code, said, _runs = clone.tier("echo c > roles/x.yml")
    assert (code, clone.records) == (0, [])
    assert "changed while it ran" in said


def test_all_tiers_can_be_asked_for(clone):
    clone.tier()
    assert clone.tier(UNHANG_ALL_TIERS="1")[2] == 1


@pytest.mark.parametrize(("name", "limit"), [("none", "60"), ("slow", "soon")])
def test_wrong_use_is_told_in_one_line(clone, name, limit):
    code, said, runs = clone.tier(name=name, limit=limit)
    assert (code, runs) == (2, 0)
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("tier", sorted(path.name for path in (PROJECT / ".ci" / "tiers").iterdir()))
def test_a_tier_of_this_repository_covers_files_that_exist_and_is_run_by_ci(tier):
    listed = [line.partition("#")[0].strip() for line in (PROJECT / ".ci" / "tiers" / tier).read_text().splitlines()]
    assert [path for path in listed if path and not (PROJECT / path).exists()] == []
    assert f" tier {tier} " in (PROJECT / ".ci" / "run").read_text()
    assert f".ci/tiers/{tier}" in listed
