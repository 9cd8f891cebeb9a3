"""Labels that a person gives to all series of an output for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterable

from unhang.core.errors import UserError
from unhang.core.text import visible

OWN_LABELS = frozenset(
    (
        *("verdict", "status", "severity", "rule", "node", "version", "state", "job", "instance"),
        "watched_job",
    )
)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,63}")


def parse_labels(given: Iterable[str]) -> dict[str, str]:
    """Labels NAME=VALUE, which every series gets. Raises UserError."""
    labels: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not _LABEL.fullmatch(name):
            raise UserError(
                "--label takes NAME=VALUE with a name of letters, digits and _, such as"
                f" cluster=production, not {visible(one, 120)!r}"
            )
        if name in OWN_LABELS or name in labels:
            raise UserError(
                f"--label: {name} is"
                f" {'given twice' if name in labels else 'a label of its own here or of Prometheus'};"  # noqa: E501
                " choose another name"
            )
        labels[name] = visible(value, 200)
    return labels
