"""Options that commands share, by the same names: --format (-o), --quiet, --rule, --severity; and the examples at the end of a help."""

from __future__ import annotations

import argparse
import datetime
import fnmatch
from collections.abc import Mapping, Sequence

from unhang.errors import UserError

# What the names mean wherever they are taken; a command that means something else says so.
FORMAT_MEANINGS = {"csv": "", "json": "", "jsonl": "", "markdown": "", "junit": "", "sarif": "for code hosts"}


def add_format_option(parser: argparse.ArgumentParser, formats: Sequence[str], meanings: Mapping[str, str] | None = None) -> None:
    """formats: the allowed ones, the default first; meanings: what one is, where its name does not say it."""
    known = {**FORMAT_MEANINGS, **(meanings or {})}
    described = [f"{name} ({'default' if not place else known.get(name, '')})".removesuffix(" ()") for place, name in enumerate(formats)]
    parser.add_argument("-o", "--format", choices=tuple(formats), default=formats[0], metavar="FORMAT", help=", ".join(described))


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """--quiet."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing; use the exit code")


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """examples: lines as they are typed, what each does behind two blanks or more."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"examples:\n{examples}"


def add_rule_and_severity(parser: argparse.ArgumentParser, example: str, severities: Sequence[str]) -> None:
    """--rule and --severity over rows that have no nodes. example: of a rule's id."""
    parser.add_argument("--rule", action="append", default=[], metavar="RULE", help=f"only this rule: {example}; repeatable")
    parser.add_argument("--severity", action="append", default=[], metavar="SEVERITY", help=f"only these: {', '.join(severities)}; repeatable")


def takes(rule: str, severity: str | None, arguments: argparse.Namespace, severities: Sequence[str]) -> bool:
    """Whether --rule and --severity ask for a row. Raises UserError for a severity that there is none of."""
    rules, wanted = (
        [part.strip() for one in getattr(arguments, name) for part in one.split(",") if part.strip()] for name in ("rule", "severity")
    )  # fmt: skip
    if unknown := [one for one in wanted if one not in severities]:
        raise UserError(f"--severity: expected one of {', '.join(severities)}, found {unknown[0]!r}")
    return (not rules or any(fnmatch.fnmatchcase(rule, one) for one in rules)) and (not wanted or severity in wanted)


def given_day(given: str | None) -> str:
    """--now as YYYY-MM-DD; today when it is not given. Raises UserError: days are compared as texts, and another spelling would compare as something."""
    if given is None:
        return datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        return datetime.date.fromisoformat(given).isoformat()
    except ValueError:
        raise UserError(f"--now: expected a date such as 2026-12-31, found {given!r}") from None
