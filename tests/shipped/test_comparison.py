"""What docs/comparison.md says of unhang agrees with the commands that there are, and each row of a
peer has the day on which it was read."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from unhang.cli import command_and_parser
from unhang.commands import COMMANDS

HOME = Path(__file__).resolve().parents[2]
PAGE = (HOME / "docs" / "comparison.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if "|" in line
]
PEERS = [row for row in ROWS if len(row) == 5 and row[0] not in ("project", "---")]
DENIED = re.compile(r"\b(?:does not|do not|cannot|never|only when)\b")


def options_of(name):
    return {*command_and_parser(name)[1]._option_string_actions}


def named(text):
    """(command, options) of each command of unhang in the text."""
    for words in re.findall(r"`unhang\s([^`]+)`", text):
        name, *rest = words.split()
        yield name, {one for one in rest if one.startswith("-")}


def test_each_command_and_option_that_the_page_names_is_there():
    found = list(named(PAGE))
    assert {"inspect", "diagnose", "watch", "smoke", "remediate", "mcp"} <= {
        name for name, _ in found
    }
    assert [
        (name, given - options_of(name)) for name, given in found if given - options_of(name)
    ] == []


def test_what_unhang_does_not_do_stands_in_one_table_and_no_command_has_it():
    rows = ROWS[ROWS.index(["it does not", "so no command has", "instead"]) + 2 :]
    absent = {option for row in rows for option in re.findall(r"`(--[\w-]+)`", row[1])}
    assert len(rows) >= 4 and len(absent) >= len(rows)
    assert {name: absent & options_of(name) for name in COMMANDS if absent & options_of(name)} == {}
    assert [row for row in PEERS if DENIED.search(row[3])] == []


def test_each_peer_has_the_day_on_which_its_row_was_read():
    assert len(PEERS) > 20
    days = [datetime.date.fromisoformat(row[4]) for row in PEERS]
    assert min(days) >= datetime.date(2026, 11, 27)


def test_the_scores_of_the_first_page_are_those_of_the_page_on_verdicts():
    first, page = ((HOME / name).read_text("utf-8") for name in ("README.md", "docs/verdicts.md"))
    rows = re.findall(
        r"^\| (?:all|torchfrtrace) \| (\d+) of (\d+), (\d+) of (\d+),", page, re.MULTILINE
    )
    (right, of, right_new, of_new), (other, _, other_new, _) = rows
    assert (
        f"{right} of {of} (`torchfrtrace` in {other}), in 41 that were new to it in"
        f" {right_new} of {of_new} ({other_new})"
    ) in " ".join(first.split())
