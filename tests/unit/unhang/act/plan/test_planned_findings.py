"""A plan reads its fields of findings.json unchanged; other fields have no effect."""

from __future__ import annotations

import copy

import five_situations
import fleets
import pytest

from unhang.act.plan.plan_document import render_plan
from unhang.act.plan.planned_findings import PlannedFinding, PlannedFindings, read_planned_findings
from unhang.act.plan.planning import plan_run
from unhang.core.errors import UserError
from unhang.core.run.findings import read_findings
from unhang.judge.rules.compiled_catalogue import load_catalogue

CATALOGUE = load_catalogue()


@pytest.fixture
def folder(tmp_path):
    """A judged run. An NCCL of no package is among its findings, which where it is found tells."""
    findings, nodes = copy.deepcopy(five_situations.fleet())
    failed = next(
        one for one in findings["findings"] if one["verdict"] == "fail" and one["scope"] == "node"
    )
    remedy = {"role": "nccl_profile", "policy": {"nccl": {"min": "2.26.5"}}}
    findings["findings"].append(
        {**failed, "where": {"path": "/opt/env/libnccl.so.2"}, "remedy": remedy}
    )
    fleets.write_run(tmp_path / "run", findings, nodes)
    return tmp_path / "run"


def test_its_fields_are_those_of_the_file(folder):
    read, whole = read_planned_findings(folder), read_findings(folder)
    kept = whole.keys() & PlannedFindings.__annotations__.keys()
    assert {**read, "findings": []} == {**{key: whole[key] for key in kept}, "findings": []}
    assert read["findings"] == [
        {key: one[key] for key in one.keys() & PlannedFinding.__annotations__.keys()}
        for one in whole["findings"]
    ]
    assert len(read["findings"]) > 10


def test_the_plan_is_that_of_the_whole_file(folder):
    text = render_plan(plan_run(folder, CATALOGUE))
    assert text == render_plan(plan_run(folder, CATALOGUE, findings=read_findings(folder)))
    assert "NCCL in /opt/env/libnccl.so.2 is of no package" in text


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '"text"',
        "{",
        '{"schema": "unhang/findings/2"}',
        '{"schema": "unhang/findings/1", "findings": 1}',
    ],
)
def test_what_are_no_findings_is_named_as_every_reader_names_it(folder, content):
    (folder / "findings.json").write_text(content)
    with pytest.raises(UserError) as whole:
        read_findings(folder)
    with pytest.raises(UserError) as read:
        read_planned_findings(folder)
    assert str(read.value) == str(whole.value)
