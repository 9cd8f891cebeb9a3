"""The reason for a path without a value: first the section's own rows, then its status, then the
schema's meaning of a null."""

from __future__ import annotations

import json

import pytest
from judge_cases import node, sections

from unhang.core.run.documents import decode_node
from unhang.core.schemas.shapes import fact_shapes, null_meanings
from unhang.judge.rules.node_rules import why_null


def facts_with(section, probe):
    found = sections(**{section: {"probe": probe}})
    return decode_node(json.dumps(node("a1", found)).encode()).sections


def row(field, status="denied", reason="needs root"):
    return {"status": "ok", "unread": [{"field": field, "status": status, "reason": reason}]}


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("rdma", "network.rdma"),
        ("rdma", "network.rdma[2].ports[1].state"),
        ("rdma[*].ports", "network.rdma[2].ports[1].state"),
        ("rdma[2].ports[1].gids", "network.rdma[2].ports[1].gids"),
    ],
)
def test_a_row_speaks_of_its_field_and_of_what_lies_below(field, path):
    found = why_null(facts_with("network", row(field)), path)
    assert (found.status, found.reason) == ("denied", "needs root")


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("rdma[2].firmware", "network.rdma[1].firmware"),
        ("rdm", "network.rdma"),
        ("rdma[*].ports", "network.rdma[2].firmware"),
    ],
)
def test_a_row_does_not_speak_of_its_neighbours(field, path):
    assert why_null(facts_with("network", row(field)), path).reason != "needs root"


def test_a_null_that_means_that_there_is_none_makes_the_rule_not_apply():
    found = why_null(facts_with("cuda", {"status": "ok"}), "cuda.build_tools.nvcc.version")
    assert (found.kind, found.reason) == ("absent", "not installed")


@pytest.mark.parametrize(
    "probe",
    [row("build_tools"), {"status": "timeout", "error": "open /usr/local/cuda did not return"}],
)
def test_a_field_that_could_not_be_read_is_not_taken_for_one_that_is_not_there(probe):
    assert why_null(facts_with("cuda", probe), "cuda.build_tools.nvcc.version").kind == "unread"


def test_a_null_without_any_reason_is_unknown():
    found = why_null(facts_with("kernel", {"status": "ok"}), "kernel.release")
    assert (found.kind, found.reason) == ("unread", "the node gave no value and no reason")


def test_every_meaning_of_the_schema_stands_at_a_path_of_the_facts():
    assert {path.split(".")[0] for path in null_meanings()} <= set(fact_shapes())
    assert null_meanings()["nccl.libraries[*].package"] == "of no package"
