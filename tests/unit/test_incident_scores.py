"""The page of the catalogue has the score of each batch of incidents as its rows have it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
ROWS = yaml.load(
    (PROJECT / "tests" / "fixtures" / "incidents" / "fresh_incidents.yml").read_text(
        encoding="utf-8"
    ),
    getattr(yaml, "CSafeLoader", yaml.SafeLoader),
)
BATCHES: dict[int, list[dict]] = {}
for row in ROWS["tables"]["fresh_incidents"]["rows"]:
    BATCHES.setdefault(row["batch"], []).append(row)
NUMBERED = sorted(number for number in BATCHES if number)


def by_sight(rows: list[dict]) -> list[int]:
    count = Counter(row["first_sight"] for row in rows)
    return [count[word] for word in ("found", "half", "not")]


@pytest.mark.parametrize("number", NUMBERED)
def test_the_page_has_the_score_of_a_batch(number):
    batch = BATCHES[number]
    noted = any(row.get("met_as") for row in batch)
    never_met = (
        by_sight([row for row in batch if not row.get("met_as")])
        if noted
        else ["not noted", "", ""]
    )
    cells = [
        number,
        batch[0]["judged_at"],
        f"{sum(by_sight(batch))} of {len(batch)}",
        *by_sight(batch),
        *never_met,
    ]
    assert f"\n| {' | '.join(map(str, cells))} |\n" in (
        PROJECT / "docs" / "catalogue.md"
    ).read_text(encoding="utf-8")
