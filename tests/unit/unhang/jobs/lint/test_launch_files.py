"""Launch files as public ones look: lint finds what is wrong in them, and nothing in right ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text, render_table

FILE = Path(__file__).parents[4] / "fixtures/lint_launches/cases.yml"
CASES = yaml.safe_load(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_is_wrong_in_a_launch_file_is_found_and_nothing_else(case):
    found = lint_text(case["text"], case["kind"], Context())
    graver = [f"{one.line} {one.rule}" for one in found if one.severity != "info"]
    assert graver == case["found"]


def test_each_finding_takes_at_most_four_lines():
    for case in CASES:
        for one in lint_text(case["text"], case["kind"], Context()):
            row = {**vars(one), "file": "train.sbatch"}
            totals = dict.fromkeys(("error", "warning", "info"), 0)
            document = {"findings": [row], "files": [], "totals": totals}
            assert len(render_table(document, 100).splitlines()) <= 4 + 1
