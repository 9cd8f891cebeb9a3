"""The work that the judge expects from roles is the same as in a plan of that node, also if a role refuses the whole node."""

from __future__ import annotations

import copy

import pytest

from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.audit.judge.documents import NodeDocument, to_fragment
from unhang.audit.judge.policy import policy_faults
from unhang.audit.triage.found import Found
from unhang.repair.plan.host_plan import plan_for_host
from unhang.repair.plan.planning import knowledge_of
from unhang.repair.plan.role_coverage import Promise

CATALOGUE = load_catalogue()
TODAY = "2026-11-20"
KNOWLEDGE = knowledge_of(CATALOGUE, TODAY)
OK = {"probe": {"status": "ok"}}
SECTIONS = {
    "node": {**OK, "os": {"id": "ubuntu", "version_id": "22.04", "family": "debian"}, "image": {"kind": "installed"}},
    "kernel": {**OK, "release": "5.4.0-172-generic", "out_of_tree": ["nvidia"], "boot": {"can_clear_one_shot": True}},
    "driver": {**OK, "loaded": {"is_loaded": True, "version": "545.23.08", "flavour": "proprietary"}, "install_method": "packages"},
}
REMEDIES = {
    "kernel-below-5-5": {"role": "kernel", "policy": {"kernel": {"min": "5.15.0"}}},
    "driver-545-23-08-p2p-deadlock": {"role": "gpu_driver", "policy": {"driver": {"min": "580.65.06"}}},
    "packages-driver-not-held": {"role": "package_hold", "policy": {"driver": {"held": True}}},
}


def found(number, rule):
    return Found(number, rule, rule, "error", "node", ("gpu1",), {}, REMEDIES[rule], None)


def asked(policy=None, **changes):
    """(the judge's input, the plan) of one node. changes: section -> fields."""
    sections = copy.deepcopy(SECTIONS)
    for section, fields in changes.items():
        sections.setdefault(section, dict(OK)).update(fields)
    node = NodeDocument("gpu1", ("training",), policy or {}, "ok", None, to_fragment(sections))
    promise = Promise(CATALOGUE, TODAY)
    findings = [found(number, rule) for number, rule in enumerate(REMEDIES)]
    rows = [{"rule": one.rule, "severity": one.severity, "scope": one.scope, "where": one.where, "remedy": one.remedy} for one in findings]
    usable = {} if policy_faults(node.policy) else node.policy  # the policy that the judge uses
    return promise.repaired(findings, usable, 0, promise.keep(node)), plan_for_host(node, rows, KNOWLEDGE)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, {}),
        ({"kernel": {"boot": {"can_clear_one_shot": False, "why_not": "no grubenv"}}}, {"kernel": "cannot (no grubenv)"}),
        ({"kernel": {"boot": {}}}, {}),  # not read: the role looks for itself
        ({"kernel": {"out_of_tree": None}}, {"kernel": "list of loaded modules, found that it was not read"}),
        ({"node": {"os": {"family": "redhat"}}}, {"kernel": "found redhat"}),
        ({"node": {"image": {"kind": "stateless", "evidence": "warewulf"}, "os": {"family": "debian"}}}, {"kernel": "warewulf", "gpu_driver": "warewulf"}),
        ({"node": {"virtualization": {"is_container": True, "kind": "docker"}, "os": {"family": "debian"}}}, {"kernel": "a container (docker)"}),
        ({"driver": {"install_method": "runfile"}}, {"gpu_driver": "run nvidia-uninstall"}),
        ({"node": {"kubernetes": {"gpu_operator": True}, "os": {"family": "debian"}}, "driver": {"install_method": None}}, {"gpu_driver": "GPU Operator"}),
    ],
)
def test_the_judge_is_told_what_a_plan_gives_to_roles_and_why_a_role_refuses_the_node(changes, refused):
    told, plan = asked(**changes)
    assert told.roles == {one.role: one.because for one in plan.remedies}
    of_role = {remedy["role"]: rule for rule, remedy in REMEDIES.items()}
    assert {rule for rule, _ in told.turned_down} == {of_role[role] for role in refused}
    for role, reason in refused.items():
        (text,) = [text for rule, text in told.turned_down if rule == of_role[role]]
        assert text.startswith(f"role {role} refuses this node: ") and reason in text
        assert [line.why for line in plan.refused if line.why == f"role {role} (for {of_role[role]}): {text.partition(': ')[2]}"]


