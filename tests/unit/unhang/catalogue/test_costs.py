"""What a severity is worth: each rule above info says what it costs a job, and its severity is the one for that."""

from __future__ import annotations

from unhang.audit.judge.compiled_catalogue import load_catalogue

RULES = load_catalogue().rules
SEVERITY_OF = {
    "no job may start": "critical", "jobs fail": "error", "jobs hang": "error", "jobs are slow": "error",
    "next boot": "warning", "next upgrade": "warning", "larger jobs": "warning", "some jobs": "warning",
}  # fmt: skip


def test_every_rule_above_info_says_what_it_costs_and_no_other():
    assert [rule.id for rule in RULES if ("costs" in rule.row) != (rule.severity != "info")] == []


def test_severity_is_that_of_the_cost():
    wrong = {rule.id: (rule.severity, rule.row["costs"]) for rule in RULES if "costs" in rule.row and SEVERITY_OF[rule.row["costs"]] != rule.severity}
    assert wrong == {}
