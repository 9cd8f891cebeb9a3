"""Messages of programs, family by family: one line alone leads to its cause, and an echo or a
harmless line leads to none."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_diagnosis import diagnose_lines

from unhang.core.strict_yaml import load_yaml

FOLDER = Path(__file__).parents[1] / "fixtures" / "diagnose_vocabulary"
ROWS = [(path.stem, row) for path in sorted(FOLDER.glob("*.yml")) for row in load_yaml(path)[0]]


@pytest.mark.parametrize(
    ("family", "row"), ROWS, ids=[f"{family}-{place}" for place, (family, _) in enumerate(ROWS)]
)
def test_line_speaks_for_its_cause_or_for_none(tmp_path, family, row):
    log = tmp_path / "job.log"
    log.write_text(f"{row['line']}\n", encoding="utf-8")
    causes = diagnose_lines([str(log)])["causes"]
    if row["cause"] is None:
        assert causes == []
    else:
        assert causes[0]["cause"] == row["cause"]
        assert (causes[0]["severity"] == "info") == bool(row.get("info"))
