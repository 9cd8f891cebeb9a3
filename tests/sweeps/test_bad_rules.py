"""`unhang catalogue check DIR` on a user's own rules: each fault is one line with file, rule and the
probably intended name; no rule runs without end."""

from __future__ import annotations

import json

import pytest
from case_rows import case_rows

from unhang.cli import main
from unhang.core.catalogue.own_tables import table

ROWS = case_rows(__file__)

GOOD = ROWS["GOOD"]
TABLE = {
    "title": "Own", "key": "name", "as_of": "2026-11-20", "confidence": "inferred",
    "sources": [{"url": "u", "says": "s"}],
    "fields": {"end": {"kind": "date"}}, "rows": [{"name": "a", "end": "2026-01-01"}],
}  # fmt: skip


def checked(tmp_path, capsys, content):
    """(exit code, lines that were printed)."""
    (tmp_path / "own.yml").write_text(json.dumps(content, indent=1))
    code = main(["catalogue", "check", str(tmp_path)])
    return code, capsys.readouterr().out.splitlines()


def test_good_rules_and_tables_are_told_to_be_good(tmp_path, capsys):
    code, lines = checked(tmp_path, capsys, {"rules": [GOOD], "tables": {"own": TABLE}})
    assert (code, lines) == (0, [f"{tmp_path}: 1 rule, 1 row of tables, no fault"])


@pytest.mark.parametrize(
    ("change", "message"),
    ROWS["test_a_fault_is_one_line_that_names_file_rule_and_cure"],
)
def test_a_fault_is_one_line_that_names_file_rule_and_cure(tmp_path, capsys, change, message):
    code, lines = checked(tmp_path, capsys, {"rules": [{**GOOD, **change}]})
    assert code == 1
    assert len(lines) == 1
    assert "own-rule" in lines[0] and message in lines[0] and str(tmp_path) in lines[0]


def test_a_rule_that_names_a_faulty_one_is_no_second_fault(tmp_path, capsys):
    other = {**GOOD, "id": "other-rule", "also": ["own-rule"], "explains": ["own-rule"]}
    code, lines = checked(tmp_path, capsys, {"rules": [{**GOOD, "severity": "eror"}, other]})
    assert code == 1 and len(lines) == 1 and "severity: 'eror'" in lines[0]


def test_a_mistake_that_all_examples_share_is_reported_once(tmp_path, capsys):
    examples = {
        "match": [{"gpus": {"cuont": 0}}, {"gpus": {"cuont": 0}}],
        "near_miss": [{"gpus": {"cuont": 1}}],
    }
    code, lines = checked(tmp_path, capsys, {"rules": [{**GOOD, "examples": examples}]})
    assert code == 1 and len(lines) == 1 and "examples.match[0]" in lines[0] and "cuont" in lines[0]


def test_an_id_of_the_projects_own_is_taken(tmp_path, capsys):
    code, lines = checked(tmp_path, capsys, {"rules": [{**GOOD, "id": "xid-fatal"}]})
    assert code == 1 and "the id xid-fatal is already used at" in lines[0]


def test_a_table_of_the_projects_own_is_taken(tmp_path, capsys):
    code, lines = checked(tmp_path, capsys, {"tables": {"xids": TABLE}})
    assert code == 1 and "the table xids is already there at" in lines[0]


def test_a_date_that_is_none_is_reported(tmp_path, capsys):
    code, lines = checked(
        tmp_path,
        capsys,
        {"tables": {"own": {**TABLE, "rows": [{"name": "a", "end": "2026-02-30"}]}}},
    )
    assert (
        code == 1
        and "table own: a: end: '2026-02-30' is no date; write it as 2026-12-31" in lines[0]
    )


def test_rows_of_tables_are_counted_in_the_list(capsys):
    assert main(["catalogue", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    for kind in ("xids", "driver_branches", "nccl_variables"):
        assert sum(row["kind"] == kind for row in rows) == len(table(kind)) > 0
    assert sum(row["kind"] == "rule" for row in rows) > 0
    assert all(row["sources"] and row["confidence"] for row in rows)
