"""A run narrowed to hosts, rules and severities: the remaining parts are consistent."""

from __future__ import annotations

import fleets
import jsonschema_rs
import pytest

from unhang.audit.commands.fail_on import exit_code
from unhang.audit.report.filtering import Filter, narrowed
from unhang.audit.report.screen import render_screen
from unhang.audit.report.table import render_table
from unhang.core.schemas.reading import read_schema


@pytest.fixture
def found():
    """Three nodes: one with a critical and a warning under it, one with the warning alone, one
    healthy; and one that was not read."""
    findings = [
        fleets.finding("lost", "gpu1", "critical", "A GPU is gone", "e", "f"),
        fleets.finding("node-unreachable", "gone", "error", "Not reached", "e", "f"),
        fleets.finding("few", "gpu1", "warning", "Fewer GPUs", "e", "f"),
        fleets.finding("few", "gpu2", "warning", "Fewer GPUs", "e", "f"),
        fleets.finding("slow", "gpu2", "warning", "Slow", "e", "f", verdict="unknown"),
    ]
    return fleets.document(
        findings, {"ok": 3, "unreachable": 1}, passed=9, explains={"lost": frozenset({"few"})}
    )


def rules(document):
    """(rule, nodes) of each cause."""
    return [(cause["rule"], cause["nodes"]) for cause in document["causes"]]


def test_hosts_narrow_findings_causes_verdicts_and_counts_alike(found):
    left = narrowed(found, Filter(frozenset({"gpu2"})))
    assert [(one["rule"], one["host"]) for one in left["findings"]] == [
        ("few", "gpu2"),
        ("slow", "gpu2"),
    ]
    assert rules(left) == [("few", ["gpu2"])]
    assert {verdict: hosts for verdict, hosts in left["node_verdicts"].items() if hosts} == {
        "warning": ["gpu2"]
    }
    assert left["totals_by_severity"] == {"warning": 1}
    assert left["totals"] == {"fail": 1, "unknown": 1, "waived": 0}


def test_places_of_findings_are_those_of_the_narrowed_list(found):
    left = narrowed(found, Filter(rules=("few",)))
    assert [
        [left["findings"][place]["rule"] for place in cause["findings"]] for cause in left["causes"]
    ] == [["few"], ["few"]]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (Filter(severities=("critical",)), [("lost", ["gpu1"])]),
        (Filter(rules=("node-*",)), [("node-unreachable", ["gone"])]),
        (
            Filter(frozenset({"gpu1", "gone"}), severities=("error",)),
            [("node-unreachable", ["gone"])],
        ),
        (Filter(frozenset({"healthy00000"})), []),
    ],
)
def test_what_is_not_asked_for_is_not_shown(found, by, expected):
    assert rules(narrowed(found, by)) == expected


@pytest.mark.parametrize(
    "by",
    [
        Filter(severities=("warning",)),
        Filter(severities=("critical",)),
        Filter(rules=("few",)),
        Filter(frozenset({"gpu1"})),
    ],
)
def test_a_cause_keeps_the_severity_that_it_was_judged_with(found, by):
    whole = {(cause["rule"], cause["severity"]) for cause in found["causes"]}
    left = narrowed(found, by)
    assert (
        left["causes"] and {(cause["rule"], cause["severity"]) for cause in left["causes"]} <= whole
    )
    assert not by.severities or {cause["severity"] for cause in left["causes"]} == set(
        by.severities
    )


def test_what_a_cause_of_another_severity_explains_is_a_finding_without_a_cause(found):
    left = narrowed(found, Filter(frozenset({"gpu1"}), severities=("warning",)))
    assert (left["causes"], left["totals_by_severity"]) == ([], {"warning": 1})
    assert "no cause of its own; -v shows 1 finding" in render_screen(left)


