"""A slow tier of tests is passed over only when exactly its content is on record as passed, and what fails never counts as passed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120


READS = "import os, pathlib; os.listdir('tests/slow'); [p.read_text() for p in [pathlib.Path('roles/x.yml'), *pathlib.Path('tests/slow').glob('*.py')]]"


class Clone:
    """A small repository with one tier, whose command reads roles/x.yml and lists tests/slow, and writes down each of its runs."""

    def __init__(self, folder):
        self.folder = folder / "clone"
        self.write(".ci/tiers/slow", "# a comment\nMakefile  # and why\n")
        texts = {"tests/slow/test_a.py": "1\n", "roles/x.yml": "a\n", "roles/y.yml": "a\n", "README.md": "r\n", "Makefile": "m\n", "named/below/file": "n\n"}
        texts[".gitignore"] = "*.pyc\n.venv\n"
        for path, text in texts.items():
            self.write(path, text)
        for name in ("tier", "recording.py"):
            shutil.copy(PROJECT / ".ci" / name, self.folder / ".ci" / name)
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True)
        self.make_environment()
        self.commit()

    def make_environment(self):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=self.folder, check=True)

    def write(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def tier(self, script="exit 0", name="slow", limit="60", reads=READS, python=".venv/bin/python", **environment):
        """(exit code, output, number of runs of the command). script: of sh; reads: of Python, before it."""
        runs = self.folder.parent / "runs"
        runs.write_text("")
        command = [sys.executable, ".ci/tier", name, limit, "sh", "-c", f'echo run >> {runs}; {python} -c "$READS"; {script}']
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        captured = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": DEADLINE_S, "check": False}
        done = subprocess.run(command, cwd=self.folder, env={**kept, "READS": reads, **environment}, **captured)
        return done.returncode, done.stdout, len(runs.read_text().splitlines())

    @property
    def records(self):
        return sorted(path.name for path in (self.folder / ".ci" / "passed").glob("*"))

    def commit(self):
        for command in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "more"]):
            subprocess.run(["git", *command], cwd=self.folder, check=True)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("pattern"))


@pytest.fixture
def clone(pattern, tmp_path):
    """A copy of its own for each test; a virtual environment costs more than all that is done with it."""
    own = Clone.__new__(Clone)
    own.folder = shutil.copytree(pattern.folder, tmp_path / "clone", symlinks=True)
    return own


def test_content_without_a_record_runs_the_tier_and_content_on_record_is_passed_over(clone):
    code, output, runs = clone.tier()
    assert (code, runs, clone.records) == (0, 1, ["slow.json"])
    assert "slow runs: .ci/passed/slow.json has no record of a pass" in output
    assert "read 2 files: commit .ci/passed/slow.json with the change" in output
    code, output, runs = clone.tier()
    assert (code, runs) == (0, 0)
    assert "slow skipped: exactly what it reads (2 files)" in output


def test_a_clone_of_what_was_committed_with_its_record_passes_the_tier_over(clone, tmp_path):
    clone.tier()
    clone.commit()
    other = Clone.__new__(Clone)
    other.folder = tmp_path / "other" / "clone"
    subprocess.run(["git", "clone", "-q", clone.folder, other.folder], check=True)
    other.make_environment()
    assert other.tier()[2] == 0
    other.write("roles/x.yml", "b\n")
    assert other.tier()[2] == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"content": null}', "\0"])
def test_a_record_that_says_nothing_lets_nothing_be_passed_over(clone, text):
    clone.write(".ci/passed/slow.json", text)
    assert clone.tier()[2] == 1


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("content", "roles/x.yml changed"), ("new file", "tests/slow/test_b.py is new"), ("file gone", "tests/slow/test_a.py is gone"),
        ("mode", "roles/x.yml changed"), ("list of paths", ".ci/tiers/slow changed"), ("what make reads", "Makefile changed"),
    ],
)  # fmt: skip
def test_a_change_of_what_it_reads_runs_the_tier_and_is_named(clone, change, reported):
    clone.tier()
    if change == "content":
        clone.write("roles/x.yml", "b\n")
    elif change == "new file":
        clone.write("tests/slow/test_b.py", "1\n")
    elif change == "file gone":
        (clone.folder / "tests/slow/test_a.py").unlink()
    elif change == "mode":
        (clone.folder / "roles/x.yml").chmod(0o755)
    elif change == "what make reads":
        clone.write("Makefile", "n\n")
    else:
        clone.write(".ci/tiers/slow", "Makefile\nroles\nREADME.md\n")
    code, output, runs = clone.tier()
    assert (code, runs) == (0, 1)
    assert f"slow runs: {reported}" in output
    assert clone.tier()[2] == 0


@pytest.mark.parametrize("path", ["README.md", "tests/slow/old.pyc", "roles/y.yml", "tests/slow/README.md"])
def test_what_the_tier_does_not_read_may_change(clone, path):
    clone.tier()
    clone.write(path, "other\n")
    assert clone.tier()[2] == 0


@pytest.mark.parametrize(("text", "runs"), [('"""Other words."""\n\n1  # why\n', 0), ('"""Words."""\n\n2\n', 1), ('"""Words of"""\n\n1, __doc__\n', 1)])
def test_words_in_a_python_file_do_not_count_and_its_code_does(clone, text, runs):
    clone.write("tests/slow/test_a.py", '"""Words."""\n\n1\n')
    assert clone.tier()[2] == 1
    clone.write("tests/slow/test_a.py", text)
    assert clone.tier()[2] == runs


@pytest.mark.parametrize(
    "reads",
    [
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'open(\"roles/y.yml\")'], env={})",
        "import os; os.fork() or open('roles/y.yml')",
        "import subprocess; subprocess.run(['cat', 'roles/y.yml'])",
        "import os; os.chdir('roles'); os.closerange(3, 99); open('y.yml')",
        "import sys; sys.path.insert(0, 'tests/slow'); import test_a; import test_a; open('roles/y.yml')",
    ],
)
def test_what_a_child_a_fork_or_another_program_reads_counts(clone, reads):
    assert clone.tier(reads=reads)[:1] == (0,)
    clone.write("roles/y.yml", "other\n")
    assert clone.tier(reads=reads)[2] == 1


def test_the_record_keeps_what_was_read_and_listed_and_all_below_a_folder_that_a_program_was_given(clone):
    clone.tier(reads=f"{READS}; import subprocess; subprocess.run(['ls', 'named'], check=True)")
    record = json.loads((clone.folder / ".ci/passed/slow.json").read_text())
    assert {"tests/slow/test_a.py", "roles/x.yml", "named"} <= set(record["files"])
    read = {"tests/slow/test_a.py", "roles/x.yml", "named/below/file"}
    assert set(record["content"]) == {*read, "tests/slow/test_a.py in tests/slow", "Makefile", ".ci/tiers/slow"}


@pytest.mark.parametrize(("change", "reported"), [("other", "named/below/file changed"), (None, "named/below/file is gone")])
def test_a_folder_that_a_program_was_given_counts_with_all_below_it(clone, change, reported):
    reads = f"{READS}; import subprocess; subprocess.run(['ls', 'named'], check=True)"
    clone.tier(reads=reads)
    if change:
        clone.write("named/below/file", change)
    else:
        (clone.folder / "named/below/file").unlink()
    _code, output, runs = clone.tier(reads=reads)
    assert runs == 1 and f"slow runs: {reported}" in output


def test_removing_a_tree_elsewhere_that_has_the_projects_names_reads_nothing_of_the_project(clone, tmp_path):
    copied = tmp_path / "copied"
    clone.tier(reads=f"{READS}; import shutil; shutil.copytree('named', {str(copied)!r} + '/named'); shutil.rmtree({str(copied)!r})")
    assert not copied.exists()
    assert "named" not in json.loads((clone.folder / ".ci/passed/slow.json").read_text())["files"]


def test_a_record_of_another_tier_is_no_content(clone):
    reads = f"{READS}; import subprocess; subprocess.run(['ls', '.ci'], check=True)"
    clone.tier(reads=reads)
    clone.write(".ci/passed/other.json", "{}")
    assert clone.tier()[2] == 0


def test_a_module_that_was_imported_in_its_compiled_form_counts_as_its_source(clone):
    reads = "import sys; sys.path.insert(0, 'tests/slow'); import test_a"
    assert subprocess.run([".venv/bin/python", "-c", reads], cwd=clone.folder, check=False).returncode == 0
    clone.tier(reads=reads)
    clone.write("tests/slow/test_a.py", "2\n")
    assert clone.tier(reads=reads)[2] == 1


def test_a_run_of_which_nothing_says_what_it_read_is_not_recorded(clone):
    code, output, runs = clone.tier(python=sys.executable)
    assert (code, runs, clone.records) == (0, 1, [])
    assert "it is unknown what it read" in output


def test_without_an_environment_nothing_runs_and_the_command_that_makes_one_is_named(clone):
    shutil.rmtree(clone.folder / ".venv")
    code, output, runs = clone.tier()
    assert (code, runs, clone.records) == (2, 0, [])
    assert "slow cannot run: .venv has no virtual environment" in output and "make setup-dev" in output


def test_recording_ends_with_the_tier(clone):
    clone.tier()
    assert list((clone.folder / ".venv").rglob("unhang_tier_recording*")) == []


def test_failing_is_tried_once_more_and_never_counts(clone):
    code, output, runs = clone.tier("exit 3")
    assert (code, runs, clone.records) == (1, 2, [])
    assert "slow FAILED (code 3): RETRYING ALL OF IT ONCE" in output
    assert "slow FAILED ON THE RETRY TOO" in output
    assert clone.tier("exit 0")[2] == 1


def test_passing_on_the_second_try_counts_and_is_said(clone):
    code, output, runs = clone.tier("test -e ../again || { touch ../again; exit 1; }")
    assert (code, runs, clone.records) == (0, 2, ["slow.json"])
    assert "slow PASSED ONLY ON THE RETRY" in output


TESTS = """
import pathlib, pytest
NOTES = pathlib.Path({folder!r})
def note(name):
    (NOTES / name).open("a").write("run\\n")
    return len((NOTES / name).read_text().splitlines())
