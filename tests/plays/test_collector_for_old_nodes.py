"""The one-file collector as the controller sends it to nodes with an old Python."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from unhang.core.ansible.old_python import read_collector

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path):
    """A folder with the project's sources and no build results; lock() makes it read-only, for root
    too."""
    folder, mounted = tmp_path / "checkout", []
    folder.mkdir()
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        mounted.append(folder)
    for name in ("tools", "module_utils"):
        (folder / name).symlink_to(PROJECT / name)

    def lock():
        if mounted:
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        else:
            folder.chmod(0o555)

    yield folder, lock
    for place in mounted:
        subprocess.run(["umount", place], check=True)


def members(content):
    return sorted(zipfile.ZipFile(BytesIO(content)).namelist())


def test_a_checkout_that_cannot_be_written_to_has_a_collector_all_the_same(
    checkout, tmp_path, monkeypatch
):
    folder, lock = checkout
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock()
    content = read_collector(folder)
    assert "unhang_node/facts/collect.py" in members(content)
    assert sorted(path.name for path in folder.iterdir()) == ["module_utils", "tools"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkout"]
    program = tmp_path / "unhang-collect.pyz"
    program.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-I", "-S", program, "--help"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_one_that_was_built_before_is_sent_from_there(checkout):
    folder, lock = checkout
    (folder / "dist").mkdir()
    (folder / "dist" / "unhang-collect.pyz").write_bytes(b"built a moment ago")
    lock()
    assert read_collector(folder) == b"built a moment ago"


def test_it_is_built_where_it_is_missing_and_again_where_its_sources_are_newer(checkout):
    folder, _ = checkout
    content = read_collector(folder)
    built = folder / "dist" / "unhang-collect.pyz"
    assert built.read_bytes() == content
    built.write_bytes(b"of an older checkout")
    os.utime(built, (0, 0))
    assert members(read_collector(folder)) == members(content)
