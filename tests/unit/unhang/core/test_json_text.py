"""JSON: the object of findings.json and nothing else."""

from __future__ import annotations

import json

import five_situations
import fleets
import hostile
import pytest

from unhang.core.json_text import render_json


def test_json_is_the_findings_document():
    findings = five_situations.fleet()[0]
    assert json.loads(render_json(findings)) == findings


@pytest.mark.parametrize(
    "text",
    [
        text
        for name, text in hostile.TEXTS.items()
        if "long" not in name and "surrogate" not in name
    ],
)
def test_what_a_terminal_would_obey_is_escaped_and_read_back_the_same(text):
    findings = fleets.document([fleets.finding("r", "n", "error", text, text, text)], {"ok": 1})
    shown = render_json(findings)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert json.loads(shown) == findings
