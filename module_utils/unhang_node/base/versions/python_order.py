"""The order of Python packages' versions (PEP 440), and of plain numbers where a version does not
follow it."""

from __future__ import annotations

import re
from typing import Any

from .comparison import Comparison, sign_of
from .products import fields_of, padded

PEP_440 = (
    r"v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)"
    r"(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?([0-9]*))?"
    r"(?:-([0-9]+)|[-_.]?(post|rev|r)[-_.]?([0-9]*))?"
    r"(?:[-_.]?(dev)[-_.]?([0-9]*))?"
    r"(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
PHASES = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
FIELDS = r"v?([0-9]{1,18}(?:\.[0-9]{1,18}){0,15})"
BEFORE_ALL, AFTER_ALL = (0,), (2,)


def compare_generic(left: str, right: str) -> Comparison:
    """PEP 440 where both follow it, else numeric fields. Raises NotAVersion."""
    one, other = pep_440_key(left), pep_440_key(right)
    if one is None or other is None:
        return padded(fields_of(left, "generic", FIELDS), fields_of(right, "generic", FIELDS))
    sign = sign_of(one, other)
    return Comparison(sign, sign == 0)


def pep_440_key(version: str) -> tuple[Any, ...] | None:
    """A sort key, None when the version does not follow PEP 440."""
    found = re.fullmatch(PEP_440, version.strip().lower())
    if not found:
        return None
    epoch, release, phase, phase_number, post_alone, post, post_number, dev, dev_number, local = (
        found.groups()
    )
    fields = [int(field) for field in release.split(".")]
    while fields and fields[-1] == 0:
        fields.pop()
    is_post = bool(post or post_alone)
    if phase:
        before: tuple[Any, ...] = (1, PHASES.get(phase, phase), int(phase_number or 0))
    else:  # 1.0.dev1 comes before 1.0a1, and that before 1.0
        before = BEFORE_ALL if dev and not is_post else AFTER_ALL
    return (
        int(epoch or 0),
        tuple(fields),
        before,
        (1, int(post_alone or post_number or 0)) if is_post else BEFORE_ALL,
        (1, int(dev_number or 0)) if dev else AFTER_ALL,
        _local_key(local),
    )


def _local_key(local: str | None) -> tuple[Any, ...]:
    """Key of the part after "+": numbers sort after letters, and a version without that part sorts
    first."""
    if local is None:
        return ()
    return tuple(
        (1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"[-_.]", local)
    )