def test_sound(): assert note("sound")
def test_shaken():
    if note("shaken") == 1:
        {fault}
def test_last(): assert note("last")
"""


@pytest.mark.parametrize(("fault", "ran"), [("assert False", [1, 2, 1]), ("pytest.exit('as if interrupted', 2)", [2, 2, 1])])
def test_only_the_tests_that_failed_are_tried_again_unless_not_all_of_them_were_run(clone, tmp_path, fault, ran):
    clone.write("tests/slow/test_a.py", TESTS.format(folder=str(tmp_path), fault=fault))
    alone = "-q -c /dev/null --rootdir=. --confcutdir=."  # nothing that lies above the clone counts
    pytest_run = f"PYTHONPATH=$(echo .venv/lib/python3*/site-packages) {sys.executable} -m pytest {alone} $TEST_ARGS tests/slow || exit 2"
    code, output, runs = clone.tier(pytest_run)
    assert (code, runs, clone.records) == (0, 2, ["slow.json"]), output
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("sound", "shaken", "last")] == ran
    assert ("slow FAILED (code 2): RETRYING ITS 1 FAILED TESTS ONCE" in output) == (ran[0] == 1)


def test_a_run_out_of_time_is_ended_with_all_that_it_started_and_never_counts(clone):
    alive = clone.folder.parent / "alive"
    code, output, runs = clone.tier(f"sleep 1000 & echo $! > {alive}; wait", limit="2")
    assert (code, runs, clone.records) == (1, 1, [])
    assert "slow failed: out of time" in output
    state = Path(f"/proc/{alive.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def is_alive(state):
    """Whether a /proc/PID/stat is that of a process that runs or sleeps."""
    try:
        return state.read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("session", ["", "setsid "])  # ansible-playbook starts a session of its own
def test_ending_a_tier_ends_what_it_started(clone, tmp_path, session):
    written = tmp_path / "pid"
    command = [sys.executable, ".ci/tier", "slow", "60", "sh", "-c", f"{session}sleep 600 & echo $! >{written}.new; mv {written}.new {written}; wait"]
    process = subprocess.Popen(command, cwd=clone.folder, env={"PATH": os.environ["PATH"]})
    until = time.monotonic() + DEADLINE_S
    while not written.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(DEADLINE_S) == 143
    state = Path(f"/proc/{written.read_text().strip()}/stat")
    until = time.monotonic() + DEADLINE_S
    while (alive := is_alive(state)) and time.monotonic() < until:  # a signal that was sent takes effect when that process runs next
        time.sleep(0.05)
    assert not alive
    assert clone.records == []


WRITES_ON = """
import os, pathlib, time
records = pathlib.Path(next(pathlib.Path(".venv").rglob("unhang_tier_recording.txt")).read_text().splitlines()[1])
if os.fork():
    time.sleep(600)
