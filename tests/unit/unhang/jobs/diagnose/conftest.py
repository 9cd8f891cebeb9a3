"""Fixtures of the tests of the diagnosis."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose


@pytest.fixture
def answer(tmp_path):
    """The diagnosis of a report's text, read from a file as a user would give it."""

    def answer(text):
        (tmp_path / "report.txt").write_text(text, encoding="utf-8")
        return diagnose([str(tmp_path / "report.txt")])

    return answer