def test_nodes_are_counted_on_which_something_is_shown_or_that_were_not_read(found):
    left = narrowed(found, Filter(severities=("critical",), typed="--severity critical"))
    assert {verdict: hosts for verdict, hosts in left["node_verdicts"].items() if hosts} == {
        "critical": ["gpu1"],
        "unread": ["gone"],
    }
    assert f"2 of {found['host_count']} nodes: 1 critical, 1 unread" in render_screen(left)
    assert exit_code(left, "warning") == 1
    # of a node that was not read nothing is known
    assert exit_code(narrowed(found, Filter(rules=("none",))), "warning") == 1


def test_a_comparison_is_counted_for_the_requested_hosts_alone():
    unlike = {
        **fleets.finding("unlike", None, "error", "Unlike", "e", "f"),
        "hosts": ["gpu1", "gpu2"],
    }
    document = fleets.document(
        [unlike, fleets.finding("few", "gpu2", "warning", "Few", "e", "f")], {"ok": 2}
    )
    left = narrowed(document, Filter(frozenset({"gpu1"})))
    assert [one["hosts"] for one in left["findings"]] == [["gpu1"]]
    assert left["totals_by_rule"] == {"unlike": {"fail": 1, "unknown": 0, "waived": 0}}


def test_a_narrowed_document_is_what_the_schema_allows_and_every_table_shows_it(found):
    left = narrowed(found, Filter(frozenset({"gpu1"}), typed="--host gpu1"))
    jsonschema_rs.validator_for(read_schema("findings-1")).validate(left)
    assert "only --host gpu1" in render_screen(left)
    assert "0 passed" not in render_table(left)


def test_commands_below_a_narrowed_screen_keep_its_filter(found):
    shown = render_screen(
        narrowed(found, Filter(frozenset({"gpu1"}), typed="--host 'gpu[1-1]' --rule few")),
        width=200,
        run="RUN",
    )
    assert "every finding: unhang report RUN -v --host 'gpu[1-1]' --rule few" in shown


def test_a_healthy_node_is_told_to_be_one(found):
    assert "nothing found on healthy00000" in render_screen(
        narrowed(found, Filter(frozenset({"healthy00000"})))
    )


def test_nothing_found_is_never_said_above_a_finding(found):
    for by in (
        Filter(),
        Filter(frozenset({"gone"})),
        Filter(severities=("warning",)),
        Filter(severities=("info",)),
    ):
        shown = render_screen(narrowed(found, by))
        assert "nothing found" not in shown


def test_a_fault_of_the_policy_is_shown_for_each_node():
    expired = fleets.finding("waiver-expired", None, "warning", "A waiver has expired", "e", "f")
    document = fleets.document(
        [expired, fleets.finding("of-the-fleet", None, "warning", "Unlike", "e", "f")], {"ok": 2}
    )
    assert [one["rule"] for one in narrowed(document, Filter(frozenset({"gpu2"})))["findings"]] == [
        "waiver-expired"
    ]


@pytest.mark.parametrize(
    ("owner", "shown"), [("vendor", ["silent"]), ("operator", ["gone", "silent"])]
)
def test_a_node_that_was_not_read_is_shown_to_those_who_act_on_it(owner, shown):
    """gone has a finding for the operator; of silent nothing is known."""
    rows = [
        {
            **fleets.finding("lost", "gpu1", "critical", "A GPU is gone", "e", "f"),
            "owner": "vendor",
        },
        {
            **fleets.finding("node-unreachable", "gone", "error", "Not reached", "e", "f"),
            "owner": "operator",
        },
    ]
    document = fleets.document(rows, {"ok": 1, "unreachable": 1}, passed=9)
    verdicts = document["node_verdicts"]
    document = {**document, "node_verdicts": {**verdicts, "unread": ["gone", "silent"]}}
    assert narrowed(document, Filter(owners=(owner,)))["node_verdicts"]["unread"] == shown
    assert narrowed(document, Filter(rules=("lost",)))["node_verdicts"]["unread"] == [
        "gone",
        "silent",
    ]