os.setsid()  # as those do that a test starts in a session of its own: ending the tier's session does not end them
until, number = time.monotonic() + 3, 0
while time.monotonic() < until:
    number += 1
    try:
        (records / f"more{number}").write_text("f a")
    except OSError:
        break
    if number == 50:
        pathlib.Path("../records").write_text(str(records))
"""


def test_ending_a_tier_beside_a_process_that_goes_on_recording_says_nothing_more(clone):
    clone.write("tests/slow/writes_on.py", WRITES_ON)
    named = clone.folder.parent / "records"
    command = [sys.executable, ".ci/tier", "slow", "60", ".venv/bin/python", "tests/slow/writes_on.py"]
    kept = {"PATH": os.environ["PATH"]}
    process = subprocess.Popen(command, cwd=clone.folder, env=kept, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + DEADLINE_S
    while not named.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    assert (process.communicate(timeout=DEADLINE_S)[1], process.returncode) == ("", 143)
    records = Path(named.read_text())
    assert not records.exists()
    assert list(records.parent.glob(f"{records.name}*")) == []


def test_content_that_changed_while_the_tier_ran_is_not_recorded(clone):
    code, output, _runs = clone.tier("echo c > roles/x.yml")
    assert (code, clone.records) == (0, [])
    assert "changed while it ran" in output


def test_all_tiers_can_be_asked_for(clone):
    clone.tier()
    assert clone.tier(UNHANG_ALL_TIERS="1")[2] == 1


@pytest.mark.parametrize(("name", "limit"), [("none", "60"), ("slow", "soon")])
def test_wrong_use_is_reported_in_one_line(clone, name, limit):
    code, output, runs = clone.tier(name=name, limit=limit)
    assert (code, runs) == (2, 0)
    assert len(output.strip().splitlines()) == 1


@pytest.mark.parametrize("tier", sorted(path.name for path in (PROJECT / ".ci" / "tiers").iterdir()))
def test_a_tier_of_this_repository_names_files_that_exist_and_is_run_by_ci(tier):
    listed = [line.partition("#")[0].strip() for line in (PROJECT / ".ci" / "tiers" / tier).read_text().splitlines()]
    assert [path for path in listed if path and not (PROJECT / path).exists()] == []
    assert re.search(rf"(?: tier|^beside) {tier} \d", (PROJECT / ".ci" / "run").read_text(), re.MULTILINE)
