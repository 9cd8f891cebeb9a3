"""Every command's help has examples that its parser accepts and the allowed values of options; for
a mistyped name it proposes the right one."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from unhang.cli import command_and_parser, main, top_parser
from unhang.commands import COMMANDS
from unhang.commands.names import command_and_arguments

FORMATS = {
    "table",
    "csv",
    "json",
    "evidence",
    "prometheus",
    "html",
    "junit",
    "ticket",
    "sarif",
}
FILTERED = ("audit", "judge", "report", "plan", "remediate")
BLANKS = re.compile(r"\s{2,}")


def parser_of(name):
    return command_and_parser(name)[1]


def examples_of(name):
    """The commands of the examples as a person would paste them."""
    shown = parser_of(name).format_help().partition("examples:\n")[2].splitlines()
    return [BLANKS.split(line.strip())[0] for line in shown if line.strip()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_of_a_help_is_taken_by_the_parsers(name):
    examples = examples_of(name)
    assert any(f"unhang {name}" in example for example in examples)
    for example in examples:
        for part in re.split(r" \| |[<>]\(|\) | > ", example):
            argv = shlex.split(part.strip(" )"))
            if argv[:1] == ["unhang"]:
                meant, arguments = command_and_arguments(argv[1:])
                command_and_parser(meant)[1].parse_args(arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_with_allowed_values_lists_them(name):
    parser = parser_of(name)
    for action in parser._actions:
        if action.choices and action.help != argparse.SUPPRESS:
            # argparse shows them in place of a name
            shown = (
                f"{action.help}"
                f" {' '.join(map(str, action.choices)) if action.metavar is None else ''}"
            )
            assert [
                choice
                for choice in action.choices
                if not re.search(rf"\b{re.escape(str(choice))}\b", shown)
            ] == [], action.option_strings


@pytest.mark.parametrize("name", COMMANDS)
def test_formats_and_quiet_have_the_same_names_everywhere(name):
    options = parser_of(name)._option_string_actions
    assert options.get("-o") is options.get("--format")
    if chosen := options.get("--format"):
        assert set(chosen.choices) <= FORMATS
        assert {"table", "json"} <= set(chosen.choices)
        assert chosen.default == "table"
    if "-q" in options:
        assert options["-q"] is options["--quiet"]


@pytest.mark.parametrize("name", FILTERED)
def test_filters_have_the_same_names_and_words_everywhere(name):
    options = parser_of(name)._option_string_actions
    others = parser_of("report")._option_string_actions
    for option in ("--host", "--group", "--rule", "--severity")[name == "audit" :]:
        assert (options[option].metavar, options[option].help) == (
            others[option].metavar,
            others[option].help,
        )


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["lnt"], "unhang: there is no command 'lnt' (did you mean lint?)\n"),
        (["qqqq"], "there are inspect,"),
        (["--versoin"], "did you mean --version?"),
        (["report", "--fromat", "csv"], "did you mean --format?"),
        (["report", "--format", "cvs"], "did you mean csv?"),
        (["lint", "--severty", "error", "x.sh"], "did you mean --severity?"),
        (
            ["-i", "inventory/my cluster", "audit", "-q"],
            "did you mean: unhang audit -i 'inventory/my cluster' -q",
        ),
        (["completion", "bsh"], "did you mean bash?"),
        (["explain", "xid"], "unhang explain xid 79"),
        (["report", "--only", "xid-fatal"], "did you mean --rule?"),
        (["remediate", "--dry-run"], "leave it out: nothing is changed without --apply"),
        (["audit", "gpu001", "-q"], "give hosts with --host"),
        (["report", "runs/latest", "gpu001"], "did you mean --host gpu001?"),
        (["audit", "-f", "0"], "--forks takes a number of nodes from 1 on, not 0"),
        (
            ["remediate", "--max-failed", "few"],
            "--max-failed: 'few' is not a number of nodes or a share such as 5%",
        ),
    ],
)
def test_what_was_mistyped_is_named_as_it_was_meant(argv, meant, capsys):
    try:
        code = main(argv)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_is_one_line_and_usage_is_for_help_alone(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--no-such-option"])
    out, problems = capsys.readouterr()
    assert (ended.value.code, out, len(problems.splitlines())) == (2, "", 1)
    assert problems.startswith(f"unhang {name}: error: ") and "usage:" not in problems


@pytest.mark.parametrize(
    "argv",
    [
        ["remediate", "--aply"],
        ["remediate", "--appyl"],
        ["history", "--prnue"],
    ],
)
def test_an_option_that_acts_is_never_guessed(argv, capsys):
    with pytest.raises(SystemExit):
        main(argv)
    assert "did you mean" not in capsys.readouterr().err


def test_help_alone_is_that_of_all_commands(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == top_parser().format_help()
