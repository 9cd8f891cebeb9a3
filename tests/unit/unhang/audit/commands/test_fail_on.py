"""The exit code: findings from a severity on, nodes that were not read, and no node at all."""

from __future__ import annotations

import pytest

from unhang.audit.commands.fail_on import exit_code


def document(read, unread, **severities):
    """A head of findings.json with so many nodes."""
    verdicts = {
        "critical": [],
        "error": [],
        "warning": [],
        "unread": ["gone"] * unread,
        "healthy": ["gpu1"] * read,
    }
    return {
        "host_count": read + unread,
        "node_verdicts": verdicts,
        "totals_by_severity": severities,
    }


@pytest.mark.parametrize(
    ("found", "fail_on", "code"),
    [
        (document(2, 0), "info", 0),
        (document(2, 0, warning=1), "warning", 1),
        (document(2, 0, warning=1), "error", 0),
        (document(2, 0, info=9), "warning", 0),
        (document(2, 1), "warning", 1),
        (document(2, 1), "error", 1),
        (document(2, 1), "critical", 0),
        (document(0, 3), "critical", 2),
        (document(0, 3, warning=3), "warning", 2),
        (document(0, 0), "info", 0),
        (document(1, 0) | {"without_gpus": {"gpu1": 58}}, "error", 1),
        (document(1, 0) | {"without_gpus": {"gpu1": 58}}, "critical", 0),
        (document(2, 0) | {"without_gpus": {"gpu1": 58}}, "warning", 0),
    ],
)
def test_unread_nodes_count_as_errors_and_none_read_is_2(found, fail_on, code):
    assert exit_code(found, fail_on) == code
