"""All messages of programs, listed from their sources: each leads to its cause (or to none) in
every form in which it appears in a log."""

from __future__ import annotations

import pytest
from support.messages import diagnoses_of, read_messages

from unhang.jobs.diagnose.matching.signatures import load_causes

ROWS = read_messages()


@pytest.mark.parametrize(
    ("family", "row"), ROWS, ids=[f"{family}-{place}" for place, (family, _) in enumerate(ROWS)]
)
def test_message_leads_to_its_cause_or_to_none_in_every_form(tmp_path, family, row):
    for diagnosis in diagnoses_of(row, tmp_path):
        assert diagnosis.is_first(row), (
            f"{diagnosis.form}: {diagnosis.causes[:3]} and not {row['cause']}"
        )


def test_messages_name_causes_that_exist_and_no_message_stands_twice():
    assert {row["cause"] for _, row in ROWS} - {None} <= set(load_causes())
    lines = [(row.get("at"), row["line"]) for _, row in ROWS]
    assert len(lines) == len(set(lines))
