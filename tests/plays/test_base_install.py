"""`pip install CHECKOUT` without an extra: what works, and that the line that a command prints for
the rest, typed as it is, installs it from that checkout."""

from __future__ import annotations

import shlex
import sys

import pytest
from installed_wheel import PROJECT, Installed, finished


@pytest.fixture(scope="module")
def unhang(tmp_path_factory):
    """The program in an environment of its own, started in an empty folder."""
    place = tmp_path_factory.mktemp("base")
    for command in (
        [sys.executable, "-I", "-m", "venv", place / "venv"],
        [place / "venv" / "bin" / "python", "-I", "-m", "pip", "install", "--quiet", PROJECT],
    ):
        done = finished(command)
        assert done.returncode == 0, done.stderr
    (place / "empty").mkdir()
    return Installed(place / "venv" / "bin" / "unhang", place / "empty")


def test_it_takes_forty_megabytes_with_what_python_compiled_and_without_pip(unhang):
    paths = [path for path in unhang.program.parents[1].rglob("*") if not path.is_symlink()]
    own = [path for path in paths if not {"pip", "setuptools", "pkg_resources"} & {*path.parts}]
    assert sum(path.stat().st_size for path in own if path.is_file()) < 40e6


def next_line(done):
    """The command at the end of a refusal, as words."""
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "; next: " in line]
    return shlex.split(said.partition("; next: ")[2])


@pytest.mark.parametrize("name", ["xid 79", "NCCL_P2P_LEVEL"])
def test_what_inspect_and_diagnose_name_is_explained(unhang, name):
    done = unhang("explain", *name.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 3


@pytest.mark.parametrize(
    ("argv", "extra"),
    [
        (["audit"], "fleet"),
        (["smoke", "--hosts", "gpu001"], "fleet"),
        (["mcp", "--within", "."], "mcp"),
    ],
)
def test_what_an_extra_brings_is_installed_from_the_same_checkout(unhang, argv, extra):
    python = str(unhang.program.with_name("python"))
    words = next_line(unhang(*argv))
    assert [words[0].rstrip("3"), *words[1:]] == [
        python, "-P", "-m", "pip", "install", f"{PROJECT}[{extra}]",
    ]  # fmt: skip


def test_the_printed_line_brings_what_was_missing(unhang):
    typed = finished([*next_line(unhang("demo")), "--quiet"], cwd=unhang.folder)
    assert typed.returncode == 0, typed.stderr
    done = unhang("demo")
    assert done.returncode == 1, done.stderr[-3000:]
    assert "23 nodes: 3 critical" in done.stdout
