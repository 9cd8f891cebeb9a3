"""Every row of the catalogue runs on its own examples, also with its facts taken away, and keeps
the house's form."""

from __future__ import annotations

import pytest
from house_faults import house_faults, place_faults

from unhang.core.catalogue.own_files import folders_of
from unhang.core.catalogue.rule_files import read_folders
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import check_examples
from unhang.judge.rules.faults_among_rules import faults_among_rules
from unhang.judge.rules.role_faults import role_faults
from unhang.judge.rules.row_faults import row_faults

CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules}
FOLDER = folders_of("rules")[0]
FILES = {
    file.path: [RULES[row["id"]] for _, row in file.rows if row["id"] in RULES]
    for file in read_folders([FOLDER], [])
}
SITUATIONS = {1, 2, 3, 4, 5}


def test_built_in_catalogue_has_no_fault():
    assert [str(fault) for fault in CATALOGUE.faults] == []


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_row_fails_on_its_matches_passes_its_near_misses_and_never_passes_without_its_facts(
    rule_id,
):
    assert [
        str(one) for one in check_examples(RULES[rule_id], CATALOGUE.tables, tuple(RULES))
    ] == []


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_row_has_its_costs_its_proof_public_sources_and_a_role_that_can_repair_it(rule_id):
    rule = RULES[rule_id]
    assert [*row_faults(rule), *house_faults(rule), *role_faults(rule.row["remedy"])] == []


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_rule_agrees_with_the_others_and_its_texts_quote_what_is_there(rule_id):
    assert list(faults_among_rules(RULES[rule_id], CATALOGUE)) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_rules_lie_in_the_folder_of_the_section_that_decides_them(path):
    assert list(place_faults(path, FOLDER, FILES[path])) == []


def test_each_situation_has_rules_that_can_be_found_on_a_node():
    named = {number for rule in RULES.values() for number in rule.row.get("situations", [])}
    assert named == SITUATIONS


def test_kernel_age_alone_is_called_weak_evidence():
    row = RULES["kernel-below-5-5"].row
    assert row["severity"] in ("warning", "info") and row["confidence"] == "reported"
    assert (
        "weak evidence" in row["expected"].lower()
        and "P2P" in row["expected"]
        and "ACS" in row["expected"]
    )
