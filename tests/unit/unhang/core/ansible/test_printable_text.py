"""Words from a node or a connection, made safe and short for one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# as Ansible finds what its plugins share
sys.path.append(str(Path(__file__).parents[5] / "plugins"))

from unhang.core.ansible.printable_text import clean

FRAME = "@" * 59
CHANGED_KEY = (
    f"Failed to connect via ssh: {FRAME}\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  "
    f"   @\r\n{FRAME}\r\nkey of root@gpu001 is new"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\x1b[31mred\x1b[0m", "[31mred [0m"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\u202egnp.exe", "gnp.exe"),
        (
            CHANGED_KEY,
            (
                "Failed to connect via ssh: WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! key of"
                " root@gpu001 is new"
            ),
        ),
        ("mail ops@example.org @once", "mail ops@example.org @once"),
    ],
)
def test_words_become_one_line_that_a_terminal_can_show(text, line):
    assert clean(text) == line


def test_a_long_line_is_cut_and_shows_it():
    assert clean("x" * 9000, limit=10) == "x" * 9 + "…"
