"""Every known incident has a rule or an entry, and the page of incidents is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.show.reference.incidents import render_incidents

PAGE = Path(__file__).resolve().parents[5] / "docs" / "incidents.md"
KNOWN = Path(__file__).with_name("incident_ids.txt").read_text().split()
CATALOGUE = load_catalogue()


def holders(incident):
    """Ids of the rules and entries that an incident became."""
    rows = [rule.row for rule in CATALOGUE.rules] + list(CATALOGUE.entries)
    return [row["id"] for row in rows if incident in row.get("incidents", ())]


def test_a_hundred_incidents_are_known():
    assert len(set(KNOWN)) == len(KNOWN) == 100


@pytest.mark.parametrize("incident", KNOWN)
def test_incident_became_a_rule_or_an_entry(incident):
    assert holders(incident)


def test_no_row_names_an_incident_that_nobody_knows():
    named = {one for rule in CATALOGUE.rules for one in rule.row.get("incidents", ())} | {one for row in CATALOGUE.entries for one in row.get("incidents", ())}
    assert named - set(KNOWN) == set()


def test_page_of_incidents_is_what_the_catalogue_says():
    assert PAGE.read_text() == render_incidents(CATALOGUE), "write it anew: make generated"


@pytest.mark.parametrize(("batch", "counted"), [(10, "| 10 | 9e491450 | 23 of 26 | 9 | 6 | 8 |"), (11, "| 11 | 1bfa0e27 | 22 of 25 | 15 | 3 | 4 |")])
def test_a_batch_that_was_learnt_from_has_both_numbers(batch, counted):
    rows = [row for row in load_catalogue().tables["fresh_incidents"].values() if row["batch"] == batch]
    first, later = ([row[key] for row in rows].count("found") for key in ("first_sight", "after_learning"))
    page = render_incidents(load_catalogue())
    assert f"| {first} |" in counted
    assert counted in page
    assert f"Batch {batch} after learning, which does not measure the result on new incidents: {later} found" in page
    assert "| not; found after learning |" in page


@pytest.mark.parametrize("row", CATALOGUE.entries, ids=lambda row: row["id"])
def test_entry_says_why_no_rule_can_decide_it_and_where_it_is_reported(row):
    assert len(row["why"]) > 30
    assert all(source["url"].startswith("https://") and len(source["says"]) > 15 for source in row["sources"])


@pytest.mark.parametrize("row", CATALOGUE.entries, ids=lambda row: row["id"])
def test_versions_of_an_entry_are_versions_in_order(row):
    from unhang_node.versions.compare import check_version, compare_versions, holds

    for part in row.get("versions", ()):
        order = "generic" if part["of"] == "torch" else part["of"]
        ends = [part[key] for key in ("from", "below") if key in part]
        assert ends
        assert [check_version(end, order) for end in ends] == [None] * len(ends)
        assert len(ends) < 2 or holds(compare_versions(ends[0], ends[1], order), "<")
