"""Each command in README and docs can be typed: its own parser accepts its options."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shlex
import subprocess

import pytest
from page_commands import BLOCK, PROJECT, READS, audits, commands, pages, scripts, typed_in_tests

from unhang.cli import command_and_parser
from unhang.commands.names import command_and_arguments

DEADLINE_S = 280
COMMANDS = commands()
OWN = [one for one in COMMANDS if one.program == "unhang"]
PLAYBOOKS = [one for one in COMMANDS if one.program == "ansible-playbook"]
MADE = [one for one in COMMANDS if one.program == "make"]
# Commands that act are run by another test, as the page has them: as_typed() of documented_command.
ACTS = (
    "audit",
    "collect",
    "inspect",
    "watch",
    "remediate",
    "preprovision",
    "smoke",
    "waive",
    "mcp",
)
# Other projects' programs that a test runs, either as the page has them or with other arguments.
OTHERS = {
    **dict.fromkeys(
        ("cp", "export", "source", "ssh-keygen", "ansible-inventory"),
        "tests/plays/test_commands_that_act.py",
    ),
    "ansible-galaxy": "tests/support/installed_collection.py",
}
OUR_FILES = {
    "unhang-quick.pyz": "tests/shipped/test_quick_pyz.py",
    "unhang-collect.pyz": "tests/plays/test_pyz.py",
}


@pytest.mark.parametrize("typed", OWN, ids=str)
def test_its_options_are_those_that_the_command_takes(typed):
    name, arguments = command_and_arguments(typed.argv[1:])
    _, parser = command_and_parser(name)
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            parser.parse_args(arguments)
    except SystemExit as end:
        assert end.code == 0, f"{typed}: {output.getvalue()}"


def not_run():
    """The programs that docs/testing.md lists as run by no test."""
    _, _, table = (PROJECT / "docs" / "testing.md").read_text().partition("| not run | ")
    rows = itertools.takewhile(lambda line: line.startswith("|"), table.splitlines()[2:])
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_what_a_container_is_told_is_what_the_command_takes():
    [typed] = [one for one in COMMANDS if one.program == "podman"]
    _, parser = command_and_parser(typed.argv[typed.argv.index("localhost/unhang") + 1])
    parser.parse_args(typed.argv[typed.argv.index("localhost/unhang") + 2 :])


def test_every_other_program_is_run_by_a_test_or_the_page_on_testing_says_why_not():
    rest = [one for one in COMMANDS if one not in (*OWN, *PLAYBOOKS, *MADE)]
    left = {
        one.program
        for one in rest
        if one.program not in OTHERS
        and not any(word.removeprefix("./") in OUR_FILES for word in one.argv[:3])
    }
    assert left | {"make"} == not_run(), (
        "docs/testing.md has those that no test runs, and no others"
    )
    assert {*OTHERS} - {one.program for one in rest} == set()
    assert [
        path for path in {*OUR_FILES.values(), *OTHERS.values()} if not (PROJECT / path).is_file()
    ] == []
    for one in rest:
        assert [
            word for word in one.argv if word.startswith("tests/") and not (PROJECT / word).exists()
        ] == [], one


@pytest.mark.parametrize(("page", "text"), scripts(), ids=[page for page, _ in scripts()])
def test_a_script_of_a_page_is_one_that_sh_reads(page, text):
    done = subprocess.run(
        ["sh", "-n"], input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), page


def test_no_command_stands_where_no_test_reads_it():
    """A command in a block that is only indented. Pages of roles are left out, because they show a
    site's own playbooks in this form."""
    fenced = re.compile(r"^( *)```.*?^ *```", re.DOTALL | re.MULTILINE)
    typed = re.compile(
        r"^ {4,}(?:\$ )?(?:\.venv/bin/)?(?:unhang [a-z]+ |make [a-z]|ansible-playbook )",
        re.MULTILINE,
    )
    outside = {
        path: fenced.sub("", path.read_text()) for path in pages() if "roles" not in path.parts
    }
    assert {
        str(path.relative_to(PROJECT)): found
        for path, text in outside.items()
        if (found := typed.findall(text))
    } == {}


def crons():
    """(page, arguments of unhang) of each crontab line."""
    lines = [
        (path, line)
        for path in pages()
        for block in re.findall(r"```text\n(.*?)```", path.read_text(), re.DOTALL)
        for line in block.splitlines()
    ]
    lines = [(path.name, line) for path, line in lines if re.match(r"(?:[\d*/,-]+ +){5}", line)]
    return [
        (page, tuple(shlex.split(typed)))
        for page, line in lines
        for typed in re.findall(r"\.venv/bin/unhang ([^;|&]+)", line)
    ]


@pytest.mark.parametrize(
    ("page", "argv"), crons(), ids=[f"{page}: {' '.join(argv)}" for page, argv in crons()]
)
def test_a_line_of_crons_is_one_that_the_command_takes(page, argv):
    name, given = command_and_arguments(argv)
    command_and_parser(name)[1].parse_args(given)


def inline():
    """(page, text) of each `unhang …` between backticks in running text and tables."""
    found = {}
    for path in pages():
        text = BLOCK.sub("", path.read_text())
        for typed in re.findall(r"`(?:\.venv/bin/)?(unhang [a-z][^`\n]*)`", text):
            found[typed] = str(path.relative_to(PROJECT))
    return sorted((page, typed) for typed, page in found.items())


def test_a_command_between_backticks_has_a_name_and_options_that_there_are():
    wrong = []
    for page, typed in inline():
        argv = typed.split()
        if argv[1] == "help":
            continue
        if argv[1] not in {*READS, *ACTS}:
            wrong.append(f"{page}: {typed}")
            continue
        name, _ = command_and_arguments(argv[1:])
        _, parser = command_and_parser(name)
        # the rest belongs to Ansible or to another program
        own = typed.partition(" -- ")[0].partition(" | ")[0]
        options = re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", own)
        wrong += [
            f"{page}: {typed}" for option in options if option not in parser._option_string_actions
        ]
    assert wrong == []


def test_no_command_is_left_out():
    assert {one.argv[1] for one in OWN} <= {*READS, *ACTS}


def test_each_command_that_acts_is_run_as_it_stands_on_its_page():
    acting = {one.form for one in (*OWN, *PLAYBOOKS) if one.argv[1] not in READS}
    assert sorted(acting - {*typed_in_tests(), *audits()}) == []
    assert sorted({*typed_in_tests()} - {one.form for one in COMMANDS}) == [], (
        "no page has it any more"
    )
