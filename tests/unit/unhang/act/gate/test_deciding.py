"""Who may join: nothing but `fail` means fail, and what could not be looked at does not pass
either."""

from __future__ import annotations

import pytest

from unhang.act.gate.deciding import Observation, decide, fit_for_the_group

HOSTS = ("gpu001", "gpu002", "gpu003")
GOOD = {"verdict": "pass", "suspects": [], "hosts": []}


def suspect(host, why="exit code 7", blind=False):
    """A suspect of a smoke test."""
    return {
        "host": host,
        "rank": 0,
        "gpu": None,
        "phase": "all_reduce",
        "why": why,
        "next": "look",
        "blind": blind,
    }


def result(verdict, *suspects, **more):
    """A smoke test of all three."""
    return {
        "verdict": verdict,
        "suspects": list(suspects),
        "hosts": [{"host": host} for host in HOSTS],
        **more,
    }


def finding(rule="driver-bad", host="gpu002", verdict="fail", severity="critical", **more):
    """A finding of the audit."""
    return {
        "rule": rule,
        "host": host,
        "verdict": verdict,
        "severity": severity,
        "title": "a title",
        "found": "what was found",
        **more,
    }


def outcomes(findings=(), alone=None, together=GOOD, reference="gpu001", audit=True):
    """Outcome and reasons by host."""
    each = dict.fromkeys(HOSTS, GOOD) | (alone or {})
    observed = Observation(
        {"findings": list(findings)} if audit else None,
        each,
        together,
        reference,
        ("critical", "error"),
    )
    return {host: (row["outcome"], row["reasons"]) for host, row in decide(HOSTS, observed).items()}


def test_all_pass():
    assert {outcome for outcome, _ in outcomes().values()} == {"pass"}


@pytest.mark.parametrize("verdict", ["unknown", "skip", "waived"])
def test_a_rule_that_says_anything_but_fail_keeps_nobody_out(verdict):
    assert outcomes([finding(verdict=verdict)])["gpu002"][0] == "pass"


def test_a_finding_below_the_severities_keeps_nobody_out():
    assert outcomes([finding(severity="warning")])["gpu002"][0] == "pass"


def test_what_the_audit_refuses_fails_its_node_alone():
    found = outcomes([finding()])
    assert found["gpu002"] == ("fail", ["audit: driver-bad: a title"])
    assert found["gpu001"][0] == found["gpu003"][0] == "pass"


def test_a_finding_of_several_hosts_fails_each_of_them():
    found = outcomes([finding(host=None, hosts=["gpu002", "gpu003"])])
    assert [found[host][0] for host in HOSTS] == ["pass", "fail", "fail"]


@pytest.mark.parametrize(
    "rule",
    ["node-unreachable", "node-timeout", "node-failed", "node-answer-invalid", "node-missing"],
)
def test_a_node_that_the_audit_could_not_look_at_is_neither_failed_nor_passed(rule):
    outcome, reasons = outcomes([finding(rule)])["gpu002"]
    assert outcome == "not proved"
    assert reasons == [f"audit: {rule}: what was found"]


def test_an_audit_without_an_answer_proves_nobody():
    assert {outcome for outcome, _ in outcomes(audit=False).values()} == {"not proved"}


def test_a_smoke_test_that_fails_alone_fails_the_node():
    assert outcomes(alone={"gpu003": result("fail", suspect("gpu003"))})["gpu003"] == (
        "fail",
        ["alone: exit code 7"],
    )


LOST = result("fail", suspect("gpu003", "lost", blind=True))


@pytest.mark.parametrize(
    "alone", [result("error"), result("error", suspect("gpu003", "no torch", blind=True)), LOST]
)
def test_a_smoke_test_that_proved_nothing_alone_is_not_a_failure(alone):
    assert outcomes(alone={"gpu003": alone})["gpu003"][0] == "not proved"


def test_a_failure_that_was_seen_outranks_what_was_not():
    assert outcomes([finding(), finding("node-timeout")])["gpu002"][0] == "fail"


def test_who_is_blamed_together_fails_and_the_others_pass():
    found = outcomes(together=result("fail", suspect("gpu002")))
    assert [found[host][0] for host in HOSTS] == ["pass", "fail", "pass"]


def test_who_was_lost_in_the_group_is_not_proved():
    found = outcomes(
        together=result("fail", suspect("gpu002", "the connection was lost", blind=True))
    )
    assert found["gpu002"] == ("not proved", ["together: the connection was lost"])


def test_a_fault_between_nodes_is_that_of_all_but_the_reference():
    found = outcomes(together=result("fail", suspect(None, "the way between")))
    assert [found[host][0] for host in HOSTS] == ["pass", "fail", "fail"]


def test_a_bad_link_is_that_of_its_two_ends():
    found = outcomes(
        together=result(
            "fail", suspect(None, "a bad link"), isolation={"bad_links": [["gpu001", "gpu003"]]}
        )
    )
    assert [found[host][0] for host in HOSTS] == ["pass", "pass", "fail"]


@pytest.mark.parametrize(
    "alone, findings, reference_outcome",
    [
        ({"gpu001": result("fail", suspect("gpu001"))}, [], "fail"),
        ({"gpu001": result("error")}, [], "not proved"),
        ({}, [finding(host="gpu001")], "fail"),
    ],
)
def test_a_reference_that_is_not_good_itself_proves_nobody(alone, findings, reference_outcome):
    found = outcomes(findings, alone=alone, together=None)
    assert found["gpu001"][0] == reference_outcome
    for host in ("gpu002", "gpu003"):
        assert found[host][0] == "not proved"
        assert "the reference gpu001 is not good itself" in found[host][1][0]


def test_the_group_is_the_reference_and_who_passed_alone():
    alone = {"gpu001": GOOD, "gpu002": result("fail", suspect("gpu002")), "gpu003": GOOD}
    assert fit_for_the_group(("gpu003", "gpu002", "gpu001"), alone, "gpu001") == [
        "gpu001",
        "gpu003",
    ]
    assert fit_for_the_group(HOSTS, alone, None) == ["gpu001", "gpu003"]
    assert fit_for_the_group(HOSTS, alone, "gpu002") == []
    assert fit_for_the_group(("gpu001",), alone, "gpu001") == []


def test_one_node_without_others_passes_alone_and_is_told_so():
    observed = Observation({"findings": []}, {"gpu001": GOOD}, None, None, ("critical",))
    assert decide(["gpu001"], observed) == {
        "gpu001": {
            "outcome": "pass",
            "reasons": ["alone: no other node was within the limit"],
            "differences": [],
        }
    }


def test_a_quick_gate_rests_on_the_audit_alone_and_what_was_not_judged_is_not_proved():
    findings = [
        finding(),
        finding("gpu-nvml", "gpu003", "unknown", found="denied"),
        finding("gpu-clock", "gpu001", "unknown", "warning"),
    ]
    quick = Observation({"findings": findings}, {}, None, None, ("critical", "error"), quick=True)
    found = {host: (row["outcome"], row["reasons"]) for host, row in decide(HOSTS, quick).items()}
    assert found == {
        "gpu001": ("pass", []),
        "gpu002": ("fail", ["audit: driver-bad: a title"]),
        "gpu003": ("not proved", ["audit: gpu-nvml: not judged: denied"]),
    }
    lost = Observation(
        {"findings": [finding("node-unreachable", "gpu003")]},
        {},
        None,
        None,
        ("critical", "error"),
        quick=True,
    )
    assert decide(HOSTS, lost)["gpu003"]["outcome"] == "not proved"
