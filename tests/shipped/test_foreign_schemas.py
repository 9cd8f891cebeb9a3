"""The schemas by which JUnit and SARIF are checked refuse what others would."""

from __future__ import annotations

import json

import pytest
from case_rows import case_rows
from foreign_schemas import junit_faults, sarif_faults

ROWS = case_rows(__file__)

SUITE = (
    '<testsuite name="a" tests="1" failures="1" errors="0"><testcase name="n"'
    ' classname="c"><failure message="m"/></testcase></testsuite>'
)
LOG = {
    "$schema": (
        "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    ),
    "version": "2.1.0",
    "runs": [
        {
            "tool": {
                "driver": {"name": "a", "rules": [{"id": "r", "shortDescription": {"text": "t"}}]}
            },
            "results": [{"ruleId": "r", "level": "note", "message": {"text": "t"}}],
        }
    ],
}


@pytest.mark.parametrize(
    ("old", "new"),
    ROWS["test_a_suite_that_a_server_would_not_read_is_refused"],
)  # fmt: skip
def test_a_suite_that_a_server_would_not_read_is_refused(old, new):
    assert (junit_faults(SUITE.replace(old, new, 1)) == []) is (old == new)


@pytest.mark.parametrize(
    ("old", "new"),
    ROWS["test_a_log_that_is_no_sarif_is_refused"],
)
def test_a_log_that_is_no_sarif_is_refused(old, new):
    assert (sarif_faults(json.dumps(LOG).replace(old, new, 1)) == []) is (old == new)
