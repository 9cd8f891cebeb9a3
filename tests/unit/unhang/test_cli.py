"""A command that fails for any reason prints one line that is safe for a terminal, and exits with
2."""

from __future__ import annotations

import argparse
import re
import sys
import types
from pathlib import Path

import pytest

from unhang.cli import command_and_parser, main
from unhang.commands import COMMANDS
from unhang.core.errors import UserError

PROJECT = Path(__file__).resolve().parents[3]
HOSTILE = "red \x1b[31m, a title \x1b]0;mine\x07,\r over, \u202eleft"
SHOWN = r"red \x1b[31m, a title \x1b]0;mine\x07,\r over, \u202eleft"


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Makes the command `explain` raise the given error; files of details go to the returned
    folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def plant(problem):
        def run(arguments):
            raise problem

        command = types.ModuleType("unhang.commands.explain")
        command.add_arguments, command.run = lambda parser: parser.add_argument("id"), run
        monkeypatch.setitem(sys.modules, "unhang.commands.explain", command)
        return tmp_path

    return plant


def test_a_fault_of_unhang_is_one_line_that_names_a_file_with_the_details(failing, capsys):
    folder = failing(RuntimeError("never\nthought of"))
    assert main(["explain", "a b"]) == 2
    out, problem = capsys.readouterr()
    assert out == ""
    output = re.fullmatch(
        r"unhang: a fault of unhang itself: RuntimeError: never\\nthought of; please report it with"
        r" (\S+)\n",
        problem,
    )
    assert output, problem
    assert Path(output[1]).parent == folder
    details = Path(output[1]).read_text(encoding="utf-8")
    assert "explain 'a b'" in details
    assert "Traceback (most recent call last)" in details
    assert "thought of" in details
    assert f"Python {sys.version.split()[0]}" in details


def test_no_escape_sequence_of_a_fault_reaches_the_terminal_or_its_file(failing, capsys):
    folder = failing(ValueError(HOSTILE))
    assert main(["explain", HOSTILE]) == 2
    problem = capsys.readouterr().err
    assert SHOWN in problem
    assert len(problem.splitlines()) == 1
    (details,) = folder.iterdir()
    for text in (problem, details.read_text(encoding="utf-8")):
        assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_details_that_cannot_be_written_are_said(failing, capsys, monkeypatch):
    folder = failing(RuntimeError("on a full disk"))
    monkeypatch.setattr("tempfile.tempdir", str(folder / "gone"))
    assert main(["explain", "x"]) == 2
    expected = (
        "a fault of unhang itself: RuntimeError: on a full disk; its details could not be written:"
        " No such file or directory"
    )
    assert capsys.readouterr().err == f"unhang: {expected}\n"


@pytest.mark.parametrize(
    "problem",
    [UserError(HOSTILE), OSError(5, "Input/output error", HOSTILE)],
    ids=["a user's mistake", "a file"],
)
def test_what_a_message_quotes_is_shown_and_not_obeyed(failing, capsys, problem):
    failing(problem)
    assert main(["explain", "x"]) == 2
    errors = capsys.readouterr().err
    assert SHOWN in errors
    assert errors.startswith("unhang: ")
    assert errors.isascii()


def test_a_list_of_faults_keeps_its_lines(failing, capsys):
    failing(UserError("mine.yml:3: one\nmine.yml:9: another"))
    assert main(["explain", "x"]) == 2
    assert capsys.readouterr().err == "unhang: mine.yml:3: one\nmine.yml:9: another\n"


def test_a_command_that_is_typed_with_escapes_is_quoted(capsys):
    assert main(["\x1b[31mred"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_file_of_a_fault_holds_no_secret_and_little_of_what_was_typed(failing, capsys):
    folder = failing(
        ValueError(
            "could not log in with password=hunter2hunter2 at https://me:hunter3hunter3@example.org"
        )
    )
    assert main(["explain", "token=hunter4hunter4 " + "x" * 5000]) == 2
    (details,) = folder.iterdir()
    for text in (capsys.readouterr().err, details.read_text(encoding="utf-8")):
        assert "hunter" not in text
    assert len(details.read_text(encoding="utf-8")) < 4000
    assert details.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("columns", ["60", "120"])
def test_help_lists_each_command_once_and_first_what_a_person_needs_first(
    columns, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit):
        main(["--help"])
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= int(columns)
    first, _, more = page.partition("commands:\n")[2].partition("\nmore:\n")
    more = more.partition("\n\n")[0]
    named = [
        [line.split()[0] for line in part.splitlines() if line[2:3].strip()]
        for part in (first, more)
    ]
    assert named[0] == (
        [
            "inspect",
            "diagnose",
            "watch",
            "lint",
            "audit",
            "collect",
            "judge",
            "report",
            "plan",
            "remediate",
            "smoke",
            "explain",
        ]
    )
    assert [*named[0], *named[1]] == [name for name in COMMANDS if " " not in name]
    for name in (one for one in COMMANDS if " " in one):  # in the line of its first word
        assert name in COMMANDS[name.split()[0]]


def test_every_command_selects_nodes_and_an_inventory_by_the_same_words():
    """Names of before are taken as well, and not shown."""
    for name in COMMANDS:
        parser = command_and_parser(name)[1]
        shown = {
            word
            for action in parser._actions
            if action.help != argparse.SUPPRESS
            for word in action.option_strings or [action.metavar]
        }
        assert not shown & {"--limit", "--hosts", "--nodes", "--nodelist", "HOSTS"}, name
        for short, long in (("-l", "--host"), ("-i", "--inventory")):
            assert (short in shown) == (long in shown), name


@pytest.mark.parametrize(
    "typed",
    [
        "audit --limit a --host b -- --limit c",
        "policy --from latest --limit=a -l b",
        "inspect --hosts a --limit b",
        "smoke --hosts a --host b",
        "preprovision --hosts a --limit b",
    ],
)
def test_old_names_of_nodes_mean_what_the_name_means(typed):
    name, *rest = typed.split()
    given = command_and_parser(name)[1].parse_args(rest)
    assert given.host == ["a", "b"]
    assert "--" not in rest or given.ansible == ["--limit", "c"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("admit", "preprovision"),
        ("catalogue new", "catalogue new"),
        ("catalogue", "catalogue"),
    ],
)
def test_a_short_name_is_the_command_that_it_stands_for(capsys, typed, meant):
    for words in ([*typed.split(), "--help"], ["help", *typed.split()]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, problems = capsys.readouterr()
        assert (ended.value.code, problems) == (0, "")
        assert out.startswith(f"usage: unhang {meant} ")


def test_what_the_project_measures_with_is_not_in_the_users_help(capsys):
    with pytest.raises(SystemExit):
        main(["smoke", "--help"])
    text = capsys.readouterr().out
    assert not [name for name in ("--drill", "--step-in", "--show-in") if name in text]
