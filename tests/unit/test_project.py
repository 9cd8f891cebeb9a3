"""How the program names itself to the person who typed it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unhang.project import program_as_typed


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment in the current folder, as make leaves it: its programs are not on the PATH."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "unhang"):
        (programs / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    return programs


def test_a_program_on_the_path_is_typed_by_its_name(environment):
    assert program_as_typed(str(environment)) == "unhang"


def test_a_program_of_an_environment_here_is_typed_by_the_way_to_it(environment):
    assert program_as_typed("/nowhere") == ".venv/bin/unhang"


def test_from_another_folder_the_way_is_absolute(environment, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert program_as_typed("/nowhere") == str(environment / "unhang")


def test_without_the_script_the_module_is_named(environment):
    (environment / "unhang").unlink()
    assert program_as_typed("/nowhere") == f"{Path(sys.executable)} -m unhang"
