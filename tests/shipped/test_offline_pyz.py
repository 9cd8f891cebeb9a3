"""The one-file program for login nodes gives the same results as the installed commands, on Python 3.9 where available, and trusts no other user's cache."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from documented_command import as_typed
from old_interpreters import interpreter

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 280
PYTHON = interpreter("3.9") or interpreter("3.10") or sys.executable
LOGS = sorted((PROJECT / "tests" / "fixtures" / "diagnose").glob("*/*.log"))[::40]
SCRIPT = "#SBATCH --nodes=2\nexport NCCL_P2P_DISABLE=1\nexport TORCH_NCCL_ASYNC_ERROR_HANDLING=0\nsrun torchrun --nproc-per-node 8 train.py\n"
ASKED = (("xid", "79"), ("driver", "545.23.08"), ("nosuchthing",))


@pytest.fixture(scope="module")
def pyz(tmp_path_factory):
    """The built file."""
    target = tmp_path_factory.mktemp("offline") / "unhang-offline.pyz"
    done = subprocess.run([sys.executable, PROJECT / "tools/collector/offline.py", target], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def offline(pyz, cache, tmp_path):
    """Runs it: (code, output, errors)."""
    return lambda *argv, python=PYTHON, place=cache: ran([python, "-I", pyz, *argv], place, tmp_path)


@pytest.fixture
def installed(cache, tmp_path):
    """The same with this environment's unhang."""
    return lambda *argv: ran([sys.executable, "-P", "-m", "unhang", *argv], cache, tmp_path)


def ran(command, cache, folder):
    environment = {"PATH": os.defpath, "HOME": str(cache), "XDG_CACHE_HOME": str(cache), "TMPDIR": str(folder), "COLUMNS": "100", "LANG": "C.UTF-8"}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr


def test_nothing_in_it_is_compiled_and_each_package_has_its_licence(pyz):
    names = zipfile.ZipFile(pyz).namelist()
    assert [name for name in names if not re.search(r"\.(py|pyi|yml|json|yaml)$|/(LICENSE|COPYING)[^/]*$", name)] == []
    for package in ("ClusterShell", "jinja2", "markupsafe", "rich", "yaml"):
        assert any(re.match(rf"home/{package}/(LICENSE|COPYING)", name) for name in names), package


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.parent.name)
def test_a_log_is_diagnosed_as_by_the_installed_command(offline, installed, log):
    assert offline("diagnose", log) == installed("diagnose", log)


@pytest.mark.parametrize("argv", ASKED, ids=" ".join)
def test_what_is_known_of_a_thing_is_explained_as_by_the_installed_command(offline, installed, argv):
    assert offline("explain", *argv) == installed("explain", *argv)


def test_the_commands_of_the_page_on_installing_end_well(offline, tmp_path):
    (tmp_path / "slurm-4711.out").write_bytes(LOGS[0].read_bytes())
    (tmp_path / "job.sh").write_text(SCRIPT)
    typed = [
        as_typed("python3 unhang-offline.pyz diagnose slurm-4711.out"),
        as_typed("python3 unhang-offline.pyz lint job.sh"),
        as_typed("python3 unhang-offline.pyz explain xid 79"),
    ]
    assert [offline(*argv[2:])[::2] for argv in typed] == [(1, ""), (1, ""), (0, "")]


def test_a_script_is_linted_as_by_the_installed_command(offline, installed, tmp_path):
    (tmp_path / "job.sh").write_text(SCRIPT)
    code, output, errors = offline("lint", "job.sh")
    assert (code, output, errors) == installed("lint", "job.sh")
    assert "NCCL_P2P_DISABLE" in output


def test_commands_that_it_does_not_have_and_rules_of_ones_own_are_refused_in_one_line(offline):
    assert offline("audit") == (2, "", "unhang: expected one of diagnose, lint, explain, found 'audit'; see unhang --help\n")
    code, _, output = offline("explain", "H100", "--rules", "mine")
    assert code == 2 and output.startswith("unhang-offline: --rules needs an installed unhang")


def test_it_is_unpacked_once_and_without_a_cache_each_time_and_then_leaves_nothing(offline, cache, tmp_path):
    first = offline("lint", "--help")
    (unpacked,) = (cache / "unhang").iterdir()
    assert unpacked.stat().st_mode & 0o077 == 0
    (tmp_path / "file").touch()
    assert offline("lint", "--help", place=tmp_path / "file") == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_code_that_others_could_have_put_into_the_cache_is_not_run(offline, tmp_path):
    place = tmp_path / "cache"
    offline("lint", "--help", place=place)
    (unpacked,) = (place / "unhang").iterdir()
    (unpacked / "unhang" / "cli.py").write_text("def main():\n    print('planted')\n    return 0\n")
    assert offline("lint", "--help", place=place)[1] == "planted\n"  # loaded from there while the folder belongs to the user
    unpacked.chmod(0o777)
    assert "planted" not in offline("lint", "--help", place=place)[1]
    unpacked.chmod(0o700)
    unpacked.parent.chmod(0o777)
    assert "planted" not in offline("lint", "--help", place=place)[1]


@pytest.mark.skipif(interpreter("3.8") is None, reason="no Python 3.8 here")
def test_an_older_python_is_one_line(offline):
    code, output, errors = offline("lint", "--help", python=interpreter("3.8"))
    assert (code, output) == (2, "")
    assert errors.startswith("unhang-offline: expected Python 3.9 or newer, found 3.8 (") and errors.count("\n") == 1
