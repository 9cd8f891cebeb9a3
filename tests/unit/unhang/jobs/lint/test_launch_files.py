"""Launch files as public ones look: lint finds what is wrong in them, and nothing in right ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint, lint_text, render_table

FILE = Path(__file__).parents[4] / "fixtures/lint_launches/cases.yml"
CASES = yaml.safe_load(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_is_wrong_in_a_launch_file_is_found_and_nothing_else(case):
    found = lint_text(case["text"], case["kind"], Context())
    graver = [f"{one.line} {one.rule}" for one in found if one.severity != "info"]
    assert graver == case["found"]


def test_hostfile_beside_a_script_is_read_and_hcl_is_said_to_be_unread(tmp_path):
    (tmp_path / "hosts").write_text("node1 slots=4\nnode2 slots=4\n")
    (tmp_path / "run.sh").write_text("mpirun -np 16 --hostfile ./hosts -x PATH python a.py\n")
    (tmp_path / "train.nomad").write_text('job "train" {}\n')
    document = lint([str(tmp_path)], Context())
    assert [one["rule"] for one in document["findings"]] == ["slots-fewer-than-ranks"]
    notes = [one["note"] for one in document["files"]]
    assert notes == [None, None, "is HCL, such as Nomad's, which is not read"]


def test_each_finding_takes_at_most_four_lines():
    for case in CASES:
        for one in lint_text(case["text"], case["kind"], Context()):
            row = {**vars(one), "file": "train.sbatch"}
            totals = dict.fromkeys(("error", "warning", "info"), 0)
            document = {"findings": [row], "files": [], "totals": totals}
            assert len(render_table(document, 100).splitlines()) <= 4 + 1
