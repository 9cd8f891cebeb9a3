"""A comparison of nodes has the texts of its scope; a rule about one node needs its own."""

from __future__ import annotations

import pytest

from unhang.core.catalogue.scope_texts import TEXTS, with_texts
from unhang.core.schemas.check import check_schema
from unhang.judge.rules.compiled_catalogue import load_catalogue


@pytest.mark.parametrize("scope", TEXTS)
def test_a_comparison_has_the_texts_of_its_scope_unless_the_row_has_its_own(scope):
    row = {"scope": scope, "found": "{{ distinct }} values"}
    assert with_texts(row) == {**TEXTS[scope], **row}
    assert with_texts(row)["found"] == row["found"]


@pytest.mark.parametrize(("scope", "missing"), [("node", True), ("group", False)])
def test_only_a_rule_about_one_node_is_refused_without_texts(scope, missing):
    rule = next(rule for rule in load_catalogue().rules if rule.scope == scope)
    row = {
        name: value
        for name, value in rule.row.items()
        if name not in ("expected", "found", "remedy")
    }
    assert bool(list(check_schema({"rules": [row]}, "rule-1"))) is missing
