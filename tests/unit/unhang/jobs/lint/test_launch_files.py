"""Launch files as public ones look: lint finds what is wrong in them, and nothing in right ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from unhang.core.catalogue.own_tables import table
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.launch import NOTHING, Place, launch_of
from unhang.jobs.lint.launch_faults import claims_of
from unhang.jobs.lint.linting import lint, lint_text, render_table, totals_of

FILE = Path(__file__).parents[4] / "fixtures/lint_launches/cases.yml"
LINT = Path(__file__).parents[5] / "tools/unhang/jobs/lint"
OF_ENGLISH = ("any", "pods", "services", "Job")  # places that are no names
CASES = yaml.safe_load(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_is_wrong_in_a_launch_file_is_found_and_nothing_else(case):
    beside = case.get("beside", {})
    context = Context(beside=lambda name: beside.get(Path(name).name, ""))
    found = lint_text(case["text"], case["kind"], context)
    graver = [f"{one.line} {one.rule}" for one in found if one.severity != "info"]
    assert graver == case["found"]


def test_hostfile_beside_a_script_and_a_job_of_nomad_are_read(tmp_path):
    (tmp_path / "hosts").write_text("node1 slots=4\nnode2 slots=4\n")
    (tmp_path / "run.sh").write_text("mpirun -np 16 --hostfile ./hosts -x PATH python a.py\n")
    (tmp_path / "train.nomad").write_text('job "a" {\n group "b" {\n  count =\n }\n}\n')
    document = lint([str(tmp_path)], Context())
    rules = [one["rule"] for one in document["findings"]]
    assert rules == ["slots-fewer-than-ranks", "not-parsed"]
    assert [one["kind"] for one in document["files"]] == ["shell", "shell", "nomad"]


def test_relations_name_quantities_of_a_launch():
    launch = launch_of(NOTHING, [], Place())
    for one in table("relations_of_launches").values():
        names = [one["found"], one["wanted"], one["at"], *one["when"], *one["unless"]]
        claims_of(launch, names)


def test_no_check_names_a_launcher():
    """Its reader sets what a check asks for."""
    rows = [*table("relations_of_launches").values(), *table("relations_of_containers").values()]
    words = [str({**row, "relation": "", "fault": ""}) for row in rows]
    for name in ("checks", "launch_faults", "job_faults", "placed"):
        tree = ast.parse((LINT / f"{name}.py").read_text(encoding="utf-8"))
        parts = [str(part) for one in ast.walk(tree) for part in vars(one).values()]
        words += [one for one in parts if not one.endswith(".")]  # as docstrings do
    names = {*table("launchers"), *table("launch_places")} - {"", *OF_ENGLISH}
    some = "|".join(one.split()[0] for one in names)
    assert re.findall(rf"(?i)(?<![a-z])(?:{some})(?![a-z])", " ".join(words)) == []


def test_each_finding_takes_at_most_four_lines_and_eight_take_24():
    for case in CASES:
        found = lint_text(case["text"], case["kind"], Context())
        rows = [{**vars(one), "file": "train.sbatch"} for one in found]
        for some in [rows, *([row] for row in rows)]:
            document = {"findings": some, "files": [], "totals": totals_of(some)}
            most = len(some) * (3 if len(some) >= 8 else 4)
            assert len(render_table(document, 100).splitlines()) <= most + 1
