""".ci/slow_tests.py on made-up repositories with real tests: the order, the end of CI's time, the
second try, and nothing left behind."""

from __future__ import annotations

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
PASSES = "def test_it(): pass\n"
FAILS = "def test_it(): assert False\ndef test_other(): open('others', 'a').write('x')\n"
FAILS_ONCE = """
import pathlib
def test_it():
    tried = pathlib.Path('tried').exists()
    pathlib.Path('tried').touch()
    assert tried
"""
HANGS = """
import subprocess, time
def test_it():
    child = subprocess.Popen(['sleep', '600'], start_new_session=True)
    open('pid', 'w').write(str(child.pid))
    time.sleep(600)
"""


class Repository:
    """A clone of made-up commits with the script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir(parents=True)
        shutil.copy(PROJECT / ".ci" / "slow_tests.py", folder / ".ci")
        self.git("init", "-q")

    def git(self, *arguments: str) -> str:
        identity = (
            "-c",
            "user.name=n",
            "-c",
            "user.email=n@example.com",
            "-c",
            "commit.gpgsign=false",
        )
        return subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def commit(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "a change")

    def run(
        self, *arguments: str, folders: tuple[str, ...] = ("tests/plays",), **environment: str
    ) -> tuple[int, str]:
        """(exit code, output) of the script."""
        command = [sys.executable, ".ci/slow_tests.py", *folders, *arguments]
        limit = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
            "timeout": DEADLINE_S,
            "check": False,
        }
        done = subprocess.run(command, cwd=self.folder, env={**os.environ, **environment}, **limit)
        return done.returncode, done.stdout

    def order(self) -> list[str]:
        """The names of the files in the order of their turns: in no time, none runs."""
        code, output = self.run("--start-s", "0")
        assert code == 0, output
        return re.findall(r"^ +tests/plays/test_(\w+)\.py", output, re.MULTILINE)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


def test_files_with_a_changed_subject_come_first_and_the_others_take_turns(repository):
    names = [f"{letter}_thing" for letter in "abcdefghijkl"]
    repository.commit(
        {f"tests/plays/test_{name}.py": PASSES for name in (*names, "role_drain", "run_it")}
        | {"tests/support/drain.py": ""}
    )
    for _ in range(30):
        repository.commit({})
    first = repository.order()
    assert sorted(first) == sorted([*names, "role_drain", "run_it"])
    repository.commit(
        {
            "roles/drain/tasks/main.yml": "a",
            "tests/plays/test_b_thing.py": f"# changed\n{PASSES}",
            "tools/run/it.py": "too short a name",
        }
    )
    second = repository.order()
    assert set(second[:2]) == {"role_drain", "b_thing"}
    repository.commit({"tests/support/drain.py": "what tests share is no subject"})
    third = repository.order()
    assert set(third[:2]) == {"role_drain", "b_thing"}
    assert second[2:] != third[2:]
    assert repository.order() == third
    turns = set()
    for _ in range(10):
        repository.commit({})
        turns |= {*repository.order()[2:7]}
    assert len(turns) >= 10, "five of twelve places reach most files in ten commits"


def test_it_needs_neither_a_history_nor_a_clone(repository):
    repository.commit({"tests/plays/test_a.py": PASSES, "tests/plays/test_b.py": PASSES})
    repository.commit({})
    shallow = Repository(repository.folder.with_name("shallow"))
    shallow.git("fetch", "-q", "--depth", "1", repository.folder.as_uri(), "HEAD")
    shallow.git("checkout", "-q", "-f", "FETCH_HEAD")
    assert sorted(shallow.order()) == ["a", "b"]
    shutil.rmtree(shallow.folder / ".git")
    code, output = shallow.run()
    assert (code, "0 slow files not run, 2 slow files passed, 0 slow files failed" in output) == (
        0,
        True,
    ), output


def test_a_failure_is_tried_once_more_and_only_a_second_one_counts(repository):
    repository.commit({"tests/plays/test_once.py": FAILS_ONCE, "tests/plays/test_good.py": PASSES})
    code, output = repository.run()
    assert code == 0, output
    assert "tests/plays/test_once.py FAILED with code 1, and is tried once more" in output
    assert re.search(
        r"^tests/plays/test_once.py:\n== 1 passed in .*s ONLY ON THE RETRY ==$",
        output,
        re.MULTILINE,
    ), output
    assert re.search(
        r"^tests/plays/test_good.py:\n== 1 passed in [0-9.]+s ==$", output, re.MULTILINE
    ), output
    repository.commit({"tests/plays/test_bad.py": FAILS})
    code, output = repository.run()
    assert code == 1
    assert "FAILED tests/plays/test_bad.py: code 1, then 1: 1 failed" in output
    assert (repository.folder / "others").read_text() == "x", (
        "the second try runs failed tests alone"
    )


def test_what_cannot_be_imported_is_a_failure_and_what_has_no_test_is_not_run(repository):
    skipped = "import pytest\n@pytest.mark.skip\ndef test_it(): pass\n"
    repository.commit(
        {
            "tests/plays/test_broken.py": "import no_such_module\n",
            "tests/plays/test_none.py": "",
            "tests/plays/test_skipped.py": skipped,
        }
    )
    code, output = repository.run()
    assert code == 1
    assert "FAILED tests/plays/test_broken.py: code 2, then 2: 1 error in" in output
    assert "not run, no test of it runs here: no tests ran in" in output
    assert re.search(r"test_skipped.py:\n== 1 skipped in", output)


def gone(repository: Repository) -> bool:
    """Whether the process that the hanging test started has ended, or on a busy machine was never
    started."""
    if not (repository.folder / "pid").exists():
        return True
    stat = Path("/proc", (repository.folder / "pid").read_text(), "stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found by /proc")
def test_a_file_that_the_end_of_time_stops_counts_as_not_run_and_leaves_no_process(repository):
    repository.commit({"tests/plays/test_hangs.py": HANGS})
    begun = time.monotonic()
    code, output = repository.run("--begun-s", "3000", "--end-s", "3006")
    assert time.monotonic() - begun < DEADLINE_S / 2
    assert code == 0, output
    assert "not run, stopped at the end of CI's time:\n  tests/plays/test_hangs.py\n" in output
    assert gone(repository)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found by /proc")
def test_a_file_that_hangs_beyond_its_own_limit_has_failed(repository):
    repository.commit({"tests/plays/test_hangs.py": HANGS})
    code, output = repository.run("--file-s", "6", "--end-s", "7")
    assert code == 1
    assert (
        "FAILED tests/plays/test_hangs.py: code 124, then 124: no time was left to try it again"
        in output
    )
    assert gone(repository)


def test_after_the_last_start_no_file_begins_and_each_is_named(repository):
    repository.commit({f"tests/plays/test_{name}.py": PASSES for name in "abc"})
    code, output = repository.run("--begun-s", "3600")
    assert code == 0
    assert "3 slow files not run" in output
    assert output.count("tests/plays/test_") == 3
    assert "not run, its turn did not come:" in output


def test_a_folder_that_this_machine_cannot_run_is_named_with_the_reason(repository):
    repository.commit({"tests/nodes/test_a.py": PASSES, "tests/plays/test_b.py": PASSES})
    (repository.folder / "git").symlink_to(shutil.which("git"))
    code, output = repository.run(
        folders=("tests/nodes", "tests/plays"), PATH=str(repository.folder)
    )
    assert code == 0
    assert re.search(
        r"^not run, it needs (?:root on Linux|Debian's apt-get):\n  tests/nodes/test_a.py$",
        output,
        re.MULTILINE,
    ), output
    assert "1 slow files passed" in output


def test_a_folder_without_tests_is_refused(repository):
    repository.commit({"tests/plays/other.py": ""})
    code, output = repository.run()
    assert code == 2
    assert "found none in tests/plays" in output
