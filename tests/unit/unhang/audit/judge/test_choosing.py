"""The short form of selectattr and rejectattr gives the same items, evidence and steps as testing each item."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from healthy_nodes import h100_infiniband
from judge_cases import OK, node, write_run

from unhang.audit.judge import choosing, expression_filters
from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.audit.judge.documents import to_fragment
from unhang.audit.judge.expression import compile_expression
from unhang.audit.judge.judging import judge_run
from unhang.audit.judge.node_rules import MOST_EVIDENCE, MOST_FINDINGS, CatalogueView, NodeView, evidence_of, node_world
from unhang.audit.judge.rules import node_names, tables_shape
from unhang.audit.judge.run_input import read_run_input
from unhang.audit.judge.values import Undecided, World, plain

TABLES = {"kinds": {"a": {"key": "a", "name": "x"}, "b": {"key": "b", "name": "y"}}}
SOURCES = [
    f"nccl.settings | {chain} | list | length > 0"
    for chain in (
        "selectattr('name', 'equalto', 'x')",
        "rejectattr('name', 'equalto', 'x')",
        "selectattr('name', 'equalto', node.dmi.product)",
        "rejectattr('source', 'equalto', 'process') | selectattr('name', 'equalto', tables.kinds.a.name)",
        "selectattr('source', 'in', ['nccl_conf', 'environment'])",
        "rejectattr('name', 'in', ['x', 'y']) | selectattr('line', 'equalto', 3)",
        "rejectattr('name', 'startswith', 'x') | selectattr('source', 'startswith', 'nccl_')",
        "rejectattr('name', 'in', tables.kinds | values | selectattr('key', 'equalto', 'b') | map(attribute='name') | list)",
        "selectattr('name', 'in', nccl.settings | map(attribute='value') | unique | list)",
        "selectattr('name', 'in', groups)",
        "selectattr('value', 'equalto', nccl.settings | map(attribute='value') | first)",
    )
] + ["tables.kinds | values | selectattr('name', 'equalto', node.dmi.product) | list | length > 0"]


def fragment(noise: random.Random) -> dict[str, Any]:
    """Rows of settings of which some values are null."""
    names, sources = ["x", "y", "z"], ["process", "nccl_conf", "environment"]
    rows = [
        {"name": noise.choice(names), "value": noise.choice(["1", "2"]), "source": noise.choice(sources), "line": noise.choice([1, 3, 3])}
        for _ in range(noise.randrange(6))
    ]
    for row in rows:
        if noise.random() < 0.1:
            row[noise.choice(["value", "line"])] = None
    return {"nccl": {"probe": OK, "settings": rows}, "node": {"probe": OK, "dmi": {"product": noise.choice(["x", "q", None])}}}


def answer(source: str, world: World, budget: int) -> tuple[Any, ...]:
    """(value or why there is none, evidence, steps)."""
    world.reads, world.budget[0] = [], budget
    try:
        value: Any = plain(compile_expression(source, node_names(TABLES)).evaluate(world))
    except Undecided as problem:
        return problem.causes, None, None
    return value, evidence_of(world.reads), budget - world.budget[0]


@pytest.mark.parametrize("source", SOURCES)
def test_it_says_what_asking_each_item_says(source, monkeypatch):
    view = CatalogueView(TABLES, tables_shape(TABLES), (), "2026-06-01")
    for number in range(120):
        world = node_world(NodeView("a1", ("x", "all"), {}, "ok", "", "", to_fragment(fragment(random.Random(number)))), view)
        found = answer(source, world, 10_000)
        with monkeypatch.context() as slowly:
            slowly.setattr(expression_filters, "plain_choice", lambda *arguments: None)
            assert answer(source, world, 10_000) == found, f"{source} of node {number}"


def test_a_node_with_as_many_settings_as_there_may_be_is_judged_in_few_steps(tmp_path, monkeypatch):
    """Each rule over settings reads a field of a row a few times; what compares each row with all others took a million reads."""
    rows = [
        {"name": ("NCCL_ALGO", f"NCCL_BOGUS_{row}")[row % 2], "value": str(row), "file": "/etc/nccl.conf", "line": row, "source": "nccl_conf"}
        for row in range(1024)
    ]
    healthy = h100_infiniband()["sections"]
    run = write_run(tmp_path / "run", node("a1", {**healthy, "nccl": {**healthy["nccl"], "settings": rows}}), node("a2"))
    asked: Counter[str] = Counter()
    choose = choosing.choose

    def counted(world, items, is_wanted):
        asked["items"] += len(items)
        return choose(world, items, is_wanted)

    monkeypatch.setattr(expression_filters, "choose", counted)
    head = judge_run(read_run_input(run), load_catalogue(), "2026-06-01")
    assert head["nodes"] == {"ok": 2}
    assert head["totals_by_rule"]["nccl-setting-differs-between-files"]["fail"] + head["totals_by_rule"]["nccl-setting-differs-between-files"]["unknown"] > 0
    per_rule = Counter(one["rule"] for one in findings(run) if one["host"] == "a1")
    assert max(per_rule.values()) == MOST_FINDINGS
    assert asked["items"] < 60_000


def findings(run) -> list[dict[str, Any]]:
    return json.loads((run / "findings.json").read_text())["findings"]


def test_evidence_that_is_too_long_keeps_the_nodes_own_facts():
    reads = [(f"tables.nccl_issues.row-{number}.from", "2.30.4") for number in range(MOST_EVIDENCE)]
    reads.insert(1, ("nccl.libraries[0].version", "2.30.5"))
    shown = evidence_of([*reads, ("gpus.model", "NVIDIA B300 SXM6 AC")])
    assert shown[:2] == (("nccl.libraries[0].version", "2.30.5"), ("gpus.model", "NVIDIA B300 SXM6 AC"))
    assert shown[2][0] == "tables.nccl_issues.row-0.from"
    assert (len(shown), shown[-1]) == (MOST_EVIDENCE, ("…", "and 3 more"))


def test_evidence_that_fits_stands_in_the_order_in_which_it_was_read():
    reads = [("tables.nccl_issues.row.from", "2.30.4"), ("nccl.libraries[0].version", "2.30.5"), ("tables.nccl_issues.row.from", "2.30.4")]
    assert evidence_of(reads) == tuple(reads[:2])
