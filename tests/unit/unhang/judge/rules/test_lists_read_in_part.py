"""A list of which only a part was read: verdicts on its items are valid, and the missing part does
not pass."""

from __future__ import annotations

import pytest
from judge_cases import rule

from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view, judge_fragments
from unhang.judge.rules.node_rules import judge_rule, node_world
from unhang.judge.rules.rules import compile_rule

FOLK = {"name": "NCCL_TIMEOUT", "value": "1", "file": "/etc/environment", "line": 1}
OTHER = {"name": "NCCL_DEBUG", "value": "WARN", "file": "/etc/environment", "line": 2}
EACH = rule("item.name == 'NCCL_TIMEOUT'", for_each="nccl.settings")
ANY = rule("nccl.settings | selectattr('name', '==', 'NCCL_TIMEOUT') | list | length > 0")


def judged(row, settings, field="settings", status="denied"):
    probe = {
        "status": "ok",
        "unread": [{"field": field, "status": status, "reason": "/etc/nccl.conf needs root"}],
    }
    node = example_node({"nccl": {"probe": probe, "settings": settings}})
    return judge_rule(compile_rule(row), node_world(node, catalogue_view()))


@pytest.mark.parametrize("row", [EACH, ANY], ids=["for each", "any"])
@pytest.mark.parametrize("settings", [[], [OTHER]], ids=["nothing seen", "something else seen"])
def test_no_fault_among_what_was_seen_is_no_pass(row, settings):
    last = judged(row, settings)[-1]
    assert (last.verdict, last.missing) == (
        "unknown",
        (("nccl.settings", "denied", "/etc/nccl.conf needs root"),),
    )


@pytest.mark.parametrize("row", [EACH, ANY], ids=["for each", "any"])
def test_a_fault_among_what_was_seen_is_found(row):
    assert "fail" in [one.verdict for one in judged(row, [OTHER, FOLK])]


@pytest.mark.parametrize("row", [EACH, ANY], ids=["for each", "any"])
@pytest.mark.parametrize(
    ("field", "status"),
    [("settings", "absent"), ("libraries", "denied"), ("settings[0].line", "error")],
)
def test_another_gap_does_not_count_against_the_list(row, field, status):
    assert [one.verdict for one in judged(row, [OTHER], field, status)] == ["pass"]


GROUP = rule(
    "distinct > 1", scope="group", compare="nccl.settings | map(attribute='name') | sort | list"
)


def part(settings, status):
    probe = {
        "status": "ok",
        "unread": [{"field": "settings", "status": status, "reason": "/etc/nccl.conf needs root"}],
    }
    return {"nccl": {"probe": probe, "settings": settings}}


@pytest.mark.parametrize(("status", "verdict"), [("denied", "unknown"), ("absent", "fail")])
def test_a_node_whose_list_was_read_in_part_does_not_differ_from_its_peers_by_it(status, verdict):
    whole = {"nccl": {"probe": {"status": "ok"}, "settings": [OTHER, FOLK]}}
    assert (
        judge_fragments(
            compile_rule(GROUP), [whole, whole, part([OTHER], status)], catalogue_view()
        )
        == verdict
    )
