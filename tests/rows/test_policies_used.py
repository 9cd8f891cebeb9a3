"""findings.json says where the policies came from by which a run was judged."""

from __future__ import annotations

import json

import pytest
from judge_cases import write_run

from unhang.judge.triage.run_judging import judge_folder

COUNT = {"gpu": {"count": 8}}
FAULTY = {"gpu": {"count": "eight"}}


def document(host, policy):
    facts = {"schema": "unhang/node-facts/1", "collector": {"version": "1"}, "sections": {}}
    return {
        "schema": "unhang/node/1",
        "host": host,
        "groups": [],
        "policy": policy,
        "status": "ok",
        "message": None,
        "facts": facts,
    }


@pytest.mark.parametrize(
    ("inventory", "policies", "expected"),
    [
        (["/site/hosts.yml"], [{}, COUNT], "inventory"),
        (["/site/hosts.yml"], [{}, {}], "none"),
        (None, [COUNT, {}], "documents"),
        (None, [{}, {}], "none"),
        (None, [FAULTY, {}], "none"),
    ],
)
def test_the_findings_say_whose_policies_were_used(tmp_path, inventory, policies, expected):
    run = write_run(
        tmp_path / "run",
        *(document(f"gpu{number}", policy) for number, policy in enumerate(policies)),
    )
    head = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**head, "inventory": inventory}))
    judge_folder(run, [], None, "2026-11-20")
    assert json.loads((run / "findings.json").read_text())["judged_by"] == {
        "policy": None,
        "rules": [],
        "policies_from": expected,
    }
