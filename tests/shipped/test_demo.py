"""The recorded fleet travels in a wheel as an archive, and is unpacked once."""

from __future__ import annotations

import importlib.util
import os

import pytest
from local_fleet import PROJECT

from unhang import cli
from unhang.audit.commands.demo import ARCHIVE, recorded_fleet


@pytest.fixture
def packing(monkeypatch):
    """tools/setup/packed_project.py, which hatchling loads by its path."""
    spec = importlib.util.spec_from_file_location(
        "packed_project", PROJECT / "tools" / "setup" / "packed_project.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_archive_is_the_same_each_time_and_gives_the_fleet_back(packing, tmp_path, monkeypatch):
    (tmp_path / "checkout").mkdir()
    os.symlink(PROJECT / "inventory", tmp_path / "checkout" / "inventory")
    archive = packing.packed_demo(tmp_path / "checkout")
    first = archive.read_bytes()
    assert packing.packed_demo(tmp_path / "checkout").read_bytes() == first and len(first) < 200_000
    home = tmp_path / "home"
    home.mkdir()
    (home / ARCHIVE).write_bytes(first)
    monkeypatch.setattr("unhang.core.project.INSTALLED", home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fleet = recorded_fleet(home)
    assert recorded_fleet(home) == fleet and fleet.is_relative_to(tmp_path / "cache")
    for path in (PROJECT / "inventory" / "demo").rglob("*"):
        if "__pycache__" not in path.parts and (path.is_symlink() or path.is_file()):
            copy = fleet / path.relative_to(PROJECT / "inventory" / "demo")
            assert (
                os.readlink(copy) == os.readlink(path)
                if path.is_symlink()
                else copy.read_bytes() == path.read_bytes()
            )


def test_a_checkout_uses_its_own_and_an_inventory_is_refused(capsys):
    assert recorded_fleet(PROJECT) == PROJECT / "inventory" / "demo"
    assert cli.main(["demo", "-i", "hosts.yml"]) == 2
    assert "the demo takes no --inventory" in capsys.readouterr().err
