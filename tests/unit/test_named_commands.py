"""Advice, help and pages name only commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unhang.commands import COMMANDS, HIDDEN, SHORT_NAMES

KNOWN = {word.split()[0] for word in (*COMMANDS, *HIDDEN, *SHORT_NAMES)}
HOME = Path(__file__).parents[2]
# Words that follow the program's name in a sentence; verbs in the third person end with an s.
WORDS = {
    "itself",
    "for",
    "on",
    "at",
    "stored",
    "that",
    "again",
    "likewise",
    "judged",
    "never",
    "set",
    "without",
    "did",
    "read",
    "import",
    "rollout",
}
TEXTS = sorted(
    path
    for pattern in (
        "tools/unhang/**/*.py",
        "tools/unhang/*/catalogue/**/*.yml",
        "docs/**/*.md",
        "roles/**/*.md",
        "playbooks/*.yml",
        "*.md",
    )
    for path in HOME.glob(pattern)
    if path.name != "CHANGELOG.md"
)


def named(text):
    """The words that stand where a command would."""
    in_sentences = {
        word
        for word in re.findall(r"(?<![\w./-])unhang ([a-z][a-z-]+)", text)
        if not word.endswith("s")
    }
    return in_sentences | in_backticks(text)


def in_backticks(text):
    """The same, where a page shows what is typed."""
    return set(re.findall(r"`unhang ([a-z][a-z-]+)", text))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(HOME)))
def test_text_names_only_commands_that_are_there(path):
    text = path.read_text(encoding="utf-8")
    assert (named(text) if "tools" in path.relative_to(HOME).parts else in_backticks(text)) - {
        *KNOWN,
        *WORDS,
    } == set()


def test_command_that_is_not_there_is_found():
    assert named("py-spy shows where; unhang mend follows progress, unhang reads it") - {
        *KNOWN,
        *WORDS,
    } == {"mend"}
