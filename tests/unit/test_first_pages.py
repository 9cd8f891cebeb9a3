"""What a person meets first: README fits a screen and a short table, and docs/README.md has three
doors, each with what its reader asks for most."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unhang.audit.report.screen import LINES
from unhang.cli import command_and_parser

HOME = Path(__file__).resolve().parents[2]
README = (HOME / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
MOST_ROWS = 12


DOORS = ["A person with a job", "An operator of a fleet", "A contributor", "Reference"]


def door(title: str) -> str:
    """The text of docs/README.md below that heading."""
    return (
        (HOME / "docs" / "README.md")
        .read_text(encoding="utf-8")
        .partition(f"\n## {title}\n")[2]
        .partition("\n## ")[0]
    )


def rows_of(text: str) -> list[list[str]]:
    """The cells of the rows of its first table."""
    table = re.search(r"^\|.*?\n(?!\|)", text, re.DOTALL | re.MULTILINE)
    assert table is not None
    return [
        [cell.strip() for cell in row.strip("|").split(" | ")] for row in table[0].splitlines()[2:]
    ]


def test_the_first_commands_are_for_a_person_with_a_log_and_then_the_two_for_a_fleet():
    typed = [
        [
            line.partition("#")[0].removeprefix("$ ").strip()
            for line in block.splitlines()
            if line.startswith("$ ")
        ]
        for block in BLOCKS
    ]
    assert typed[0][:2] == ["pipx install .", "unhang inspect"]
    assert {"unhang diagnose job.log", "unhang demo"} <= set(typed[0])
    assert [line.split()[:2] for line in typed[1]] == [["make", "audit"], ["make", "test"]]
    assert "uv tool install" in BLOCKS[0]


def test_the_third_line_is_a_command_that_works_as_it_stands_there():
    """test_installed_wheel.py proves that what it installs has stacks."""
    assert re.findall("`([^`]+)`", README.splitlines()[2]) == ["pip install .", "unhang inspect"]


def test_what_is_touched_as_root_stands_in_five_lines_beside_the_install():
    beside = README.partition(BLOCKS[0])[2].partition(BLOCKS[1])[0]
    told = re.search(r"\nAs root.+\n\n((?:[- ] .+\n)+)", beside)[1]
    assert told.count("\n") <= 5
    for row in told.split("\n- "):
        parsers = [command_and_parser(name)[1] for name in re.findall("`([a-z]+)`", row)]
        known = {option for parser in parsers for option in parser._option_string_actions}
        assert {*re.findall("--[a-z-]+", row)} <= known and parsers


@pytest.mark.parametrize("page", ["docs/first-hour.md", "docs/README.md", "docs/situations.md"])
def test_a_job_that_hangs_is_sent_to_inspect_before_anything_else(page):
    text = (HOME / page).read_text(encoding="utf-8")
    commands = re.findall(r"`(unhang [a-z]+)|^\$ (unhang [a-z]+)", text, re.MULTILINE)
    assert list(commands[0]) == ["unhang inspect", ""]


def test_the_output_that_is_shown_is_one_screen_and_a_table_of_few_rows_follows():
    shown = [
        block
        for block in BLOCKS
        if any(line and not line.startswith("$ ") for line in block.splitlines())
    ]
    assert len(shown) == 1
    assert len(shown[0].splitlines()) <= LINES
    after = README.partition(shown[0])[2]
    assert len(rows_of(after)) <= MOST_ROWS
    assert README.count("\n| --- ") == 1
    # by what a person wants to do
    assert rows_of(after)[0][0] == "start" and all(
        re.match(r"[a-z]", what) and "](" in where for what, where in rows_of(after)
    )


def test_an_assistant_has_one_screen_whose_links_lead_somewhere():
    page = (HOME / "llms.txt").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= LINES and max(map(len, page.splitlines())) <= 100
    links = re.findall(r"\]\(([^)]+)", page)
    assert [link for link in links if not (HOME / link).is_file()] == []
    named = set(re.findall(r"unhang ([a-z]+)", page))
    assert {"inspect", "diagnose", "watch", "lint", "explain", "mcp", "audit"} <= named


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("waive a finding", ("waivers:", "until:")),
        ("bastion", ("ProxyJump",)),
        ("ticket for the vendor", ("-o ticket", "--out")),
        ("systemd timer", ("OnCalendar=", "[Service]")),
    ],
)
def test_what_operators_ask_for_most_is_one_link_behind_their_door(wanted, told):
    ((what, link),) = [row for row in rows_of(door("An operator of a fleet")) if wanted in row[0]]
    page, anchor = re.search(r"\]\((\S+)#(\S+)\)", link).groups()
    sections = re.split(
        r"^#+ (?!/)(.*)$", (HOME / "docs" / page).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    text = {
        re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-"): body
        for title, body in zip(sections[1::2], sections[2::2], strict=True)
    }[anchor]
    assert [one for one in told if one not in text] == [], what


def test_the_documentation_has_three_doors_and_every_page_is_behind_one():
    page = (HOME / "docs" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == DOORS
    linked = {link for title in DOORS for link in re.findall(r"\]\(([\w-]+\.md)", door(title))}
    assert (
        sorted(
            path.name
            for path in (HOME / "docs").glob("*.md")
            if path.name not in {*linked, "README.md"}
        )
        == []
    )
    assert [row[1] for row in rows_of(door(DOORS[0]))][:2] == [
        "`unhang inspect`",
        "`unhang diagnose job.log`",
    ]
