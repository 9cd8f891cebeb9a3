"""The program's name in messages, and the part of the caller's environment that reaches Ansible."""

from __future__ import annotations

import locale
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unhang import __version__
from unhang.core.ansible.ansible_env import (
    ansible_environment,
    settings_left_out,
    utf8_locale,
)
from unhang.core.ansible.packed_pynvml import link_pynvml, own_folder
from unhang.core.errors import UserError
from unhang.core.project import CACHE_ENV, INSTALLED, program_as_typed


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


def test_without_the_script_the_package_is_named_and_runs(environment, monkeypatch):
    (environment / "unhang").unlink()
    monkeypatch.setattr(sys, "executable", sys._base_executable)
    typed = program_as_typed("/nowhere").split()
    done = subprocess.run([*typed, "--version"], capture_output=True, text=True)
    assert (typed[0], done.stdout) == (sys.executable, f"unhang {__version__}\n"), done.stderr


UTF8 = {"LC_ALL": "C.UTF-8"}
NOT_HERE = "xx_YY.UTF-8"


@pytest.mark.parametrize(
    ("inherited", "given"),
    [
        ({}, UTF8),
        ({"LC_ALL": "C"}, UTF8),
        ({"LANG": "POSIX"}, UTF8),
        ({"LANG": NOT_HERE}, UTF8),
        ({"LANG": NOT_HERE, "LC_CTYPE": "C.UTF-8"}, UTF8),
        ({"LANG": "C.UTF-8", "LC_TIME": NOT_HERE}, UTF8),
        ({"LC_ALL": "C", "LANG": "C.UTF-8"}, UTF8),
        ({"LANG": "C.UTF-8"}, {}),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {}),
        ({"LC_ALL": "C.UTF-8", "LANG": NOT_HERE, "LC_TIME": NOT_HERE}, {}),
        ({"LC_ALL": "", "LANG": "C.UTF-8", "LC_TIME": ""}, {}),
    ],
)
def test_ansible_gets_utf8_where_the_callers_locale_gives_none(inherited, given):
    before = locale.setlocale(locale.LC_ALL)
    assert utf8_locale(inherited) == given
    assert locale.setlocale(locale.LC_ALL) == before
    assert ansible_environment(Path("/checkout"), inherited).get("LC_ALL", "") == {
        **inherited,
        **given,
    }.get("LC_ALL", "")


HARMFUL = [
    "ENABLE_TASK_DEBUGGER",
    "STRATEGY",
    "STRATEGY_PLUGINS",
    "RUN_TAGS",
    "SKIP_TAGS",
    "INVENTORY_ENABLED",
    "STDOUT_CALLBACK",
]


@pytest.mark.parametrize("name", [f"ANSIBLE_{name}" for name in HARMFUL])
def test_a_setting_under_which_an_audit_stops_half_way_is_named_and_left_out(name):
    inherited = {name: "debug", "ANSIBLE_REMOTE_USER": "ops"}
    assert settings_left_out(inherited) == [name]
    assert settings_left_out({name: ""}) == []
    passed_on = ansible_environment(Path("/checkout"), inherited)
    assert name not in passed_on
    assert passed_on["ANSIBLE_REMOTE_USER"] == "ops"


SCREEN_LINES, SCREEN_COLUMNS = 45, 100


def test_the_version_has_its_part_of_the_changelog_and_what_comes_next_stands_above_it():
    page = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    parts = re.findall(r"^## (.+)$", page, re.MULTILINE)
    released = [part for part in parts if part != "Unreleased"]
    assert re.fullmatch(rf"{re.escape(__version__)} \(20\d\d-\d\d-\d\d\)", released[0])
    assert parts[0] in ("Unreleased", released[0])


def test_each_version_has_at_most_a_screen_in_the_changelog():
    page = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part.splitlines() for part in page.split("\n## ")[1:]}
    assert {name: len(lines) for name, lines in parts.items() if len(lines) > SCREEN_LINES} == {}
    assert [line for lines in parts.values() for line in lines if len(line) > SCREEN_COLUMNS] == []


def test_an_installed_unhang_keeps_its_link_below_a_folder_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    link = link_pynvml(INSTALLED)
    assert link.is_relative_to(tmp_path / "cache")
    assert link.resolve().name == "pynvml.py"
    assert link_pynvml(INSTALLED) == link


@pytest.mark.parametrize("open_to_all", [".", "cache", "cache/unhang"])
def test_a_folder_of_links_that_others_can_replace_is_refused(tmp_path, monkeypatch, open_to_all):
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    link_pynvml(INSTALLED)
    (tmp_path / open_to_all).chmod(0o777)
    with pytest.raises(
        UserError, match="it must be closed to others; set XDG_CACHE_HOME to a folder of your own"
    ):
        link_pynvml(INSTALLED)


def test_a_way_through_a_shared_folder_that_keeps_each_file_its_owners_is_fine(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    assert own_folder(tmp_path / "shared" / "mine").is_dir()
    with pytest.raises(UserError, match="everybody can write"):
        own_folder(tmp_path / "shared")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
@pytest.mark.parametrize("theirs", ["cache", "cache/unhang", "way"])
def test_a_folder_of_links_that_belongs_to_another_user_is_refused(tmp_path, monkeypatch, theirs):
    (tmp_path / "cache").mkdir()
    (tmp_path / "way").symlink_to("cache")
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "way"))
    link_pynvml(INSTALLED)
    os.chown(tmp_path / theirs, 65534, 65534, follow_symlinks=False)
    with pytest.raises(
        UserError,
        match=f"/{theirs} belongs to user 65534, .* it must belong to root or to you",
    ):
        link_pynvml(INSTALLED)
