"""Sentences about a part of a run, and about evidence that was cut."""

from __future__ import annotations

import fleets

from unhang.audit.report.filtering import Filter, narrowed
from unhang.audit.report.phrases import headline, tally
from unhang.audit.report.table import render_table


def document_of(findings):
    return fleets.document(findings, {"ok": 3})


def test_a_finding_of_a_group_counts_the_asked_node_alone():
    group = fleets.finding(
        "group-x-differs",
        None,
        "error",
        "x differs",
        "the same",
        "1 / 2",
        scope="group",
        hosts=["gpu1", "gpu2", "gpu3"],
    )
    shown = narrowed(document_of([group]), Filter(frozenset(["gpu2"]), typed="--host gpu2"))
    assert headline(tally(shown)) == "1 error cause on 1 of 1 node"


def test_remarks_are_counted_apart_and_make_no_node_less_healthy():
    remark, fault = (
        fleets.finding("r", "gpu1", "info", "t", "e", "f"),
        fleets.finding("s", "gpu2", "error", "t", "e", "f"),
    )
    assert headline(tally(document_of([remark]))) == "3 nodes healthy, 1 remark"
    both = document_of([remark, fault])
    assert headline(tally(both)) == "1 error cause on 1 of 3 nodes"
    assert headline(tally(narrowed(both, Filter(severities=("info",))))) == "1 remark on 3 nodes"
    assert headline(tally(narrowed(both, Filter(rules=("s",))))) == "1 error cause on 1 of 3 nodes"
    assert headline(tally(narrowed(both, Filter(rules=("nothing",))))) == "Nothing found on 3 nodes"


def test_remarks_that_are_usual_are_named_as_such_where_nothing_else_was_asked_for():
    hosts = ("gpu1", "gpu2", "gpu3")
    usual, fault = (
        [fleets.finding("r", host, "info", "t", "e", "f") for host in hosts],
        fleets.finding("s", "gpu4", "error", "t", "e", "f"),
    )
    shown = narrowed(fleets.document([*usual, fault], {"ok": 4}), Filter(rules=("r",)))
    assert headline(tally(shown)) == "Only remarks that hold for most healthy nodes on 4 nodes"


def test_evidence_that_was_cut_is_no_fact():
    rows = [{"path": "gpus.count", "value": 8}, {"path": "…", "value": "and 243 more"}]
    text = render_table(
        document_of([fleets.finding("a", "gpu1", "error", "t", "e", "f", evidence=rows)])
    )
    assert "why       gpus.count = 8\n" in text
    assert "and 243 more" not in text
