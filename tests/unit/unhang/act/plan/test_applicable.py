"""A plan is applied to a node only while the node is what was planned for."""

from __future__ import annotations

import pytest

from unhang.act.plan.applicable import reasons_against
from unhang.act.plan.plan_document import HostPlan
from unhang.core.schemas.configuration import hash_of_sections


def at(boot_id, version="545.23.08"):
    return {
        "node": {"probe": {"status": "ok"}, "boot_id": boot_id},
        "driver": {"probe": {"status": "ok"}, "loaded": {"version": version}},
        "kernel": {"probe": {"status": "ok"}, "release": "6.1.0-47-amd64"},
    }


THEN = at("boot-1")
ENTRY = HostPlan("gpu1", "boot-1", hash_of_sections(THEN))


def reasons(now=THEN, then=THEN, own_boot=None, entry=ENTRY):
    return reasons_against(entry, now, then, own_boot)


def test_a_node_that_is_as_planned_for_may_be_changed():
    assert reasons() == []
    assert reasons(then=None) == []


def test_a_fact_that_changed_is_named():
    (line,) = reasons(at("boot-1", "535.154.05"))
    assert line.startswith(
        "gpu1: the node's configuration is not that of the plan: driver.loaded.version: 545.23.08 then, 535.154.05 now"
    )


def test_without_the_facts_of_then_a_change_refuses_all_the_same():
    (line,) = reasons(at("boot-1", "535.154.05"), then=None)
    assert "which fact differs is not known" in line
    (line,) = reasons(at("boot-1", "535.154.05"), then=at("boot-1", "1.2"))
    assert "which fact differs is not known" in line


def test_a_boot_since_refuses():
    (line,) = reasons(at("boot-2"))
    assert (
        "the node has booted since the plan was made: its node.boot_id is boot-2, not boot-1"
        in line
    )


@pytest.mark.parametrize("boot_id", [None, "boot-2"])
def test_a_boot_id_that_was_not_read_refuses(boot_id):
    entry = HostPlan("gpu1", None, ENTRY.config_hash) if boot_id else ENTRY
    (line,) = reasons(at(boot_id), entry=entry)
    assert "was not read" in line


def test_what_the_journal_records_as_the_rollouts_own_is_no_reason():
    assert reasons(at("boot-2", "580.65.06"), own_boot="boot-2") == []


def test_a_foreign_boot_counts_while_the_rollout_is_at_work():
    (line,) = reasons(at("boot-3", "580.65.06"), own_boot="boot-2")
    assert "boot_id is boot-3, not boot-1" in line


def test_a_node_that_was_not_read_then_or_now_is_refused():
    assert "was not read when the plan was made" in reasons(entry=HostPlan("gpu1", None, None))[0]
    assert "did not answer" in reasons(None)[0]
