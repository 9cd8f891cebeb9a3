"""Later incidents: each with a rule by now is found on its node, and each without a rule has a
reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_nodes import baseline, catalogue, documents, found_anew, schema_faults, words_of

from unhang.core.strict_yaml import load_yaml

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "incidents"
CASES = {
    case["incident"]: case
    for file in sorted(FIXTURES.glob("batch-*.yml"))
    for case in load_yaml(file)[0]["cases"]
}
ROWS = {
    row["incident"]: row
    for row in load_yaml(FIXTURES / "fresh_incidents.yml")[0]["tables"]["fresh_incidents"]["rows"]
}
RULES = {rule.id for rule in catalogue().rules}
RULES_OF_NODES = sorted(rule.id for rule in catalogue().rules if rule.scope == "node")


def rules_of(name):
    """The beginning of the ids of findings for a name in `became`."""
    return name.partition("/")[0].replace("_issues", "-release-")


def is_told(case, name):
    """Whether a case leads to the finding that `became` names: of the rule itself, or of a rule
    over a table for exactly this row."""
    table, _, key = name.partition("/")
    if not key:
        return any(rule.startswith(rules_of(name)) for rule in found_anew(case))
    row, anew = catalogue().tables[table][key], found_anew(case)
    for rule in (rule for rule in RULES_OF_NODES if rule.startswith(rules_of(name))):
        # The evidence of a rule over a long table is cut, and may be the healthy node's: then what
        # the finding prints is compared.
        before = [] if rule in anew else words_of(baseline(case["node"])[0], rule)
        if any(
            row["says"] in text and text not in before
            for document in documents(case)
            for text in words_of(document, rule)
        ):
            return True
    return False


@pytest.mark.parametrize("incident", CASES)
def test_node_of_an_incident_is_one_that_the_collector_could_answer(incident):
    assert [
        fault for document in documents(CASES[incident]) for fault in schema_faults(document)
    ] == []


@pytest.mark.parametrize("incident", CASES)
def test_incident_is_found_on_the_node_that_it_makes(incident):
    assert any(is_told(CASES[incident], name) for name in ROWS[incident]["became"])


@pytest.mark.parametrize("incident", ROWS)
def test_incident_is_known_by_something_that_is_there_or_the_page_says_why_not(incident):
    row = ROWS[incident]
    assert bool(row["became"]) != bool(row.get("why"))
    for name in row["became"]:
        table, _, key = name.partition("/")
        assert name in RULES if not key else key in catalogue().tables[table]


@pytest.mark.parametrize(
    "incident",
    [key for key, row in ROWS.items() if row["became"] and row["first_sight"] != "hidden"],
)
def test_every_incident_that_a_node_can_show_has_its_node(incident):
    assert incident in CASES
