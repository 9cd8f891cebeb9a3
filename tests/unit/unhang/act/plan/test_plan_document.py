"""The plan's file: a written plan can be read again, and any other file is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.act.plan.plan_document import (
    HostPlan,
    Job,
    PersonNeeded,
    Plan,
    PlanLimits,
    PlannedRun,
    Reboot,
    Refused,
    Remedy,
    Wave,
    digest_of,
    read_plan,
    render_plan,
    write_plan,
)
from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema

POLICY = {"driver": {"min": "580.65.06", "held": True}}
GPU1 = HostPlan(
    "gpu1",
    "boot-1",
    "sha256:" + "0" * 64,
    (
        Remedy(
            "gpu_driver",
            POLICY,
            ("driver-545-23-08-p2p-deadlock",),
            "545.23.08",
            "580.65.06 or newer",
        ),
        Remedy("package_hold", POLICY, ("held",)),
    ),
    (Reboot("apply", "driver"), Reboot("rollback", "the old driver")),
    (Job(4711, "ada", "python", (0, 1)),),
    (),
    (PersonNeeded("nvlink-some-inactive", "have the baseboard serviced"),),
)
GPU2 = HostPlan("gpu2", None, None, refused=(Refused("the policy cannot be used"),))
PLAN = Plan(
    PlannedRun("20261120T202021Z-ed2444e7b2", "2026-11-20T20:20:22Z", None),
    "2026-11-20",
    PlanLimits(1, 0, 2, only=(), except_=("gpu9",)),
    (GPU1, GPU2),
    (Wave("canary 1", ("gpu1",)),),
)


def changed(folder: Path, change, *, honest: bool = False) -> Path:
    """The plan's file after an edit. honest: with the digest of its new content."""
    document = json.loads(render_plan(PLAN))
    change(document)
    if honest:
        document["digest"] = digest_of(document)
    path = folder / "plan.json"
    path.write_text(json.dumps(document))
    return path


def test_what_is_written_is_read_again(tmp_path):
    path = write_plan(tmp_path, PLAN)
    assert read_plan(path) == PLAN == read_plan(tmp_path)
    assert not list(check_schema(json.loads(path.read_text()), "plan-1"))


def test_a_plan_that_was_read_is_written_in_the_same_bytes(tmp_path):
    path = write_plan(tmp_path, PLAN)
    before = path.read_bytes()
    assert write_plan(tmp_path, read_plan(path)).read_bytes() == before


def test_a_plan_that_was_only_laid_out_anew_is_the_same(tmp_path):
    assert read_plan(changed(tmp_path, lambda document: None)) == PLAN


def test_an_entry_is_found_by_its_host(tmp_path):
    plan = read_plan(write_plan(tmp_path, PLAN))
    assert plan.for_host("gpu1") == GPU1
    assert plan.for_host("gpu9") is None
    assert (GPU1.roles, GPU1.policy, GPU2.policy) == (["gpu_driver", "package_hold"], POLICY, {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda plan: plan["hosts"][0]["remedies"].pop(), "edited since"),
        (lambda plan: plan["limits"].update(max_unavailable=50), "edited since"),
        (lambda plan: plan.update(digest="0" * 64), "edited since"),
        (
            lambda plan: plan.update(schema="unhang/plan/2"),
            "is a plan of schema unhang/plan/2, not of unhang/plan/1",
        ),
        (lambda plan: plan.pop("waves"), "the key waves is missing"),
        (lambda plan: plan.update(extra=1), "this key is unknown"),
        (lambda plan: plan["hosts"][0].update(jobs=-1), "hosts.0.jobs"),
    ],
)
def test_an_edit_by_hand_is_noticed(tmp_path, change, says):
    with pytest.raises(UserError, match=says) as shown:
        read_plan(changed(tmp_path, change))
    assert "\n" not in str(shown.value)
    assert "unhang plan" in str(shown.value)


def test_the_plan_of_an_earlier_version_is_read_so_that_it_can_be_undone(tmp_path):
    steps = [{"step": "reboot", "minutes": 4.2, "times": 12}]

    def earlier(document):
        document.update(steps=steps)
        document["limits"]["max_age_s"] = 86400
        document["hosts"][0].update(minutes=4.2, minutes_at_least=1.0)

    assert read_plan(changed(tmp_path, earlier, honest=True)) == PLAN


def with_policy(plan, policy):
    """The policy of the first host is another."""
    for remedy in plan["hosts"][0]["remedies"]:
        remedy["policy"] = policy


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda plan: plan["waves"].append({"name": "wave 1", "hosts": ["gpu1"]}),
            "exactly one wave",
        ),
        (lambda plan: plan["waves"][0]["hosts"].append("gpu2"), "exactly one wave"),
        (lambda plan: plan["waves"].clear(), "exactly one wave"),
        (lambda plan: plan["hosts"].append(plan["hosts"][0]), "exactly one wave"),
        (lambda plan: plan["hosts"][0]["remedies"][1].update(policy={}), "one policy"),
        (
            lambda plan: plan["hosts"][0]["remedies"][0].update(role="drain"),
            "gives gpu1 the role drain, and a plan has the roles kernel, .*; next: unhang plan",
        ),
        (
            lambda plan: with_policy(plan, {"driver": {"version": "{{ lookup('pipe', 'id') }}"}}),
            "gpu1: driver.version: ",
        ),
        (lambda plan: with_policy(plan, {"command": "id"}), "gpu1: command: this key is unknown"),
    ],
)
def test_a_digest_made_by_hand_does_not_make_it_a_plan(tmp_path, change, says):
    with pytest.raises(UserError, match=says):
        read_plan(changed(tmp_path, change, honest=True))


def test_hosts_that_are_gone_are_named(tmp_path):
    path = write_plan(tmp_path, PLAN)
    assert read_plan(path, {"gpu1"}) == PLAN
    with pytest.raises(UserError, match="names gpu1, which the inventory does not have"):
        read_plan(path, {"gpu2", "gpu3"})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 1}', '{"a": 1, "a": 2}', "NaN"])
def test_what_is_no_plan_is_reported_in_one_line(tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UserError, match="a plan") as shown:
        read_plan(path)
    assert "\n" not in str(shown.value)


def test_no_file_is_reported_with_what_makes_one(tmp_path):
    with pytest.raises(UserError, match=r"No such file.*next: unhang plan"):
        read_plan(tmp_path / "plan.json")


def test_the_command_that_makes_a_plan_names_the_run_as_it_is_typed_here(tmp_path, monkeypatch):
    (tmp_path / "runs" / "a run").mkdir(parents=True)
    with pytest.raises(UserError, match=rf"next: unhang plan '{tmp_path}/runs/a run'$"):
        read_plan(tmp_path / "runs" / "a run")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"next: unhang plan 'runs/a run'$"):
        read_plan(tmp_path / "runs" / "a run")
