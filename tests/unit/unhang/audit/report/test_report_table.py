"""The terminal table: its content, its width, and control characters, which never reach a
terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import five_situations
import fleets
import golden
import hostile
import jsonschema_rs
import pytest
import yaml

from unhang.audit.report.table import render_table
from unhang.core.terminal import terminal_shape

SCHEMA = Path(__file__).parents[5] / "tools/unhang/core/schemas/findings-1.yaml"
OUTPUTS = golden.outputs()
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that says what kind of terminal it is."""

    def __init__(self, encoding: str, is_terminal: bool):
        super().__init__()
        self._encoding, self._is_terminal = encoding, is_terminal

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return self._is_terminal

    def fileno(self):
        raise OSError("no descriptor")


def test_the_findings_that_these_tests_use_are_what_the_schema_allows():
    validator = jsonschema_rs.validator_for(yaml.safe_load(SCHEMA.read_text()))
    for findings in golden.cases().values():
        validator.validate(findings)


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_the_golden_one(name):
    assert OUTPUTS[name] == (golden.FOLDER / name).read_text(encoding="utf-8")


def test_no_golden_file_is_left_over():
    assert sorted(path.name for path in golden.FOLDER.iterdir()) == sorted(OUTPUTS)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
def test_no_line_is_wider_than_asked_and_no_word_is_lost(width):
    findings = five_situations.fleet()[0]
    text = render_table(findings, width)
    pasted = {
        line
        for block in re.findall(r"^  (?:run  |waive) (?:.*\\\n)*.*", text, re.MULTILINE)
        for line in block.splitlines()
    }
    assert max(len(line) for line in text.splitlines() if line not in pasted) <= width
    # a command's words are never broken, however narrow the terminal is
    assert width < 80 or max(map(len, pasted)) <= width
    if width < 150:
        bare = re.sub(r"\s+", "", text)
        for finding in findings["findings"]:
            assert finding["verdict"] == "unknown" or re.sub(r"\s+", "", finding["title"]) in bare
            assert finding["rule"] in bare


@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS.keys())
@pytest.mark.parametrize("colour", [False, True])
def test_nothing_that_a_node_says_is_obeyed_by_the_terminal(text, colour):
    findings = fleets.findings_that_say(text)
    shown = COLOUR.sub(
        "", render_table(fleets.document(findings, {"ok": 1, text[:80]: 1}, id=text), 100, colour)
    )
    assert all(line.isprintable() for line in shown.split("\n"))
    assert len(shown) < 40_000


def test_ascii_output_is_ascii():
    assert render_table(five_situations.fleet()[0], 100, plain=True).isascii()


def test_without_colour_there_is_no_escape():
    assert "\x1b" not in render_table(five_situations.fleet()[0], 100, False)
    assert "\x1b" in render_table(five_situations.fleet()[0], 100, True)


@pytest.mark.parametrize(
    ("encoding", "is_terminal", "environ", "shape"),
    [
        ("utf-8", False, {}, (100, False, False)),
        ("utf-8", False, {"COLUMNS": "60"}, (60, False, False)),
        ("utf-8", False, {"COLUMNS": "10"}, (40, False, False)),
        ("utf-8", False, {"COLUMNS": "wide"}, (100, False, False)),
        ("utf-8", False, {"COLUMNS": "0"}, (100, False, False)),
        ("utf-8", True, {"COLUMNS": "-9", "TERM": "xterm"}, (80, True, False)),
        ("utf-8", True, {"COLUMNS": "132", "TERM": "xterm-256color"}, (132, True, False)),
        ("utf-8", True, {"COLUMNS": "132", "TERM": "xterm", "NO_COLOR": "1"}, (132, False, False)),
        ("utf-8", True, {"COLUMNS": "132", "TERM": "dumb"}, (132, False, False)),
        ("utf-8", True, {"COLUMNS": "wide", "TERM": "xterm"}, (80, True, False)),
        ("utf-8", True, {"COLUMNS": "10", "TERM": "xterm"}, (40, True, False)),
        ("ascii", True, {"TERM": "xterm"}, (80, True, True)),
        ("iso8859-1", False, {}, (100, False, True)),
        (None, False, {}, (100, False, True)),
    ],
)
def test_the_terminal_decides_width_colour_and_letters(encoding, is_terminal, environ, shape):
    assert terminal_shape(Terminal(encoding, is_terminal), environ) == shape


def test_the_last_line_is_the_next_command():
    assert (
        render_table(fleets.document([], {"ok": 1}), 100, run="runs/7").rstrip().splitlines()[-1]
        == "next: unhang report runs/7 --format html"
    )


SCATTERED = fleets.document(
    [fleets.finding("r", f"gpu{host:04d}", "error", "t", "e", "f") for host in range(0, 2000, 2)],
    {"ok": 2000},
)


@pytest.mark.parametrize("width", [60, 80, 100, 150, 160, 200])
def test_no_set_of_nodes_is_broken_inside_a_number(width):
    shown = re.search(r"gpu\[[^\]]*\]", render_table(SCATTERED, width))
    assert {len(number) for number in re.findall(r"\d+", shown[0])} == {4}


def test_many_scattered_hosts_are_shortened_on_a_terminal_and_whole_in_a_pipe():
    assert len(render_table(SCATTERED, 100, full=False)) < 1500
    assert "1998]" in re.sub(r"\s", "", render_table(SCATTERED, 100))
