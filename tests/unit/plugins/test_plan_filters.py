"""The filters with which playbooks/remediate.yml reads a plan: hosts and sizes of the waves; roles,
policy and manual work of a host."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.act.plan.plan_document import (
    HostPlan,
    PersonNeeded,
    Plan,
    PlanLimits,
    PlannedRun,
    Remedy,
    Wave,
    write_plan,
)

PLUGIN = Path(__file__).resolve().parents[3] / "plugins" / "filter" / "unhang_plan.py"
POLICY = {"driver": {"min": "580.65.06"}}
PEOPLE = (
    PersonNeeded("nvlink-some-inactive", "service the baseboard"),
    PersonNeeded("gpu-lost", "reseat it"),
    PersonNeeded("gpu-lost", "and the other"),
)
REMEDIES = (Remedy("gpu_driver", POLICY, ("old",)),)
HOSTS = (
    HostPlan("gpu1", "b", "sha256:" + "0" * 64, REMEDIES, person=PEOPLE),
    HostPlan("gpu2", "b", "sha256:" + "1" * 64, REMEDIES),
    HostPlan("gpu3", "b", "sha256:" + "2" * 64, REMEDIES),
)
WAVES = (Wave("canary 1", ("gpu1",)), Wave("wave 1", ("gpu2", "gpu3")))
PLAN = Plan(
    PlannedRun("20261120T202021Z-ed2444e7b2", "2026-11-20T20:20:22Z", None),
    "2026-11-20",
    PlanLimits(2, 0, 3),
    HOSTS,
    WAVES,
)


AN_UNDO = replace(PLAN, undoes=PLAN.run.id)


def audited(folder, policy):
    """The run folder of the plan's audit, with a policy for gpu1."""
    (folder / "nodes").mkdir(parents=True)
    node = {"schema": "unhang/node/1", "host": "gpu1", "groups": [], "policy": policy}
    node |= {"status": "failed", "message": "", "facts": None}
    (folder / "nodes" / "gpu1.json").write_text(json.dumps(node))
    return folder


@pytest.fixture
def filters():
    """The plugin's filters, loaded by path as Ansible loads them."""
    spec = importlib.util.spec_from_file_location(PLUGIN.stem, PLUGIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()


def test_waves_are_hosts_and_their_sizes(filters, tmp_path):
    path = str(write_plan(tmp_path, PLAN))
    assert filters["unhang_plan_hosts"](path) == ["gpu1", "gpu2", "gpu3"]
    assert filters["unhang_plan_serial"](path, ["gpu1", "gpu2", "gpu3", "other"]) == [1, 2]
    assert filters["unhang_plan_serial"](path, ["gpu2"]) == [1]  # the inventory has lost the others
    assert filters["unhang_plan_hosts"](path, False) == "all:!all"


def test_a_host_has_its_roles_its_policy_and_what_is_left_to_a_person(filters, tmp_path):
    path = str(write_plan(tmp_path, PLAN))
    assert filters["unhang_plan_roles"](path, "gpu1") == ["gpu_driver"]
    assert filters["unhang_plan_policy"](path, "gpu1") == POLICY
    assert filters["unhang_plan_person"](path, "gpu1") == ["gpu-lost", "nvlink-some-inactive"]
    assert filters["unhang_plan_person"](path, "gpu2") == []
    assert filters["unhang_plan_person"](path, "gpu9") == []


def test_an_edit_of_the_inventorys_policy_since_the_audit_of_the_plan_is_seen(filters, tmp_path):
    path = str(write_plan(audited(tmp_path, {"kernel": {"min": "6"}}), PLAN))
    edited = filters["unhang_plan_policy_edited"]
    assert not edited(path, "gpu1", {"kernel": {"min": "6"}})
    assert edited(path, "gpu1", {})
    assert not edited(path, "gpu2", {"kernel": {"min": "6"}})  # its audit is gone


def test_an_undo_is_judged_by_the_policy_of_the_audit_to_which_it_goes_back(filters, tmp_path):
    run = audited(tmp_path, {"kernel": {"min": "6"}})
    (run / "undo").mkdir()
    path = str(write_plan(run / "undo", AN_UNDO))
    assert filters["unhang_plan_policy"](path, "gpu1") == {"kernel": {"min": "6"}}
