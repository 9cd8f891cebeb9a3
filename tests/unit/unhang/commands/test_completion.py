"""The scripts of `unhang completion`, run by the real shells."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from unhang.cli import main
from unhang.commands import COMMANDS

DEADLINE_S = 120
ASK_BASH = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _unhang; printf "%s\\n" "${COMPREPLY[@]}"'
# compinit's own helpers print what they are given: the specifications, as zsh has read them.
ASK_ZSH = '_arguments() { print -rl -- "$@" }; _describe() { print -rl -- $commands }; compdef() { }; source "$0"; words=("$@"); CURRENT=$#; _unhang'


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """{shell: file}."""
    folder = tmp_path_factory.mktemp("completion")
    files = {}
    for shell in ("bash", "zsh"):
        files[shell] = folder / shell
        with pytest.MonkeyPatch.context() as patch, files[shell].open("w") as out:
            patch.setattr("sys.stdout", out)
            assert main(["completion", shell]) == 0
    return files


@pytest.fixture
def bash(scripts):
    """What bash offers for the last of these words."""
    return lambda *argv: asked(["bash", "--norc", "-c", ASK_BASH, scripts["bash"], *argv])


@pytest.fixture
def zsh(scripts):
    """The specifications that zsh completes the last of these words by."""
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here: apt-get install zsh")
    return lambda *argv: asked(["zsh", "-f", "-c", ASK_ZSH, scripts["zsh"], *argv])


def asked(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


def test_bash_offers_the_commands_that_begin_so(bash):
    assert bash("unhang", "re") == ["report", "remediate"]
    assert set(bash("unhang", "")) == {*COMMANDS, "--help", "--version"}


def test_bash_offers_options_their_values_and_files_for_the_rest(bash):
    assert bash("unhang", "audit", "--fo") == ["--forks", "--format"]
    assert bash("unhang", "report", "--format", "j") == ["json", "jsonl", "junit"]
    assert bash("unhang", "report", "-o", "sa") == ["sarif"]
    assert bash("unhang", "completion", "z") == ["zsh"]
    assert bash("unhang", "audit", "--policy", "") == [""]  # nothing of ours: bash's own completion of files comes next
    assert bash("unhang", "diagnose", "slu") == [""]


def test_zsh_knows_the_commands_and_what_each_is_for(zsh):
    assert zsh("unhang", "") == [f"{name}:{purpose}" for name, purpose in COMMANDS.items()]


@pytest.mark.parametrize("name", COMMANDS)
def test_zsh_reads_the_specifications_of_each_command(zsh, name):
    specifications = zsh("unhang", name, "")
    assert "(-h --help)--help[show this help message and exit]" in specifications
    assert [one for one in specifications if one.count("[") > 1] == []


def test_zsh_offers_values_and_takes_an_option_again_where_it_may_be_given_again(zsh):
    specifications = zsh("unhang", "audit", "")
    assert any(
        one.startswith("(-o --format)--format[table") and one.endswith(":FORMAT:(table wide name csv json jsonl markdown html junit sarif prometheus)")
        for one in specifications
    )
    assert any(one.startswith("*--inventory[") and one.endswith(":PATH:_files") for one in specifications)
