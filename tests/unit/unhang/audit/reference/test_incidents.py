"""Every known incident has a rule or an entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.audit.reference.incidents import render_incidents
from unhang.audit.rules.compiled_catalogue import load_catalogue

KNOWN = Path(__file__).with_name("incident_ids.txt").read_text().split()
CATALOGUE = load_catalogue()


def holders(incident):
    """Ids of the rules and entries that an incident became."""
    rows = [rule.row for rule in CATALOGUE.rules] + list(CATALOGUE.entries)
    return [row["id"] for row in rows if incident in row.get("incidents", ())]


def test_no_incident_is_listed_twice():
    assert len(set(KNOWN)) == len(KNOWN)


@pytest.mark.parametrize("incident", KNOWN)
def test_incident_became_a_rule_or_an_entry(incident):
    assert holders(incident)


def test_no_row_names_an_incident_that_nobody_knows():
    named = {one for rule in CATALOGUE.rules for one in rule.row.get("incidents", ())} | {one for row in CATALOGUE.entries for one in row.get("incidents", ())}
    assert named - set(KNOWN) == set()


def test_the_page_names_each_incident():
    page = render_incidents(CATALOGUE)
    assert [incident for incident in KNOWN if f"\n| {incident} | " not in page] == []


@pytest.mark.parametrize("row", CATALOGUE.entries, ids=lambda row: row["id"])
def test_entry_says_why_no_rule_can_decide_it_and_where_it_is_reported(row):
    assert len(row["why"]) > 30
    assert all(source["url"].startswith("https://") and len(source["says"]) > 15 for source in row["sources"])


@pytest.mark.parametrize("row", CATALOGUE.entries, ids=lambda row: row["id"])
def test_versions_of_an_entry_are_versions_in_order(row):
    from unhang_node.base.versions.compare import check_version, compare_versions, holds

    for part in row.get("versions", ()):
        order = "generic" if part["of"] == "torch" else part["of"]
        ends = [part[key] for key in ("from", "below") if key in part]
        assert ends
        assert [check_version(end, order) for end in ends] == [None] * len(ends)
        assert len(ends) < 2 or holds(compare_versions(ends[0], ends[1], order), "<")
