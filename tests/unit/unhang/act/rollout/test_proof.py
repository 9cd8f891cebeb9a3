"""When a node is proved healthy after a change."""

from __future__ import annotations

import msgspec
import pytest

from unhang.act.rollout.baseline import baseline_of
from unhang.act.rollout.proof import Asked, prove
from unhang.core.run.record import Finding

BY_ROLE = {"role": "gpu_driver", "policy": {"driver": {"version": "535.154.05", "held": True}}}
BY_PERSON = {"person": "reseat the card"}


def finding(
    rule, verdict="fail", severity="error", remedy=None, host="gpu001", scope="node", where=None
):
    missing = (
        [{"path": "gpus.count", "status": "timeout", "reason": "no answer"}]
        if verdict == "unknown"
        else []
    )
    host = host if scope == "node" else None
    return msgspec.convert(
        {
            "rule": rule, "verdict": verdict, "severity": severity, "host": host, "scope": scope,
            "where": where or {},
            "remedy": remedy or BY_PERSON, "expected": "this", "found": "that", "missing": missing,
        },
        Finding,
    )  # fmt: skip


def proof_of(before, after, lost=(), **asked):
    return prove(baseline_of("r", before, "gpu001", {}), after, "gpu001", Asked(**asked), lost)


def healthy(before, after, **asked):
    return proof_of(before, after, **asked)["healthy"]


@pytest.mark.parametrize("severity", ["critical", "error"])
def test_a_serious_finding_that_a_role_brings_about_has_to_be_gone(severity):
    bad = finding("driver-bad", severity=severity, remedy=BY_ROLE)
    assert not healthy([bad], [bad])
    assert healthy([bad], [])


def test_what_is_gone_and_what_is_left_is_reported():
    driver, hold = (
        finding("driver-bad", remedy=BY_ROLE),
        finding("not-held", severity="warning", remedy={"role": "package_hold"}),
    )
    proof = proof_of([driver, hold], [hold])
    assert proof["healthy"]
    assert (proof["gone"], proof["left"]) == (["driver-bad"], ["not-held"])


def test_the_reason_names_rule_role_and_what_the_policy_lacks():
    bad = finding("driver-bad", remedy=BY_ROLE)
    (reason,) = proof_of([bad], [bad])["reasons"]
    assert (
        reason
        == "left: driver-bad (error): the check found that, and needs this; role gpu_driver with driver.version: 535.154.05, driver.held: true in the policy"
    )


def test_a_broken_part_that_was_broken_before_is_reported_and_stops_nothing():
    link = finding("nvlink-down", severity="critical")
    proof = proof_of([link], [link])
    assert proof["healthy"]
    assert "reseat the card" in proof["person"][0]


def test_a_broken_part_that_was_whole_before_is_no_health():
    proof = proof_of([], [finding("nvlink-down", severity="critical")])
    assert not proof["healthy"]
    assert proof["reasons"][0].startswith("new: nvlink-down")


def test_what_was_known_before_has_to_be_known_after():
    unknown = finding("nvlink-down", "unknown")
    proof = proof_of([], [unknown])
    assert not proof["healthy"]
    assert proof["reasons"] == ["no longer known: nvlink-down, for want of gpus.count (no answer)"]
    assert healthy([unknown], [unknown])


def test_a_finding_that_became_unknown_is_not_gone():
    assert (
        proof_of(
            [finding("driver-bad", remedy=BY_ROLE)],
            [finding("driver-bad", "unknown", remedy=BY_ROLE)],
        )["gone"]
        == []
    )


@pytest.mark.parametrize(
    "other",
    [
        finding("driver-bad", severity="warning", remedy=BY_ROLE),
        finding("driver-bad", "waived", remedy=BY_ROLE),
        finding("driver-bad", host="gpu002", remedy=BY_ROLE),
        finding("driver-differs", scope="group", remedy=BY_ROLE),
    ],
    ids=["lesser", "waived", "another host", "peers"],
)
def test_what_does_not_count(other):
    assert healthy([], [other])


def test_lesser_findings_count_when_they_are_asked_for():
    assert not healthy(
        [],
        [finding("not-held", severity="warning", remedy=BY_ROLE)],
        severities=["critical", "error", "warning"],
    )


def test_a_policy_rule_of_a_role_that_was_played_never_passes_as_unknown():
    unknown = finding("policy-driver-version", "unknown", remedy=BY_ROLE)
    asked = {"policy_rules": ["policy-driver-version"]}
    assert healthy([unknown], [unknown], roles=["host_tuning"], **asked)
    proof = proof_of([unknown], [unknown], roles=["gpu_driver"], **asked)
    assert proof["reasons"] == [
        "not known: policy-driver-version, for want of gpus.count (no answer)"
    ]


def test_the_same_fault_on_another_gpu_is_a_new_one():
    first, second = ({"index": 0, "uuid": "GPU-1"}, {"index": 0, "uuid": "GPU-2"})
    assert healthy([finding("gpu-row-remap", where=first)], [finding("gpu-row-remap", where=first)])
    proof = proof_of(
        [finding("gpu-row-remap", where=first)], [finding("gpu-row-remap", where=second)]
    )
    assert proof["reasons"][0].startswith("new: gpu-row-remap")


def test_what_the_node_has_not_any_more_is_no_health():
    proof = proof_of([], [], lost=["of the 8 GPUs of before, 7 are there; gone are GPU-3"])
    assert (proof["healthy"], proof["reasons"]) == (
        False,
        ["lost: of the 8 GPUs of before, 7 are there; gone are GPU-3"],
    )


def test_a_rollback_brings_back_what_a_role_had_repaired():
    bad, link = finding("driver-bad", remedy=BY_ROLE), finding("nvlink-down")
    assert not healthy([bad], [bad])
    assert healthy([bad], [bad], rolled_back=True)
    assert not healthy([], [bad], rolled_back=True)
    assert healthy([], [bad], rolled_back=True, found_by_this_run=True)
    assert not healthy([], [link], rolled_back=True, found_by_this_run=True)


def test_what_the_plan_left_to_a_person_and_was_there_before_stops_nothing():
    library = finding(
        "nccl-stops-jobs",
        remedy={"role": "nccl_profile", "person": "bring its environment to a newer NCCL"},
    )
    assert not healthy([library], [library])
    proof = proof_of([library], [library], for_a_person=["nccl-stops-jobs"])
    assert (proof["healthy"], proof["left"]) == (True, ["nccl-stops-jobs"])
    assert proof["person"][0].startswith("for a person: nccl-stops-jobs (error)")
    assert not healthy([], [library], for_a_person=["nccl-stops-jobs"])