WAIVER = {"rule": "driver-545-23-08-p2p-deadlock", "reason": "one GPU per job", "by": "ops", "until": "2027-01-01"}


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"driver": {"version": "545.23.08"}}, "Driver 545.23.08 deadlocks NCCL peer-to-peer between GPUs (driver-545-23-08-p2p-deadlock)"),
        ({"driver": {"version": "545.23.08"}, "kernel": {"min": "5.15.0"}}, "(driver-545-23-08-p2p-deadlock)"),
        ({"driver": {"versoin": "1"}}, "The policy cannot be used (policy-not-usable)"),
        ({"driver": {"flavour": "proprietary"}}, "(policy-flavour-not-for-gpu)"),
        ({"driver": {"version": "545.23.08"}, "waivers": [WAIVER]}, ""),
        ({"driver": {"version": "580.159.04"}}, ""),
        ({"driver": {"flavour": "open"}}, ""),
        ({"kernel": {"version": "5.15.0-100-generic"}}, ""),
    ],
)
def test_a_policy_that_a_plan_refuses_leaves_every_finding_of_the_host_to_a_person(policy, why):
    model, architecture = ("NVIDIA B200", "blackwell") if "flavour-not-for-gpu" in why else ("NVIDIA GeForce RTX 3090", "ampere")
    told, plan = asked(policy, gpus={"count": 2, "model": model, "devices": [{"index": 0, "architecture": architecture}]})
    assert told.roles == {one.role: one.because for one in plan.remedies}
    assert bool(told.roles) != bool(why)
    assert [why in text for _, text in told.turned_down] == ([True] * len(told.turned_down) if why else [])
    assert bool(why) == bool(told.turned_down) == any(line.why.startswith("unhang_policy: ") for line in plan.refused)


def test_the_facts_that_a_policy_is_judged_by_are_the_same_for_nodes_that_are_alike():
    promise = Promise(CATALOGUE, TODAY)
    kept = []
    for number in (1, 2):
        gpus = {**OK, "count": 1, "model": "NVIDIA H200", "devices": [{"index": 0, "uuid": f"GPU-{number}", "architecture": "hopper"}]}
        sections = {**SECTIONS, "gpus": gpus, "node": {**SECTIONS["node"], "uptime_s": 100 * number}}
        kept.append(promise.keep(NodeDocument(f"gpu{number}", (), {}, "ok", None, to_fragment(sections))))
    assert kept[0] == kept[1] and kept[0].judged.facts == kept[1].judged.facts
    assert b"hopper" in kept[0].judged.facts and len(kept[0].judged.facts) < 1000


def test_what_a_refusing_role_would_have_been_told_stays_out_of_the_policy():
    told, plan = asked(driver={"install_method": "runfile"})
    assert told.policy == plan.remedies[0].policy
    assert "min" not in told.policy.get("driver", {})


def test_nodes_that_a_role_refuses_for_unlike_reasons_are_not_taken_for_each_other():
    promise = Promise(CATALOGUE, TODAY)
    for method in ("packages", "runfile", "container"):
        sections = {**SECTIONS, "driver": {**SECTIONS["driver"], "install_method": method}}
        node = NodeDocument("gpu1", (), {}, "ok", None, to_fragment(sections))
        told = promise.repaired([found(0, "driver-545-23-08-p2p-deadlock")], {}, 0, promise.keep(node))
        assert bool(told.turned_down) == (method != "packages")
    assert len(promise.before) == 3


def test_a_node_that_was_not_read_is_refused_by_no_role():
    assert Promise(CATALOGUE, TODAY).keep(NodeDocument("gpu1", (), {}, "unreachable", "No route to host", None)).refusals == ()
