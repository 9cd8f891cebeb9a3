"""Calls of the package manager's programs: passwords are masked, and folders of killed calls are
removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from unhang_node.change.package import programs

PROJECT = Path(__file__).parents[6]
TAKES = """
import sys
from unhang_node.change.package.programs import private_folder
print(private_folder(sys.argv[1]), flush=True)
sys.stdin.read()
"""


def test_what_stands_before_the_host_of_a_url_is_masked():
    code, output = programs.run(
        "/", ["echo", "E: Release file for http://site:s3cret@10.0.0.1/debian/InRelease is expired"]
    )
    assert (code, output) == (
        0,
        "E: Release file for http://********@10.0.0.1/debian/InRelease is expired\n",
    )


def test_the_folder_of_a_call_that_was_killed_goes_with_the_next_and_one_that_is_in_use_stays(
    tmp_path,
):
    parent = tmp_path / "var/tmp"
    (parent / "of-somebody-else").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    (parent / ".unhang-link").symlink_to(tmp_path / "target")
    argv = [sys.executable, "-c", TAKES, str(tmp_path)]
    streams = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "env": {"PYTHONPATH": str(PROJECT / "module_utils")},
    }
    with subprocess.Popen(argv, **streams) as killed, subprocess.Popen(argv, **streams) as at_work:
        first, second = (
            tmp_path / process.stdout.readline().strip().lstrip("/")
            for process in (killed, at_work)
        )
        (first / "lists").mkdir()
        killed.kill()
        killed.wait()
        third = tmp_path / programs.private_folder(str(tmp_path)).lstrip("/")
        assert (first.exists(), second.exists(), third.exists()) == (False, True, True)
        at_work.kill()
    assert {path.name for path in parent.iterdir()} == {
        "of-somebody-else",
        ".unhang-link",
        second.name,
        third.name,
    }
    assert (tmp_path / "target").is_dir()
