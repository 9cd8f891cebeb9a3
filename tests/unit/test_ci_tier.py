""".ci/tier skips a tier of tests only while what the tier proves is as in the commit that passed, and never counts a failure as a pass."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120
TIERS = sorted(path.name for path in (PROJECT / ".ci" / "tiers").iterdir())
# The command of the tier counts its own runs; `ended` is what tests/conftest.py tells the tier.
COMMAND = """
import json, pathlib, subprocess, sys, os
cache = pathlib.Path(os.environ["TEST_ARGS"].partition("cache_dir=")[2].split()[0], "v", "unhang")
with open("../runs", "a") as runs:
    runs.write(os.environ["TEST_ARGS"].replace(str(cache), "") + "\\n")
cache.mkdir(parents=True, exist_ok=True)
code = subprocess.run(["sh", "-c", sys.argv[1]]).returncode
if "pytest died" not in sys.argv[1]:
    (cache / "ended").write_text(json.dumps([1 if code else 0, 0 if "no test" in sys.argv[1] else 7]))
sys.exit(code)
"""


class Clone:
    """A small repository with the tier `slow`, which proves roles/x.yml and what lies in tests/slow, but not its pages."""

    def __init__(self, folder):
        self.folder = folder / "clone"
        texts = {".ci/tiers/slow": "# a comment\nroles/x.yml\ntests/slow\n:!*.md\n", "roles/x.yml": "a\n", "roles/y.yml": "a\n", "README.md": "r\n"}
        texts |= {"tests/slow/test_a.py": "1\n", "tests/slow/README.md": "r\n", ".gitignore": "*.pyc\n", "command.py": COMMAND}
        for path, text in texts.items():
            self.write(path, text)
        shutil.copy(PROJECT / ".ci" / "tier", self.folder / ".ci" / "tier")
        self.git("init", "-q")
        self.commit()

    def write(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def change(self, kind):
        """Changes something of what the tier proves; its path."""
        path = {"new file": "tests/slow/test_b.py", "file gone": "tests/slow/test_a.py"}.get(kind, "roles/x.yml")
        if kind == "mode":
            (self.folder / path).chmod(0o755)
        elif kind in ("file gone", "link"):
            (self.folder / path).unlink()
        if kind == "link":
            (self.folder / path).symlink_to("y.yml")
        elif kind in ("content", "new file"):
            self.write(path, "b\n")
        return path

    def git(self, *arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "more")

    def start(self, script="true", name="slow", limit="60", **environment):
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        command = [sys.executable, ".ci/tier", name, limit, sys.executable, "command.py", script]
        return subprocess.Popen(command, cwd=self.folder, env={**kept, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def tier(self, *arguments, **environment):
        """(exit code, output, TEST_ARGS of each run of the command)."""
        runs = self.folder.parent / "runs"
        runs.write_text("")
        process = self.start(*arguments, **environment)
        output = process.communicate(timeout=DEADLINE_S)[0]
        return process.returncode, output, runs.read_text().splitlines()

    @property
    def record(self):
        place = self.folder / ".ci" / "passed" / "slow"
        return place.read_text() if place.exists() else None


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


@pytest.fixture
def passed(clone):
    """A clone whose tier has passed; the record is committed."""
    code, output, runs = clone.tier()
    assert (code, len(runs)) == (0, 1), output
    clone.commit()
    return clone


def test_a_pass_is_one_line_with_the_commit_that_passed(clone):
    _, output, _ = clone.tier()
    assert "slow runs: no pass is recorded" in output
    assert re.fullmatch(rf"{clone.git('rev-parse', '--short=12', 'HEAD')} \d{{4}}-\d\d-\d\dT\d\d:\d\dZ \d+ s, 7 tests, sha256:[0-9a-f]{{16}}\n", clone.record)


def test_a_clone_with_the_record_skips_the_tier(passed, tmp_path):
    other = Clone.__new__(Clone)
    other.folder = tmp_path / "other" / "clone"
    subprocess.run(["git", "clone", "-q", passed.folder, other.folder], check=True)
    code, output, runs = other.tier()
    assert (code, runs) == (0, [])
    assert "slow skipped" in output and passed.record.strip() in output


@pytest.mark.parametrize("change", ["", "content", "new file", "file gone", "mode", "link"])
def test_where_git_does_not_know_the_commit_the_content_decides(passed, tmp_path, change):
    other = Clone.__new__(Clone)
    other.folder = tmp_path / "other" / "clone"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{passed.folder}", other.folder], check=True)
    other.write("roles/y.yml", "not proved\n")
    other.change(change)
    _, output, runs = other.tier()
    assert len(runs) == (1 if change else 0), output
    assert ("slow runs: git does not know " if change else "slow skipped") in output


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("change", ["content", "new file", "file gone", "mode"])
def test_a_change_of_what_it_proves_runs_the_tier_and_is_named(passed, change, commit):
    path = passed.change(change)
    if commit:
        passed.commit()
    _, output, runs = passed.tier()
    assert len(runs) == 1
    assert f"slow runs: {path} changed since" in output


@pytest.mark.parametrize("path", ["README.md", "roles/y.yml", "tests/slow/README.md", "tests/slow/old.pyc"])
def test_any_other_change_runs_nothing(passed, path):
    passed.write(path, "other\n")
    assert passed.tier()[2] == []


def test_a_tier_that_proves_more_than_before_is_compared_with_the_commit_that_passed(passed):
    passed.write(".ci/tiers/slow", "roles\n")
    assert passed.tier()[2] == []
    passed.write("roles/y.yml", "b\n")
    assert len(passed.tier()[2]) == 1


@pytest.mark.parametrize(
    ("script", "environment", "reason"),
    [
        ("echo b >roles/x.yml", {}, "roles/x.yml changed since"), ("echo no test", {}, "no test ran"), ("true", {"TEST_ARGS": "-k x"}, "TEST_ARGS is set"),
    ],
)  # fmt: skip
def test_a_pass_that_proves_less_than_the_whole_of_a_commit_is_not_recorded(clone, script, environment, reason):
    code, output, _ = clone.tier(script, **environment)
    assert (code, clone.record) == (0, None)
    assert f"slow passed, and is not recorded: {reason}" in output


def test_a_pass_of_what_is_not_committed_is_not_recorded(clone):
    clone.write("roles/x.yml", "b\n")
    assert clone.tier()[0] == 0
    assert clone.record is None


@pytest.mark.parametrize(("script", "retried"), [("exit 3", "ITS FAILED TESTS"), ("echo pytest died; exit 3", "ALL OF IT")])
def test_a_failure_is_retried_once_and_never_counts(clone, script, retried):
    code, output, runs = clone.tier(script)
    assert (code, len(runs), clone.record) == (1, 2, None)
    assert f"slow FAILED (code 3): RETRYING {retried} ONCE" in output and "slow FAILED ON THE RETRY TOO" in output
    assert ["--last-failed" in run for run in runs] == [False, retried == "ITS FAILED TESTS"]


def test_a_pass_on_the_retry_counts_and_is_reported(clone):
    code, output, runs = clone.tier("test -e ../again || { touch ../again; exit 1; }")
    assert (code, len(runs)) == (0, 2)
    assert "slow PASSED ONLY ON THE RETRY" in output and clone.record is not None


def test_pytest_tells_the_tier_its_code_and_how_many_tests_passed(clone):
    """The whole way, with tests/conftest.py and two workers: the test that failed is run again, the other one is not."""
    shutil.copy(PROJECT / "tests" / "conftest.py", clone.folder / "conftest.py")
    note = 'open("../notes", "a").write(name + "\\n")\n'
    failing = 'import os\ndef test_b():\n    name = "b"\n    ' + note + '    assert os.path.exists("../again") or open("../again", "w").close()\n'
    clone.write("tests/slow/test_a.py", 'def test_a():\n    name = "a"\n    ' + note)
    clone.write("tests/slow/test_b.py", failing)
    clone.commit()
    command = f"{sys.executable} -m pytest -q -n 2 -c /dev/null --rootdir=. --confcutdir=. $TEST_ARGS tests/slow || exit 2"
    environment = {name: value for name, value in os.environ.items() if name != "TEST_ARGS"}  # CI's own run of this test sets it
    call = [sys.executable, ".ci/tier", "slow", "600", "sh", "-c", command]
    process = subprocess.run(call, cwd=clone.folder, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stdout
    assert "RETRYING ITS FAILED TESTS ONCE" in process.stdout
    assert sorted((clone.folder.parent / "notes").read_text().split()) == ["a", "b", "b"]
    assert " s, 2 tests, sha256:" in clone.record


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_(holds):
    until = time.monotonic() + DEADLINE_S
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()


@pytest.mark.parametrize("session", ["", "setsid "])  # ansible-playbook starts a session of its own
def test_every_process_of_a_tier_ends_with_it(clone, session):
    written = clone.folder.parent / "pid"
    sleeps = f"{session}sleep 600 & echo $! >{written}.new; mv {written}.new {written}; wait"
    process = clone.start(sleeps)
    assert await_(written.exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 143
    assert await_(lambda: not is_alive(written.read_text().strip()))
    code, output, _ = clone.tier(sleeps, "slow", "1")
    assert (code, clone.record) == (1, None)
    assert "slow failed: out of time" in output
    assert await_(lambda: not is_alive(written.read_text().strip()))


def test_all_tiers_can_be_asked_for(passed):
    assert len(passed.tier(UNHANG_ALL_TIERS="1")[2]) == 1


@pytest.mark.parametrize(("name", "limit"), [("none", "60"), ("slow", "soon")])
def test_wrong_arguments_are_refused_in_one_line(clone, name, limit):
    code, output, runs = clone.tier("true", name, limit)
    assert (code, runs, len(output.splitlines())) == (2, [], 1)


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_of_this_repository_is_run_by_ci_and_each_of_its_paths_holds_files(tier):
    assert re.search(rf"(?: tier {tier} \d|^beside (?:.* )?{tier}(?: |$))", (PROJECT / ".ci" / "run").read_text(), re.MULTILINE)
    paths = [line for line in (PROJECT / ".ci" / "tiers" / tier).read_text().splitlines() if not line.startswith("#")]
    assert [path for path in paths if not path.startswith(":!") and not files_below(path)] == []
    folder = tier.replace("-", "/").replace("test/", "tests/")
    assert "tests/conftest.py" in paths and {folder, str(Path(folder).parent)} & {*paths}


def files_below(pathspec):
    return subprocess.run(["git", "ls-files", "--", pathspec], cwd=PROJECT, capture_output=True, text=True, check=True).stdout


NOT_ON_NODES = {"catalogue", "rule_check", "rule_new", "diff_sides", "diagnose", "diagnosed", "explain", "lint"}  # commands that no test of these tiers runs


@pytest.mark.parametrize("tier", [tier for tier in TIERS if ":!tools/unhang/jobs" in (PROJECT / ".ci" / "tiers" / tier).read_text()])
def test_what_a_tier_leaves_out_is_imported_by_nothing_that_it_executes(tier):
    lines = (PROJECT / ".ci" / "tiers" / tier).read_text().splitlines()
    left_out = [line.removeprefix(":!tools/").replace("/", ".") for line in lines if re.fullmatch(r":!tools/unhang/[a-z_/]+", line)]
    proved = [PROJECT / path for path in files_below("tools/unhang/*.py").split() if f":!{path}" not in lines]
    others = [path for path in proved if not ".".join(path.relative_to(PROJECT / "tools").parts).startswith(tuple(left_out)) and path.stem not in NOT_ON_NODES]
    importing = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(map(re.escape, left_out))})\b", re.MULTILINE)
    assert [str(path) for path in others if importing.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("tier", ["test-vm", "test-packages"])
def test_no_listed_module_imports_one_that_is_left_out(tier):
    """These two take an hour and prove roles alone, so they list only the parts of the controller that such plays load."""
    lines = [line for line in (PROJECT / ".ci" / "tiers" / tier).read_text().splitlines() if not line.startswith("#")]
    left_out = [line.removeprefix(":!tools/").removesuffix(".py").replace("/", ".") for line in lines if line.startswith(":!tools/unhang/core/")]
    listed = subprocess.run(["git", "ls-files", "--", *lines], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    modules = [PROJECT / path for path in listed if path.startswith("tools/unhang/") and path.endswith(".py")]
    assert left_out
    assert modules
    names = "|".join(re.escape(name) for name in left_out)
    assert [str(path) for path in modules if re.search(rf"^\s*(?:from|import) (?:{names})\b", path.read_text(), re.MULTILINE)] == []


@pytest.mark.parametrize("tier", ["test-vm", "test-packages"])
def test_no_listed_task_calls_an_action_that_is_left_out(tier):
    lines = [line for line in (PROJECT / ".ci" / "tiers" / tier).read_text().splitlines() if not line.startswith("#")]
    actions = [Path(line).stem for line in lines if line.startswith(":!plugins/action/")]
    listed = subprocess.run(["git", "ls-files", "--", *lines], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    tasks = [PROJECT / path for path in listed if path.endswith((".yml", ".py")) and not path.startswith("tests/fixtures")]
    assert actions
    assert any(path.suffix == ".yml" for path in tasks)
    call = re.compile(rf"^\s*(?:- )?[\"']?(?:{'|'.join(actions)})[\"']?:", re.MULTILINE)  # also as a key in a play that a test writes in Python
    assert [str(path) for path in tasks if call.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_tier_leaves_out_runs_nightly_and_the_tier_still_has_tests(tier):
    folder = PROJECT / tier.replace("-", "/").replace("test/", "tests/")
    files = [path.read_text(encoding="utf-8") for path in folder.glob("test_*.py")]
    whole = [text for text in files if re.search(r"^pytestmark = .*pytest\.mark\.nightly", text, re.MULTILINE)]
    tests, nightly = (
        sum(len(re.findall(pattern, text, re.MULTILINE)) for text in files if text not in whole) for pattern in (r"^ *def test_", r"mark\.nightly\n")
    )
    assert tests > nightly
    command = re.search(r"^\t.*-m nightly (.*) \$\(TEST_ARGS\)$", (PROJECT / "tests" / "tests.mk").read_text(encoding="utf-8"), re.MULTILINE)
    assert not (nightly or whole) or any(folder.is_relative_to(PROJECT / place) for place in command[1].split())
