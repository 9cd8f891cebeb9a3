"""Options that several commands share: --format (-o), --quiet, --rule, --severity; and the examples
at the end of a help text."""

from __future__ import annotations

import argparse
import datetime
import difflib
import fnmatch
from collections.abc import Callable, Collection, Mapping, Sequence

from unhang.core.errors import UserError

MOST_NAMED = 40  # number of rules that a message lists by name
# The common meanings of the formats; a command with another meaning gives its own.
FORMAT_MEANINGS = {
    "csv": "",
    "evidence": "at most 16 KiB of JSON for a ticket or an assistant",
    "json": "",
    "junit": "",
    "sarif": "for code hosts",
}


def add_format_option(
    parser: argparse.ArgumentParser,
    formats: Sequence[str],
    meanings: Mapping[str, str] | None = None,
) -> None:
    """formats: the allowed ones, the default first; meanings: explanations of those whose name is
    not enough."""
    known = {**FORMAT_MEANINGS, **(meanings or {})}
    described = [
        f"{name} ({'default' if not place else known.get(name, '')})".removesuffix(" ()")
        for place, name in enumerate(formats)
    ]
    parser.add_argument(
        "-o",
        "--format",
        choices=tuple(formats),
        default=formats[0],
        metavar="FORMAT",
        help=", ".join(described),
    )


def number_of(things: str) -> Callable[[str], int]:
    """The type of an option whose value is a number of things, 0 too."""

    def parse(given: str) -> int:
        if not (given.isascii() and given.isdigit() and len(given) < 7):
            raise argparse.ArgumentTypeError(f"expected a number of {things}, found {given!r}")
        return int(given)

    return parse


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing; use the exit code"
    )


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """-v of the commands whose first screen has at most 12 lines."""
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="below the first screen all that was found, and what was read",
    )


def add_flag(parser: argparse._ActionsContainer, name: str, meaning: str) -> None:
    """An option without a value."""
    parser.add_argument(name, action="store_true", help=meaning)


def add_repeatable(parser: argparse._ActionsContainer, name: str, value: str, meaning: str) -> None:
    """An option that may be given several times; [] without it. value: as help calls it."""
    parser.add_argument(name, action="append", default=[], metavar=value, help=meaning)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """--rules of the commands that read the catalogue of rules."""
    add_repeatable(parser, "--rules", "DIR", "a folder with additional rules; repeatable")


def add_inventory(
    parser: argparse.ArgumentParser,
    meaning: str = "inventory file or folder, or host1,host2, (default: this machine)",
) -> None:
    """-i of the commands that read nodes."""
    parser.add_argument("-i", "--inventory", action="append", metavar="PATH", help=meaning)


def add_out(parser: argparse.ArgumentParser) -> None:
    """--out of the commands that make a run folder."""
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="parent of the run folders (default: $UNHANG_RUNS, or runs/ in the checkout or the"
        " current folder)",
    )


def add_ansible(parser: argparse.ArgumentParser) -> None:
    """--ansible of the commands that run a playbook."""
    add_repeatable(
        parser, "--ansible", "OPTION", "option for ansible-playbook, for example --ansible=--become"
    )


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """examples: lines to type, each followed by two blanks or more and its purpose."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"examples:\n{examples}"


def add_rule_and_severity(
    parser: argparse.ArgumentParser, example: str, severities: Sequence[str]
) -> None:
    """--rule and --severity over rows that have no nodes. example: of a rule's id."""
    add_repeatable(parser, "--rule", "RULE", f"only this rule: {example}; repeatable")
    add_repeatable(
        parser, "--severity", "SEVERITY", f"only these: {', '.join(severities)}; repeatable"
    )


def takes(
    rule: str, severity: str | None, arguments: argparse.Namespace, severities: Sequence[str]
) -> bool:
    """Whether --rule and --severity select a row. Raises UserError for an unknown severity."""
    rules, wanted = (
        [part.strip() for one in getattr(arguments,
        name) for part in one.split(",") if part.strip()] for name in ("rule", "severity")
    )  # fmt: skip
    if unknown := [one for one in wanted if one not in severities]:
        raise UserError(
            f"--severity: expected one of {', '.join(severities)}, found {unknown[0]!r}"
        )
    return (not rules or any(fnmatch.fnmatchcase(rule, one) for one in rules)) and (
        not wanted or severity in wanted
    )


def check_rules(
    wanted: Sequence[str], known: Collection[str], listed_by: str | None = None
) -> None:
    """Raises UserError for a rule or pattern of --rule without a match, because a misspelt one
    would look like a clean result.

    listed_by: what lists the known rules if they are too many for a message; None to name them in
    any case.
    """
    for one in (part.strip() for given in wanted for part in given.split(",") if part.strip()):
        if not fnmatch.filter(known, one):
            near = difflib.get_close_matches(one, known, 1)
            some = (
                f"there are {', '.join(known)}"
                if listed_by is None or len(known) <= MOST_NAMED
                else f"{listed_by} lists them"
            )
            raise UserError(
                f"--rule: expected the id of a rule, found {one!r};"
                f" {f'did you mean {near[0]}?' if near else some}"
            )


def given_day(given: str | None) -> str:
    """--now as YYYY-MM-DD; today if it is not given. Raises UserError for another spelling, because
    days are compared as texts."""
    if given is None:
        return datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        return datetime.date.fromisoformat(given).isoformat()
    except ValueError:
        raise UserError(f"--now: expected a date such as 2026-12-31, found {given!r}") from None
