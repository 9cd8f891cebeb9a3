"""A plan is applied to a node only while the node is what was planned for."""

from __future__ import annotations

import copy
import datetime

import pytest

from unhang.act.plan.applicable import NodeNow, OwnWork, reasons_against
from unhang.act.plan.plan_document import HostPlan, Plan, PlanLimits, PlannedRun
from unhang.core.schemas.configuration import hash_of_sections

THEN = {
    "driver": {"probe": {"status": "ok"}, "loaded": {"version": "545.23.08"}},
    "kernel": {"probe": {"status": "ok"}, "release": "6.1.0-47-amd64"},
}
ENTRY = HostPlan("gpu1", "boot-1", hash_of_sections(THEN))
PLAN = Plan(
    PlannedRun("run", "2026-11-20T20:00:00Z", None),
    "2026-11-20",
    PlanLimits(1, 0, 1, 24 * 3600),
    (ENTRY,),
)
SOON = datetime.datetime(2026, 11, 20, 21, 0, tzinfo=datetime.UTC)
SAME = NodeNow("boot-1", THEN)


def with_driver(version):
    sections = copy.deepcopy(THEN)
    sections["driver"]["loaded"]["version"] = version
    return sections


def reasons(now=SAME, at=SOON, then=THEN, own=None, entry=ENTRY):
    return reasons_against(PLAN, entry, now, at, then, own)


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


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (
            SOON + datetime.timedelta(days=1),
            "its audit began 2026-11-20T20:00:00Z, 25 h 0 min ago",
        ),
        (SOON - datetime.timedelta(days=1), "yet to come by this controller's clock"),
    ],
)
def test_an_old_plan_and_one_of_the_future_refuse(at, says):
    (line,) = reasons(at=at)
    assert says in line


def test_the_last_second_of_its_age_counts():
    limit = datetime.datetime(2026, 11, 21, 20, 0, tzinfo=datetime.UTC)
    assert reasons(at=limit) == []
    assert reasons(at=limit + datetime.timedelta(seconds=1)) != []


def test_what_the_journal_records_as_the_rollouts_own_is_no_reason():
    booted = NodeNow("boot-2", with_driver("580.65.06"))
    late = SOON + datetime.timedelta(days=3)
    assert reasons(booted, late, own=OwnWork({"boot-2"}, changed=True)) == []


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
