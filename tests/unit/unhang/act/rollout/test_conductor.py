"""The conductor on a plan and a journal on disk: the wave, the order, the journal's entries, and
the controller."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace

import pytest
from msgspec import structs
from rollout_plans import GROUPS, HOSTS, Recorded, planned

from unhang.act.plan.plan_document import read_plan, write_plan
from unhang.act.rollout import journal
from unhang.act.rollout.baseline import KEPT, Baseline
from unhang.act.rollout.conductor import Conductor, Followed, begin
from unhang.act.rollout.failure_limit import wave_line
from unhang.act.rollout.floor import Service
from unhang.act.rollout.journal import Superseded, read_journal
from unhang.act.rollout.kept import PROOFS, keep_proof
from unhang.act.rollout.steps import Entry, Order, StepResult
from unhang.act.rollout.targets import limits_of, target_of
from unhang.core.errors import UserError
from unhang.core.schemas.configuration import hash_of_sections

WHO = {"by": "ops@ctl"}


def over(_holder):
    return True


def at_work(_holder):
    return False


@pytest.fixture
def conductor(tmp_path):
    plan = planned(tmp_path)
    epoch = begin(tmp_path, HOSTS, WHO, over, "")["epoch"]
    return Conductor(tmp_path, Followed(tmp_path, plan), epoch)


def test_a_plan_is_waves_limits_and_targets(tmp_path):
    plan = planned(tmp_path)
    limits = limits_of(plan, GROUPS, "40%")
    assert (limits.failed, limits.canaries) == (1, {"a"})
    assert [(one.name, one.out_of_service) for one in limits.groups] == [
        ("the fleet", 2),
        ("rack1", 1),
    ]
    target = target_of(plan.hosts[0])
    assert (target.reboots, target.boots_back, target.running) == (2, True, {"driver": "580.95.05"})
    assert not target_of(replace(plan.hosts[0], reboots=plan.hosts[0].reboots[:2])).boots_back


def test_what_is_kept_beside_the_plan_is_on_the_disk_before_the_journal_relies_on_it(
    conductor, monkeypatch
):
    synced, sync = set(), os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.add(os.fstat(handle).st_ino) or sync(handle)
    )
    conductor.record(Order("a", "save", 1), StepResult("ok", {"baseline": {"run": "r"}}))
    keep_proof(conductor.folder, "a", Baseline("r"))
    for name in (KEPT, PROOFS):
        [path] = (conductor.folder / name).iterdir()
        assert path.stat().st_ino in synced


def test_a_group_of_the_plans_limits_that_the_inventory_does_not_have_is_refused_and_never_no_limit(
    conductor,
):
    for groups in ({"all": HOSTS}, {"all": HOSTS, "rack1": []}):
        with pytest.raises(
            UserError,
            match="the inventory lacks groups of the plan's limits: rack1",
        ):
            conductor.begin_wave(["a"], groups, "0")
        with pytest.raises(UserError, match="groups of the plan's limits: rack1"):
            conductor.ask("a", "lock", groups, "0")
    assert [entry.step for entry in read_journal(conductor.folder).entries] == ["rollout"]


def test_the_first_wave_begins_and_the_second_waits_for_its_proof(conductor):
    assert conductor.begin_wave(["a"], GROUPS, "0")["begin"] == ["a"]
    stopped = conductor.begin_wave(["b", "c"], GROUPS, "9")
    assert stopped["begin"] == []
    assert stopped["stopped"] == "not proved healthy among the canaries: a"


def test_the_next_controller_knows_that_a_node_is_as_it_was_before(tmp_path):
    first = Recorded(tmp_path, planned(tmp_path))
    first.begin()
    first.through("a", until="audit_back", failing="audit")
    assert not first.standing().node("a").as_before
    first.through("a", until="keep")
    second = Recorded(tmp_path, first.plan)
    second.begin()
    assert second.standing().node("a").as_before


def test_a_step_is_in_the_journal_before_it_is_done_and_after(conductor):
    assert conductor.ask("a", "drain", GROUPS, "0") is None
    order = conductor.ask("a", "lock", GROUPS, "0")
    assert [entry.status for entry in read_journal(conductor.folder).entries] == ["begun", "begun"]
    assert (
        conductor.record(order, StepResult("ok", {"fencing": 7, "boot_id": "a-boot"}))[0] == "done"
    )
    assert conductor.ask("a", "lock", GROUPS, "0") is None
    assert conductor.ask("a", "drain", GROUPS, "0").token == 7


def test_a_node_that_does_not_answer_any_more_ends_its_step(conductor):
    conductor.ask("a", "lock", GROUPS, "0")
    conductor.silent("a", "unreachable")
    conductor.silent("b", "unreachable")
    assert [entry.status for entry in read_journal(conductor.folder).entries if entry.host] == [
        "begun",
        "silent",
    ]
    assert conductor.ending("a") == (
        False,
        "a unfinished: it did not answer, or its answer was not understood (lock: unreachable)",
    )


def test_a_wave_that_nobody_planned_is_refused(conductor):
    with pytest.raises(UserError, match="these are not the hosts of one wave of the plan: a, b"):
        conductor.begin_wave(["a", "b"], GROUPS, "0")


def test_a_second_controller_is_refused_while_the_first_may_be_at_work(conductor):
    folder, run = conductor.folder, conductor.plan.run.id
    with pytest.raises(
        UserError, match=re.escape(f"ops@ctl, who began {read_journal(folder).entries[0].at}")
    ):
        begin(folder, HOSTS, WHO, at_work, "")
    assert begin(folder, HOSTS, WHO, at_work, run)["epoch"] == 2
    with pytest.raises(Superseded):
        conductor.end()


def test_a_rollout_that_has_ended_is_open_to_the_next_controller(conductor):
    conductor.end()
    assert begin(conductor.folder, HOSTS, WHO, at_work, "")["epoch"] == 2


def test_a_plan_for_hosts_that_are_gone_touches_nothing(tmp_path):
    planned(tmp_path)
    with pytest.raises(UserError, match="names c, which the inventory does not have"):
        begin(tmp_path, HOSTS[:2], WHO, over, "")
    assert not (tmp_path / "journal.jsonl").exists()


@pytest.mark.parametrize(
    ("groups", "max_failed", "reason"),
    [
        ({"rack1": []}, "0", "groups of the plan's limits: rack1"),
        (GROUPS, "many", "is not a number of nodes or a share such as 5%"),
    ],
)
def test_limits_that_do_not_hold_are_refused(tmp_path, groups, max_failed, reason):
    with pytest.raises(UserError, match=reason):
        limits_of(planned(tmp_path), groups, max_failed)


def test_what_is_too_long_for_the_journal_is_cut(conductor):
    order = conductor.ask("a", "lock", GROUPS, "0")
    conductor.record(
        order, StepResult("failed", {"why": "x" * 100_000, "holder": {"run": "y" * 100_000}})
    )
    assert len(read_journal(conductor.folder).entries[-1].evidence["why"]) == 2000


def test_a_node_that_is_released_because_of_the_failure_limit_says_so(conductor):
    for step, evidence in (("lock", {"fencing": 7, "boot_id": "a-boot"}),):
        conductor.record(conductor.ask("a", step, GROUPS, "0"), StepResult("ok", evidence))
    conductor.begin_wave(["a"], GROUPS, "0")
    order = replace(
        conductor.ask("a", "drain", GROUPS, "0"),
        step="release",
        boot_id=None,
        why="not proved healthy among the canaries: x",
    )
    journal.append(
        conductor.folder,
        conductor.epoch,
        Entry("2026-11-21T00:00:00Z", "a", "release", "begun", 7, {"why": order.why}),
    )
    conductor.record(order, StepResult("ok", {"drained": False, "owned": False}))
    assert conductor.ending("a") == (
        False, "a deferred: the journal has no change of it (not proved healthy among the canaries: x)",
    )  # fmt: skip


def test_the_floor_is_one_of_the_nodes_that_were_audited(conductor):
    assert conductor.fleet(["a", "b", "z"]) == ["a", "b", "z"]
    (conductor.folder / "run.json").write_text(
        json.dumps({"schema": "unhang/run/1", "id": "x", "hosts": ["a", "b", "gone"]})
    )
    assert conductor.fleet(["a", "b", "z"]) == ["a", "b"]


def test_what_the_floor_leaves_is_written_down_and_admits(conductor):
    plan = replace(conductor.plan, limits=structs.replace(conductor.plan.limits, floor=2))
    floored = replace(conductor, followed=Followed(conductor.folder, plan))
    assert floored.keep_floor(Service(frozenset("ab"), {"c": "alice (bad DIMM)"})).endswith(
        "out of service by others: c (alice (bad DIMM))"
    )
    assert "c (alice (bad DIMM))" in floored.begin_wave(["a"], GROUPS, "0")["postponed"]["a"]
    assert floored.keep_floor(None, "the drain adapter none lists no nodes").endswith(
        "for the floor: the drain adapter none lists no nodes"
    )
    assert floored.begin_wave(["a"], GROUPS, "0")["begin"] == ["a"]
    assert floored.keep_no_room("slurmctld is away").endswith(": slurmctld is away")
    assert "slurmctld is away" in floored.begin_wave(["a"], GROUPS, "0")["postponed"]["a"]
    assert [entry.step for entry in read_journal(floored.folder).entries if not entry.host] == [
        "rollout",
        *["floor", "failure_limit"] * 3,
    ]


def test_a_job_is_over_its_limit_by_the_schedulers_own_clock(conductor):
    # it may take ten minutes more
    runs, said = {"jobs": ["7"], "ends": ["2099-01-01T00:00:00Z"]}, []
    for at in ("2098-12-31T00:00:00Z", "2099-01-01T00:09:00Z", "2099-01-01T00:11:00Z"):
        begun = begin(conductor.folder, HOSTS, WHO, over, "")
        again = Conductor(conductor.folder, conductor.followed, begun["epoch"])
        for step, evidence in (("lock", {"fencing": 7, "boot_id": "a-boot"}), ("drain", runs)):
            result = StepResult("ok", {**evidence, "at": at})
            _, found = again.record(again.ask("a", step, GROUPS, "0"), result)
        said.append(found["over"])
    assert said == [False, False, True]


@pytest.mark.parametrize("unknown", [frozenset(), frozenset("a")])
def test_a_reserved_node_that_the_scheduler_lists_as_out_is_written_down(conductor, unknown):
    runs = {"drained": False, "owned": False, "jobs": ["7"], "ends": ["2099-01-01T00:00:00Z"]}
    for step, evidence in (("lock", {"fencing": 7, "boot_id": "a-boot"}), ("drain", runs)):
        conductor.record(conductor.ask("a", step, GROUPS, "0"), StepResult("ok", evidence))
    assert conductor.standing().reserved() == {"a"}
    conductor.keep_floor(Service(frozenset("bc"), {"a": "unhang"}, unknown))
    assert read_journal(conductor.folder).entries[-1].evidence["emptied"] == ["a"][len(unknown) :]
    assert conductor.standing().reserved() == set(unknown)


@pytest.mark.parametrize(
    ("begin", "postponed", "stopped", "message"),
    [
        (["gpu001", "gpu002", "gpu003"], {}, None, "wave 1: 3 nodes to begin, gpu[001-003]"),
        (["gpu001"], {"gpu002": "w"}, None, "wave 1: 1 node to begin, gpu001; put off: gpu002, w"),
        (
            [],
            {},
            "not proved healthy: gpu009",
            "wave 1: nothing new is begun, not proved healthy: gpu009",
        ),
        (
            ["gpu001"],
            {},
            "not proved healthy: gpu009",
            (
                "wave 1: 1 node to bring to an end, gpu001; nothing new is begun, not proved"
                " healthy: gpu009"
            ),
        ),
        ([], {}, None, "wave 1: nothing is left to do"),
    ],
)
def test_a_wave_is_said_with_its_hosts(begin, postponed, stopped, message):
    assert (
        wave_line({"wave": "wave 1", "begin": begin, "postponed": postponed, "stopped": stopped})
        == message
    )


def test_the_kind_of_a_node_is_its_hardware_as_it_was_read_last(conductor, tmp_path):
    assert conductor.kind("a") == "a"
    (tmp_path / "nodes").mkdir()
    for host, count in (("a", 8), ("b", 8), ("c", 4)):
        facts = {
            "schema": "unhang/node-facts/1",
            "sections": {"gpus": {"model": "NVIDIA H200", "count": count}},
        }
        (tmp_path / "nodes" / f"{host}.json").write_text(
            json.dumps(
                {
                    "schema": "unhang/node/1",
                    "host": host,
                    "status": "ok",
                    "message": "",
                    "facts": facts,
                }
            )
        )
    read = replace(conductor, read=tmp_path)
    assert read.kind("a") == read.kind("b") != read.kind("c")


@pytest.mark.parametrize(
    "facts",
    [
        {},
        [],
        {"sections": None},
        {"sections": []},
        {"sections": {"gpus": [1]}},
        {"sections": {"gpus": {"devices": [7]}}},
    ],
)
def test_a_node_that_answers_rubbish_in_the_middle_of_a_rollout_costs_no_other(
    conductor, tmp_path, facts
):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "a.json").write_text(
        json.dumps(
            {"schema": "unhang/node/1", "host": "a", "status": "ok", "message": "", "facts": facts}
        )
    )
    assert replace(conductor, read=tmp_path).kind("a") == "a"


def test_a_plan_of_last_year_is_applied_while_the_node_is_in_the_boot_and_configuration_of_then(
    tmp_path,
):
    sections = {"node": {"probe": {"status": "ok"}, "boot_id": "a-boot"}}
    plan = planned(tmp_path)
    entry = replace(plan.hosts[0], config_hash=hash_of_sections(sections))
    run = replace(plan.run, started="2025-11-20T07:00:00Z", finished=None)
    write_plan(tmp_path, replace(plan, run=run, hosts=(entry, *plan.hosts[1:])))
    (tmp_path / "nodes").mkdir()
    answered = {"schema": "unhang/node/1", "host": "a", "status": "ok", "message": ""}
    (tmp_path / "nodes" / "a.json").write_text(
        json.dumps({**answered, "facts": {"sections": sections}})
    )
    epoch = begin(tmp_path, HOSTS, WHO, over, "")["epoch"]
    later = Conductor(tmp_path, Followed(tmp_path, read_plan(tmp_path)), epoch, tmp_path)
    assert later.ask("a", "lock", GROUPS, "0") == Order("a", "lock", boot_id="a-boot")
