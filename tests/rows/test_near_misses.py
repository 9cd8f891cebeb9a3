"""Each fault of a row's costs or near misses would be seen."""

from __future__ import annotations

import dataclasses

import pytest

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.row_faults import row_faults

RULES = {rule.id: rule for rule in load_catalogue().rules}


def changed(rule_id, **change):
    """A rule of the catalogue with another row."""
    rule = RULES[rule_id]
    return dataclasses.replace(rule, row={**rule.row, **change})


MATCH = {"limits": {"numa_balancing": True}, "gpus": {"count": 8}}


@pytest.mark.parametrize(
    ("rule_id", "change", "fault"),
    [
        (
            "xid-fatal",
            {"costs": None},
            "costs must be what makes it critical, 'no job may start', and is none",
        ),
        (
            "xid-fatal",
            {"costs": "some jobs"},
            "costs must be what makes it critical, 'no job may start', and is some jobs",
        ),
        (
            "numa-balancing-on",
            {"costs": "some jobs"},
            "costs must be absent, because info costs a job nothing, and is some jobs",
        ),
        (
            "kernel-release-has-fault",
            {"costs": "jobs fail"},
            "costs must be absent, because each row of the table has its severity, and is jobs fail",
        ),
        (
            "numa-balancing-on",
            {"remedy": {"person": "drain the node"}},
            "remedy.person: an info takes no node out of service",
        ),
        (
            "numa-balancing-on",
            {"examples": {"match": [MATCH], "near_miss": [{"kernel": {}}]}},
            "examples.near_miss[0]: no match has these facts",
        ),
        (
            "numa-balancing-on",
            {
                "examples": {
                    "match": [MATCH],
                    "near_miss": [{"limits": {"numa_balancing": False}, "gpus": {"count": 1}}],
                }
            },
            "deciding fact alone: gpus.count, limits.numa_balancing",
        ),
    ],
)
def test_a_row_is_refused(rule_id, change, fault):
    assert any(fault in found for found in row_faults(changed(rule_id, **change)))
