"""When a node is proved healthy after a change."""

from __future__ import annotations

import pytest

from unhang.rollout.proof import prove

BY_ROLE = {"role": "gpu_driver", "policy": {"driver": {"version": "535.154.05", "held": True}}}
BY_PERSON = {"person": "reseat the card"}


def finding(rule, verdict="fail", severity="error", remedy=None, host="gpu001", scope="node"):
    missing = [{"path": "gpus.count", "status": "timeout", "reason": "no answer"}] if verdict == "unknown" else []
    return {
        "rule": rule, "verdict": verdict, "severity": severity, "host": host if scope == "node" else None, "scope": scope,
        "remedy": remedy or BY_PERSON, "expected": "this", "found": "that", "missing": missing,
    }  # fmt: skip


def healthy(before, after, **more):
    return prove(before, after, "gpu001", **more)["healthy"]


@pytest.mark.parametrize("severity", ["critical", "error"])
def test_a_serious_finding_that_a_role_brings_about_has_to_be_gone(severity):
    bad = finding("driver-bad", severity=severity, remedy=BY_ROLE)
    assert not healthy([bad], [bad])
    assert healthy([bad], [])


def test_what_is_gone_and_what_is_left_is_told():
    driver, hold = finding("driver-bad", remedy=BY_ROLE), finding("not-held", severity="warning", remedy={"role": "package_hold"})
    proof = prove([driver, hold], [hold], "gpu001")
    assert proof["healthy"]
    assert (proof["gone"], proof["left"]) == (["driver-bad"], ["not-held"])


def test_the_reason_names_rule_role_and_what_the_policy_lacks():
    bad = finding("driver-bad", remedy=BY_ROLE)
    (reason,) = prove([bad], [bad], "gpu001")["reasons"]
    assert reason == (
        "left: driver-bad (error), expected this, found that; role gpu_driver with driver.version: 535.154.05, driver.held: True in the policy"
    )


def test_a_broken_part_that_was_broken_before_is_told_and_stops_nothing():
    link = finding("nvlink-down", severity="critical")
    proof = prove([link], [link], "gpu001")
    assert proof["healthy"]
    assert "reseat the card" in proof["person"][0]


def test_a_broken_part_that_was_whole_before_is_no_health():
    proof = prove([], [finding("nvlink-down", severity="critical")], "gpu001")
    assert not proof["healthy"]
    assert proof["reasons"][0].startswith("new: nvlink-down")


def test_what_was_known_before_has_to_be_known_after():
    unknown = finding("nvlink-down", "unknown")
    proof = prove([], [unknown], "gpu001")
    assert not proof["healthy"]
    assert proof["reasons"] == ["no longer known: nvlink-down, for want of gpus.count (no answer)"]
    assert healthy([unknown], [unknown])


def test_a_finding_that_became_unknown_is_not_gone():
    assert prove([finding("driver-bad", remedy=BY_ROLE)], [finding("driver-bad", "unknown", remedy=BY_ROLE)], "gpu001")["gone"] == []


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
    assert not healthy([], [finding("not-held", severity="warning", remedy=BY_ROLE)], serious=["critical", "error", "warning"])
