"""The schemas by which JUnit and SARIF are checked refuse what others would."""

from __future__ import annotations

import json

import pytest
from foreign_schemas import junit_faults, sarif_faults

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
    [("", ""), ('tests="1"', 'tests="2"'), ('failures="1"', 'failures="0"'), ('failures="1"', ""),
    ('name="n"', ""), ("classname", "class"),
     ("failure message", "failed message"), (' message="m"', ""),
     ("<testcase", "<properties/><testcase"), ('name="n"', 'name="n" time="1,5"')],
)  # fmt: skip
def test_a_suite_that_a_server_would_not_read_is_refused(old, new):
    assert (junit_faults(SUITE.replace(old, new, 1)) == []) is (old == new)


@pytest.mark.parametrize(
    ("old", "new"),
    [("", ""), ('"2.1.0"', '"2.0.0"'), ('"note"', '"critical"'), ('"ruleId": "r"', '"ruleId": "q"'),
    ('"message"', '"messages"'), ('"name": "a"', '"name": ""'),
     ('"level": "note"', '"level": "note", "ruleIndex": -1'),
     ('"level": "note"', '"level": "note", "locations": []'),
     ('"level": "note"',
     '"level": "note", "locations": [{"physicalLocation": {"artifactLocation": {"uri": "a b"}}}]'),
     ('"level": "note"',
     '"level": "note", "locations": [{"physicalLocation": {"artifactLocation": {"uri": "a"}, "region": {"startLine": 0}}}]')],
)  # fmt: skip
def test_a_log_that_is_no_sarif_is_refused(old, new):
    assert (sarif_faults(json.dumps(LOG).replace(old, new, 1)) == []) is (old == new)
