"""What a comparison of nodes says if its row has no text of its own, by the row's scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FOUND = (
    "{{ counts | map(attribute='value') | map('string') | map('truncate', 160) | join(' // ') }} on"
    " {{ counts | map(attribute='count') | join(' / ') }} nodes{{ '; other than most: ' ~ (outliers"
    " | map(attribute='host') | join(', ')) if majority is known else '; no value is in the"
    " majority' }}"
)
# the judge puts the values and their hosts in its place
SAME_ON_ALL = (
    "set on all nodes the value that most have, or that unhang_policy names; where nodes differ on"
    " purpose, waive the finding or give them a peer group of their own"
)
TEXTS: dict[str, dict[str, Any]] = {
    "group": {
        "expected": (
            "the same on all nodes of the group{{ ', most have ' ~ (majority | string |"
            " truncate(200)) if majority is known else '' }}"
        ),
        "found": _FOUND,
        "remedy": {"person": SAME_ON_ALL},
    },
}


def with_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the texts of its scope that it does not have itself."""
    return {**TEXTS.get(row["scope"], {}), **row}
