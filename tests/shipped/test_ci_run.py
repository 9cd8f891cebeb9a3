""".ci/run on made-up targets with real tests: the order, the retry, the end of its time."""

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
MAKEFILE = f"""\
installed vulnerabilities:
	@echo made $@
check:
	@echo made $@; exit $(CHECK)
test test-slow test-fast test-chosen test-chosen-roles:
	{sys.executable} -m pytest -p no:xdist $@.py $(TEST_ARGS)
"""
PASSES = "def test_it(): pass\n"
FAILS_ONCE = """
import pathlib, pytest
def test_other(): open('others', 'a').write('x')
@pytest.mark.parametrize('name', ['a b'])
def test_it(name):
    tried = pathlib.Path('tried').exists()
    pathlib.Path('tried').touch()
    assert tried, 'x - y'
"""


@pytest.fixture
def run(tmp_path):
    """(exit code, output) of the script where `chosen` is what test-chosen tests."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(PROJECT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    (tmp_path / "tests" / "flaky.txt").write_text("# none\n")
    (tmp_path / "Makefile").write_text(MAKEFILE)

    def started(chosen, listed="", **environment):
        for name in ("test", "test-slow", "test-fast", "test-chosen-roles"):
            (tmp_path / f"{name}.py").write_text(PASSES)
        (tmp_path / "test-chosen.py").write_text(chosen)
        (tmp_path / "tests" / "flaky.txt").write_text(listed)
        done = subprocess.run(
            [tmp_path / ".ci" / "run"],
            env={**os.environ, "CHECK": "0", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return started


def test_linters_come_first_and_the_closing_lines_of_pytest_come_again_at_the_end(run):
    code, output = run(PASSES)
    assert code == 0, output
    assert re.findall(r"^== (\S+) passed after \d+ s$", output, re.MULTILINE) == [
        "installed", "check", "vulnerabilities", "test", "test-slow", "test-fast", "test-chosen",
        "test-chosen-roles",
    ]  # fmt: skip
    end = output.rpartition("== test-chosen-roles passed")[2]
    assert re.findall(r"^=+ (1 passed) in .*s =+$", end, re.MULTILINE) == ["1 passed"] * 5
    assert "\n0 flaky tests" in end


def test_a_linter_that_fails_fails_ci_and_the_tests_still_run(run):
    code, output = run(PASSES, CHECK="1")
    assert (code, output.splitlines()[-1]) == (1, "FAILED: check")
    assert output.count(" passed in ") == 10


def test_a_failure_is_tried_once_more_and_counted_as_flaky(run, tmp_path):
    code, output = run(FAILS_ONCE)
    assert code == 0, output
    assert (tmp_path / "others").read_text() == "x", "the second try runs failed tests alone"
    name = "test-chosen.py::test_it[a b]"
    assert (
        f"\n1 flaky tests: they failed, and passed on the retry\n  {name} (not listed in" in output
    )
    (tmp_path / "tried").unlink()
    code, output = run(FAILS_ONCE, listed=f"{name}\n")
    assert (code, output.splitlines()[-1]) == (0, f"  {name}")


def test_a_test_that_fails_twice_fails_ci(run):
    code, output = run("def test_it(): assert False\n")
    assert (code, "\n0 flaky tests" in output) == (1, True)
    assert output.splitlines()[-2:] == [
        "FAILED: test-chosen",
        "FAILED: test-chosen: pytest's summary has no passed test",
    ]


def test_what_cannot_be_imported_fails_ci(run):
    code, output = run("import no_such_module\n")
    assert (code, "\nFAILED: test-chosen\n" in output) == (1, True), output


def test_the_end_of_its_time_ends_a_test_that_hangs(run):
    begun = time.monotonic()
    code, output = run("import time\ndef test_it(): time.sleep(600)\n", CI_TOTAL_S="20")
    assert time.monotonic() - begun < 300
    assert code == 1
    assert "FAILED: test-chosen\n" in output
