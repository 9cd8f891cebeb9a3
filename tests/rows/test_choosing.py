"""Choosing from a list that a node fills costs few reads, and its evidence stays short."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from healthy_nodes import h100_infiniband
from judge_cases import node, write_run

from unhang.core.run.run_input import read_nodes, read_run_input
from unhang.judge.fleet import node_budget
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules import choosing, expression_filters
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.node_rules import MOST_EVIDENCE, MOST_FINDINGS, evidence_of


def test_a_node_with_as_many_settings_as_there_may_be_is_judged_in_few_steps(tmp_path, monkeypatch):
    """Each rule over settings reads a field of a row a few times; what compares each row with all
    others took a million reads."""
    rows = [
        {
            "name": ("NCCL_ALGO", f"NCCL_BOGUS_{row}")[row % 2],
            "value": str(row),
            "file": "/etc/nccl.conf",
            "line": row,
            "source": "nccl_conf",
        }
        for row in range(1024)
    ]
    healthy = h100_infiniband()["sections"]
    run = write_run(
        tmp_path / "run",
        node("a1", {**healthy, "nccl": {**healthy["nccl"], "settings": rows}}),
        node("a2"),
    )
    asked: Counter[str] = Counter()
    judged = [""]
    choose = choosing.choose

    def counted(world, items, is_wanted):
        asked[judged[-1]] += len(items)
        return choose(world, items, is_wanted)

    monkeypatch.setattr(expression_filters, "choose", counted)
    # reads are counted; how many seconds they take is a property of this machine
    monkeypatch.setattr(node_budget, "NODE_CPU_S", 600.0)
    head = judge_run(read_run_input(run), load_catalogue(), "2026-06-01", mark=judged.append)
    assert head["nodes"] == {"ok": 2}, [
        (one.host, one.message) for one in read_nodes(read_run_input(run))
    ]
    assert (
        head["totals_by_rule"]["nccl-setting-differs-between-files"]["fail"]
        + head["totals_by_rule"]["nccl-setting-differs-between-files"]["unknown"]
        > 0
    )
    per_rule = Counter(one["rule"] for one in findings(run) if one["host"] == "a1")
    assert max(per_rule.values()) == MOST_FINDINGS
    assert asked and max(asked.values()) < len(rows) ** 2 / 4, asked.most_common(3)


def findings(run) -> list[dict[str, Any]]:
    return json.loads((run / "findings.json").read_text())["findings"]


def test_evidence_that_is_too_long_keeps_the_nodes_own_facts():
    reads = [(f"tables.nccl_issues.row-{number}.from", "2.30.4") for number in range(MOST_EVIDENCE)]
    reads.insert(1, ("nccl.libraries[0].version", "2.30.5"))
    shown = evidence_of([*reads, ("gpus.model", "NVIDIA B300 SXM6 AC")])
    assert shown[:2] == (
        ("nccl.libraries[0].version", "2.30.5"),
        ("gpus.model", "NVIDIA B300 SXM6 AC"),
    )
    assert shown[2][0] == "tables.nccl_issues.row-0.from"
    assert (len(shown), shown[-1]) == (MOST_EVIDENCE, ("…", "and 3 more"))


def test_evidence_that_fits_stands_in_the_order_in_which_it_was_read():
    reads = [
        ("tables.nccl_issues.row.from", "2.30.4"),
        ("nccl.libraries[0].version", "2.30.5"),
        ("tables.nccl_issues.row.from", "2.30.4"),
    ]
    assert evidence_of(reads) == tuple(reads[:2])
