"""An exit code means the same in every command: what pages, helps and the commands themselves say of
2 and 3 is said of no other code, and no command returns a code that README does not have."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from unhang.cli import LAST_LINE
from unhang.commands import COMMANDS
from unhang.commands.names import load_command

HOME = Path(__file__).resolve().parents[4]
PAGES = ["README.md", "llms.txt", *(f"docs/{path.name}" for path in (HOME / "docs").glob("*.md"))]
CODE = re.compile(r"(?<![\w.,-])(\d{1,3})(?=[:,]? [a-z])")
BEGINS = re.compile(r"xit codes?|ends with \d|^0[ ,;]")
ONLY = {  # the words of a code
    "2": r"wrong (?:use|options)|nothing (?:was |could be )?(?:read|tested)|cannot be read",
    "3": r"not (?:yet )?(?:decided|proved)|goes on later|does not tell",
}
WATCH = "86", "128"  # of a job that was ended; of signals, added to their number


def said(text):
    """(code, what is said of it) in the paragraphs and tables about exit codes."""
    for part in re.split(r"\n\s*\n", text):
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line[:1] == "|"]
        if rows and "exit code" in rows[0]:
            column = rows[0].index("exit code")
            for row in rows[2:]:
                code = row.pop(column)
                yield code[:1], " ".join(row)
                yield from pairs(code)
        elif begins := BEGINS.search(text := " ".join(part.split())):
            yield from pairs(re.split(r"\.(?: |$)", text[begins.start() :])[0])


def pairs(text):
    _, *found = CODE.split(text)
    return zip(found[::2], map(str.strip, found[1::2]), strict=True)


def faults(text):
    return [
        (code, words)
        for code, words in said(text)
        for other, only in ONLY.items()
        if other != code and re.search(only, words)
    ]


def own_words(name):
    return load_command(name).run.__doc__ or ""


@pytest.mark.parametrize("text", [*COMMANDS, *PAGES])
def test_a_code_is_said_to_mean_what_it_means_everywhere(text):
    content = own_words(text) if text in COMMANDS else (HOME / text).read_text(encoding="utf-8")
    assert faults(content) == []
    assert {code for code, _ in said(content) if code.isdigit()} <= {*"0123", *WATCH}


def test_the_words_are_found_where_they_are():
    pages = [(HOME / page).read_text(encoding="utf-8") for page in PAGES]
    texts = [LAST_LINE, *pages, *map(own_words, COMMANDS)]
    for code, only in ONLY.items():
        found = [
            text for text in texts if any(re.search(only, w) for c, w in said(text) if c == code)
        ]
        assert len(found) >= 6, code
    assert faults("0 good, 2 not proved, 1 any other state") == [("2", "not proved,")]
    assert faults("| exit code | means |\n| --- | --- |\n| 4 | wrong use |\n") != []


def test_no_command_returns_another_code():
    returned = {}
    for path in (HOME / "tools" / "unhang").rglob("commands/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
                returned.setdefault(node.value.value, path)
    codes = {code: path for code, path in returned.items() if isinstance(code, int)}
    assert {0, 1, 2} <= {*codes} <= {0, 1, 2, 3}, codes
