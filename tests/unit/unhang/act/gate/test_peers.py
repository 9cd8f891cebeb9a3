"""Differences from peers: healthy peers decide, and only if they are enough."""

from __future__ import annotations

import pytest

from unhang.act.gate.deciding import Observation, decide

SEVERITIES = ("critical", "error")


def drift(**values):
    """A finding of a drift rule over these hosts."""
    rows = {}
    for host, value in values.items():
        rows.setdefault(value, []).append(host)
    counts = [
        {"value": value, "count": len(hosts), "hosts": hosts} for value, hosts in rows.items()
    ]
    head = {
        "rule": "group-nvlinks-differ",
        "scope": "group",
        "verdict": "fail",
        "severity": "error",
        "title": "NVLinks differ",
        "hosts": list(values),
    }
    return {**head, "comparison": {"majority": None, "counts": counts}}


def own_fault(host):
    """A critical finding of one node."""
    return {
        "rule": "xid-fatal",
        "scope": "node",
        "host": host,
        "verdict": "fail",
        "severity": "critical",
        "title": "a fatal Xid",
        "found": "Xid 79",
    }


def decided(findings, hosts, reference=None):
    """The decisions of a quick gate."""
    return decide(
        hosts, Observation({"findings": findings}, {}, None, reference, SEVERITIES, quick=True)
    )


def test_a_healthy_node_between_two_faulty_ones_passes():
    values = {"gpu006": "18, 17", "gpu007": "18", "gpu008": "18, 18"}
    found = decided([drift(**values), own_fault("gpu006"), own_fault("gpu007")], list(values))
    assert [found[host]["outcome"] for host in values] == ["fail", "fail", "pass"]
    assert found["gpu008"]["reasons"] == found["gpu008"]["differences"] == []


def test_three_healthy_peers_that_agree_fail_the_node_that_differs():
    found = decided([drift(a="1", b="1", c="1", d="2")], list("abcd"))
    assert [found[host]["outcome"] for host in "abcd"] == ["pass", "pass", "pass", "fail"]
    assert found["d"]["reasons"] == [
        "audit: group-nvlinks-differ: NVLinks differ: found 2, 3 of 4 healthy nodes have 1"
    ]


@pytest.mark.parametrize(
    "values, unproved",
    [
        ({"a": "1", "b": "1", "c": "2"}, "c"),
        ({"a": "1", "b": "1", "c": "2", "d": "2"}, "abcd"),
        ({"a": "1", "b": "2"}, "ab"),
    ],
    ids=["two healthy peers", "a tie", "one peer"],
)
def test_too_few_healthy_peers_leave_a_node_not_proved_and_ask_for_a_reference(values, unproved):
    found = decided([drift(**values)], list(values))
    assert {host for host, row in found.items() if row["outcome"] == "not proved"} == set(unproved)
    assert all(
        "--reference" in found[host]["reasons"][0] and found[host]["differences"]
        for host in unproved
    )
    assert {row["outcome"] for host, row in found.items() if host not in unproved} <= {"pass"}


def test_faulty_nodes_have_no_vote_even_when_they_are_the_most():
    values = {"a": "1", "b": "1", "c": "1", "d": "2", "e": "2"}
    found = decided([drift(**values), *(own_fault(host) for host in "abc")], list(values))
    assert [found[host]["outcome"] for host in "de"] == ["pass", "pass"]


def test_a_good_reference_decides_alone_and_a_faulty_one_decides_nothing():
    values = {"gpu001": "1", "gpu002": "2"}
    good = decided([drift(**values)], list(values), "gpu001")
    assert good["gpu002"]["reasons"] == [
        "audit: group-nvlinks-differ: NVLinks differ: found 2, the reference gpu001 has 1"
    ]
    faulty = decided([drift(**values), own_fault("gpu001")], list(values), "gpu001")
    assert faulty["gpu002"]["outcome"] == "not proved"
    assert (
        len(faulty["gpu002"]["reasons"]) == 1
        and "the reference gpu001 is not good itself" in faulty["gpu002"]["reasons"][0]
    )
