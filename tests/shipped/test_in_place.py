"""Of escape sequences a terminal gets colours alone; a table that is redrawn moves the cursor over
its own lines and over nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys

import pytest
from local_fleet import PROJECT

from unhang.core.commands.in_place import ColoursOnly, Screen

START = (
    f"import sys; sys.path[:0] = {[str(PROJECT / name) for name in ('tools', 'module_utils')]!r};"
    " from unhang import cli"
)
PLAIN = {
    "cursor up": "\x1b[3A",
    "cursor home": "\x1b[H",
    "erase": "\x1b[2J",
    "erase below": "\x1b[J",
    "title": "\x1b]0;owned\x07",
    "hyperlink": "\x1b]8;;http://example.org/\x1b\\here\x1b]8;;\x1b\\",
    "hidden": "\x1b[8m",
    "hidden among colours": "\x1b[31;8m",
    "one byte": "\x9b2J",
    "back over the line": "bad\rgood",
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_a_renderer_that_forgets_visible_does_not_open_the_terminal(text):
    forgets = (
        f"{START}; cli._main = lambda arguments: print({text!r}) or print({text!r},"
        " file=sys.stderr) or 0; sys.exit(cli.main())"
    )
    done = subprocess.run([sys.executable, "-P", "-c", forgets], capture_output=True, check=True)
    for printed in (done.stdout.decode(), done.stderr.decode()):
        assert printed.strip("\n").isprintable()


@pytest.mark.parametrize(
    "colour", ["\x1b[31m", "\x1b[1;31m", "\x1b[0m", "\x1b[m", "\x1b[38;5;208m", "\x1b[2;97;41m"]
)
def test_colours_pass(colour):
    into = io.StringIO()
    ColoursOnly(into).write(f"{colour}text\x1b[0m\r\n")
    assert into.getvalue() == f"{colour}text\x1b[0m\r\n"


def test_a_line_of_progress_may_begin_again():
    into = io.StringIO()
    ColoursOnly(into).write("\r3 of 8")
    assert into.getvalue() == "\r3 of 8"


def test_a_screen_moves_over_its_own_lines_alone(monkeypatch):
    monkeypatch.setenv("LINES", "24")
    into = io.StringIO()
    screen = Screen(ColoursOnly(into))
    screen.draw(["one", "two \x1b[9A"])
    screen.write("a word\n")
    screen.draw(["three"])
    screen.clear()
    assert into.getvalue() == "one\ntwo \\u001b[9A\n\x1b[2A\x1b[Ja word\nthree\n\x1b[1A\x1b[J"


def test_a_screen_is_no_higher_than_its_terminal(monkeypatch):
    monkeypatch.setenv("LINES", "5")
    into = io.StringIO()
    Screen(into).draw([str(number) for number in range(9)])
    assert into.getvalue().split("\n") == ["0", "1", "2", "... 6 more lines", ""]


def test_the_table_of_a_watched_job_is_redrawn_in_place(tmp_path):
    """A real terminal; the job is one that ends by itself, with the variables of a rank."""
    rank = {
        **os.environ,
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    ours, theirs = pty.openpty()
    with (
        subprocess.Popen(["sleep", "8"], env=rank) as job,
        open(ours, "rb", buffering=0) as terminal,
    ):
        command = [
            sys.executable,
            "-P",
            "-c",
            f"{START}; sys.exit(cli.main())",
            "watch",
            "--pid",
            str(job.pid),
            "--every",
            "0.5",
        ]
        with subprocess.Popen(
            command,
            stderr=theirs,
            cwd=tmp_path,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        ) as watching:
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # the end of a terminal
                while piece := terminal.read(65536):
                    shown += piece
        assert watching.returncode == 0
    text = shown.decode()
    assert "\\u001b" not in text
    assert text.count(" s watched") > 1
    assert text.count("A\x1b[J") >= text.count(" s watched") - 1
