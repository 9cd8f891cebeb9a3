"""The options --rule and --severity of commands that list rows which have no nodes: of `unhang
catalogue` and `unhang lint`."""

from __future__ import annotations

import argparse
import difflib
import fnmatch
from collections.abc import Collection, Sequence
from typing import Any

from unhang.core.commands.common_options import add_repeatable
from unhang.core.errors import UserError

MOST_NAMED = 40  # number of rules that a message lists by name


def add_rule_and_severity(
    parser: argparse.ArgumentParser, example: str, severities: Sequence[str]
) -> None:
    """--rule and --severity over rows that have no nodes. example: of a rule's id."""
    add_repeatable(parser, "--rule", "RULE", f"only this rule: {example}; repeatable")
    add_repeatable(
        parser, "--severity", "SEVERITY", f"only these: {', '.join(severities)}; repeatable"
    )


def selected(
    rows: Sequence[dict[str, Any]],
    key: str,
    given: tuple[Sequence[str], Sequence[str]],
    severities: Sequence[str],
) -> list[dict[str, Any]]:
    """The rows that --rule and --severity, which were given, select. key: of a row's rule. Raises
    UserError for an unknown severity, where there is a row."""
    rules, wanted = map(_parts, given)
    if rows and (unknown := [one for one in wanted if one not in severities]):
        raise UserError(f"--severity takes one of {', '.join(severities)}, not {unknown[0]!r}")
    return [
        row
        for row in rows
        if (not rules or any(fnmatch.fnmatchcase(row[key], one) for one in rules))
        and (not wanted or row.get("severity") in wanted)
    ]


def check_rules(
    wanted: Sequence[str], known: Collection[str], listed_by: str | None = None
) -> None:
    """Raises UserError for a rule or pattern of --rule without a match, because a misspelt one
    would look like a clean result.

    listed_by: what lists the known rules if they are too many for a message; None to name them in
    any case.
    """
    for one in _parts(wanted):
        if not fnmatch.filter(known, one):
            near = difflib.get_close_matches(one, known, 1)
            some = (
                f"there are {', '.join(known)}"
                if listed_by is None or len(known) <= MOST_NAMED
                else f"{listed_by} lists them"
            )
            raise UserError(
                f"--rule takes the id of a rule, not {one!r};"
                f" {f'did you mean {near[0]}?' if near else some}"
            )


def _parts(given: Sequence[str]) -> list[str]:
    """The values of a repeatable option; one may be several with commas."""
    return [part.strip() for one in given for part in one.split(",") if part.strip()]
