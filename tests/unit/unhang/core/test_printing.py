"""Everything is printed through one place: nothing raw that a terminal acts upon, in every
encoding, and a document stays one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from hostile import TEXTS
from local_fleet import PROJECT

from unhang.core.printing import SafeStream, safe_text

START = (
    f"import sys; sys.path[:0] = {[str(PROJECT / name) for name in ('tools', 'module_utils')]!r};"
    " from unhang.cli import main; sys.exit(main())"
)


def unhang(*arguments, encoding="utf-8", **more):
    """A finished command, its output as bytes."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.run(
        [sys.executable, "-P", "-c", START, *arguments],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
        **given,
    )


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_document_keeps_its_content_and_prints_nothing_raw(text, encoding):
    into = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    SafeStream(into).write(json.dumps({"x": text}, ensure_ascii=False))
    into.flush()
    printed = into.buffer.getvalue().decode(encoding)
    assert printed.isprintable()
    assert json.loads(printed) == {"x": text}


def test_colours_stay_and_other_sequences_do_not():
    assert (
        safe_text("\x1b[1;31mred\x1b[0m\x1b]0;title\x07\x1b[8A\x1b[2J\x1b[5i")
        == "\x1b[1;31mred\x1b[0m\\u001b]0;title\\u0007\x1b[8A\x1b[2J\\u001b[5i"
    )
    assert safe_text("line\n\tother é 😀\r") == "line\n\tother é 😀\r"
    assert safe_text("é 😀", "ascii") == r"\u00e9 \ud83d\ude00"


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["\u202e", "\x7f", "\x9b31m", "\u2066"])
def test_what_was_typed_is_shown_without_its_control_characters(odd):
    done = unhang("judge", f"--no-{odd}-option")
    assert done.returncode == 2
    assert f"--no-\\u{ord(odd[0]):04x}" in done.stderr.decode()
    assert all(letter.isprintable() or letter == "\n" for letter in done.stderr.decode())


@pytest.mark.slow
def test_every_encoding_can_print_a_catalogue(encoding="ascii"):
    done = unhang("explain", "toolkit-older-than-gpu", "-o", "json", encoding=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)


@pytest.mark.slow
def test_output_that_cannot_be_written_is_no_success():
    with open("/dev/full", "wb") as full:
        done = unhang("explain", "toolkit-older-than-gpu", stdout=full)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("unhang: ")
    assert done.stderr.decode().endswith("No space left on device\n")


@pytest.mark.slow
def test_closed_output_is_no_fault():
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            '"$0" -P -c "$1" explain toolkit-older-than-gpu >&-',
            sys.executable,
            START,
        ],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
