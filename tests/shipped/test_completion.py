"""What bash, zsh and fish offer, asked of the real shells with the script of `unhang
completion`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from unhang.cli import main
from unhang.commands import COMMANDS, SHORT_NAMES
from unhang.commands.completing import nodes, parser_for

DEADLINE_S = 120
FIRST_WORDS = {name.split()[0] for name in (*COMMANDS, *SHORT_NAMES)}
ASK_BASH = (
    'source "$0"; COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9; read -ra COMP_WORDS <<<"$1";'
    ' _python_argcomplete unhang "${COMP_WORDS[-1]}" unhang; printf "%s\\n" "${COMPREPLY[@]}"'
)
# compinit's own helper prints what it is given.
ASK_ZSH = (
    'compdef() { }; is-at-least() { false }; _describe() { print -rl -- ${(P)2} }; source "$0";'
    " BUFFER=$1 CURSOR=$#1 words=(unhang); _python_argcomplete"
)
ASK_FISH = 'source $argv[1]; complete -C "$argv[2]"'
SHELLS = {
    "bash": ["bash", "--norc", "-c", ASK_BASH],
    "zsh": ["zsh", "-f", "-c", ASK_ZSH],
    "fish": ["fish", "-N", "-c", ASK_FISH],
}


def a_run(folder, *hosts):
    """A run folder of these nodes."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"schema": "unhang/run/1", "id": folder.name, "hosts": hosts})
    )
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a program `unhang`, the scripts of all shells, and a run of two nodes."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "unhang").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m unhang "$@"\n')
    (folder / "unhang").chmod(0o755)
    run = a_run(folder / "runs" / "20261120T070000Z-0123456789", "gpu001", "login1")
    (folder / "runs" / "latest").symlink_to(run)
    (folder / "job.log").write_text("")
    for shell in SHELLS:
        with pytest.MonkeyPatch.context() as patch, (folder / f"script.{shell}").open("w") as out:
            patch.setattr("sys.stdout", out)
            assert main(["completion", shell]) == 0
    return folder


@pytest.fixture(params=SHELLS)
def offered(request, place):
    """typed -> the words that the shell offers."""
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here: apt-get install {request.param}")
    environment = {
        **os.environ,
        "PATH": f"{place}:{os.environ['PATH']}",
        "UNHANG_RUNS": str(place / "runs"),
        "HOME": str(place),
    }

    def ask(typed):
        command = [*SHELLS[request.param], str(place / f"script.{request.param}"), typed]
        done = subprocess.run(
            command,
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        separator = {"zsh": ":", "fish": "\t"}.get(request.param, " ")
        return {
            line.partition(separator)[0].strip() for line in done.stdout.split("\n") if line.strip()
        }

    return ask


def test_commands_are_offered_and_the_second_word_of_those_of_two(offered):
    assert offered("unhang ") - {"--help", "--version", "-h"} == FIRST_WORDS
    assert offered("unhang re") == {"report", "remediate"}
    assert offered("unhang catalogue ") - {"--help", "-h"} == {"new", "check"}
    assert offered("unhang admit --verify job.log --fa") == {"--facts"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("unhang audit --fo", {"--forks", "--format"}),
        ("unhang report --format j", {"json", "junit"}),
        ("unhang report --owner v", {"vendor"}),
        ("unhang report --rule xid-f", {"xid-fatal"}),
        ("unhang report --host gpu", {"gpu001"}),
        ("unhang report 2026", {"20261120T070000Z-0123456789"}),
        ("unhang history diff lo", {"login1"}),
        ("unhang explain acs_", {"acs_iommu"}),
        ("unhang explain gpu_dr", {"gpu_driver"}),
        ("unhang completion f", {"fish"}),
        ("unhang diagnose jo", {"job.log"}),
    ],
)
def test_values_are_those_that_there_are(offered, typed, expected):
    assert offered(typed) == expected


def test_a_name_that_a_terminal_would_obey_is_not_offered(place, monkeypatch):
    monkeypatch.setenv("UNHANG_RUNS", str(place / "hostile"))
    a_run(place / "hostile" / "latest", "gpu\x1b[31m")
    assert nodes() == ["gpu\x1b[31m"] and completer_of_hosts()(prefix="") == []


def test_nothing_is_offered_where_there_is_no_run(tmp_path, monkeypatch):
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "none"))
    assert completer_of_hosts()(prefix="") == []


def completer_of_hosts():
    """What completes the option --host of report."""
    chosen = parser_for(["report"])._subparsers._group_actions[0].choices["report"]
    (host,) = [action for action in chosen._actions if "--host" in action.option_strings]
    return host.completer
