"""A plan is applied to a node only while the node is what was planned for."""

from __future__ import annotations

import copy

import pytest

from unhang.act.plan.applicable import NodeNow, OwnWork, reasons_against
from unhang.act.plan.plan_document import HostPlan
from unhang.core.schemas.configuration import hash_of_sections

THEN = {
    "driver": {"probe": {"status": "ok"}, "loaded": {"version": "545.23.08"}},
    "kernel": {"probe": {"status": "ok"}, "release": "6.1.0-47-amd64"},
}
ENTRY = HostPlan("gpu1", "boot-1", hash_of_sections(THEN))
SAME = NodeNow("boot-1", THEN)


def with_driver(version):
    sections = copy.deepcopy(THEN)
    sections["driver"]["loaded"]["version"] = version
    return sections


def reasons(now=SAME, then=THEN, own=None, entry=ENTRY):
    return reasons_against(entry, now, then, own)


def test_a_node_that_is_as_planned_for_may_be_changed():
    assert reasons() == []
    assert reasons(then=None) == []


def test_a_fact_that_changed_is_named():
    (line,) = reasons(NodeNow("boot-1", with_driver("535.154.05")))
    assert line.startswith(
        "gpu1: the node's configuration is not that of the plan: driver.loaded.version: 545.23.08 then, 535.154.05 now"
    )


def test_without_the_facts_of_then_a_change_refuses_all_the_same():
    (line,) = reasons(NodeNow("boot-1", with_driver("535.154.05")), then=None)
    assert "which fact differs is not known" in line
    (line,) = reasons(NodeNow("boot-1", with_driver("535.154.05")), then=with_driver("1.2"))
    assert "which fact differs is not known" in line


def test_a_boot_since_refuses():
    (line,) = reasons(NodeNow("boot-2", THEN))
    assert (
        "the node has booted since the plan was made: its node.boot_id is boot-2, not boot-1"
        in line
    )


@pytest.mark.parametrize("boot_id", [None, "boot-2"])
def test_a_boot_id_that_was_not_read_refuses(boot_id):
    entry = HostPlan("gpu1", None, ENTRY.config_hash) if boot_id else ENTRY
    (line,) = reasons(NodeNow(boot_id, THEN), entry=entry)
    assert "was not read" in line


def test_what_the_journal_records_as_the_rollouts_own_is_no_reason():
    booted = NodeNow("boot-2", with_driver("580.65.06"))
    assert reasons(booted, own=OwnWork({"boot-2"}, changed=True)) == []


def test_a_foreign_boot_counts_while_the_rollout_is_at_work():
    (line,) = reasons(
        NodeNow("boot-3", with_driver("580.65.06")), own=OwnWork({"boot-2"}, changed=True)
    )
    assert "boot_id is boot-3, not boot-1" in line


def test_an_own_boot_excuses_no_foreign_change():
    (line,) = reasons(
        NodeNow("boot-2", with_driver("535.154.05")), own=OwnWork({"boot-2"}, changed=False)
    )
    assert "driver.loaded.version" in line


def test_a_node_that_was_not_read_then_or_now_is_refused():
    assert "was not read when the plan was made" in reasons(entry=HostPlan("gpu1", None, None))[0]
    assert "did not answer" in reasons(NodeNow(None, None))[0]
