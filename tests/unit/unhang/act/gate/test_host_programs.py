"""The line that node-problem-detector keeps."""

from __future__ import annotations

import io

import pytest

from unhang.act.gate.host_programs import FAIL, answer_for, give, write_line


@pytest.mark.parametrize("letter", ["x", "µ", "\u6f22", "\U0001f525"])
def test_its_line_is_of_80_characters_as_printed_and_begins_with_the_first_fault(letter, capsys):
    reason = f"xid-fatal: Xid 79 {letter * 100}; cpu-governor-powersave: powersave"
    assert give(answer_for("kubernetes", FAIL, reason, "gpu001")) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isascii() and len(line) == 80
    assert line.startswith("xid-fatal: Xid 79 ")


def test_other_programs_keep_the_whole_line():
    assert len(answer_for("slurm-prolog", FAIL, "x" * 300, "gpu001").line) == 300


def test_a_line_is_ascii_on_any_stream():
    stream = io.StringIO()
    write_line(stream, "µ")
    assert stream.getvalue() == "\\xb5\n"
