"""What bash, zsh and fish offer, asked of the real shells with the script of `unhang
completion`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from unhang.cli import main
from unhang.commands import COMMANDS, SHORT_NAMES

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


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a program `unhang` and the scripts of all shells."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "unhang").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m unhang "$@"\n')
    (folder / "unhang").chmod(0o755)
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
    assert offered("unhang history di") == {"diff"}
    assert offered("unhang admit --verify job.log --fa") == {"--facts"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("unhang audit --fo", {"--forks", "--format"}),
        ("unhang report --format j", {"json", "junit"}),
        ("unhang completion f", {"fish"}),
        ("unhang diagnose jo", {"job.log"}),
    ],
)
def test_options_choices_and_files_are_offered(offered, typed, expected):
    assert offered(typed) == expected
