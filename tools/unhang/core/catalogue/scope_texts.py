"""What a comparison of nodes says if its row has no text of its own, by the row's scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FOUND = (
    "{{ counts | map(attribute='value') | join(' / ') }} on {{ counts | map(attribute='count') |"
    " join(' / ') }} nodes{{ '; other than most: ' ~ (outliers | map(attribute='host') | join(',"
    " ')) if majority is known else '; no value is in the majority' }}"
)
TEXTS = {
    "group": {
        "expected": (
            "the same on all nodes of the group{{ ', most have ' ~ majority if majority is known"
            " else '' }}"
        ),
        "found": _FOUND,
    },
    "fleet": {
        "expected": (
            "one version in all groups that are tied by same_as, so that what was tested is what"
            " runs"
        ),
        "found": _FOUND,
    },
}


def with_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the texts of its scope that it does not have itself."""
    return {**TEXTS.get(row["scope"], {}), **row}
