"""Which groups of a run a policy may have meant by a name that no node's group has. A policy may be for several inventories, so a name is often right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

NEAR = 0.85  # of difflib's ratio: a letter too few or too many in a name of eight; h100 and h200, dev-h100 and prod-h100 are less alike
_NUMBER = re.compile(r"\d")


def groups_for_misspelt(named: Collection[str], groups: Collection[str]) -> frozenset[str]:
    """Of the groups of a run, those that policies name, and those that a name which is no group seems to mean."""
    meant = {group for name in named if name not in groups for group in groups if group not in named and _is_nearly(name, group)}
    return frozenset(meant | set(named).intersection(groups))


def _is_nearly(name: str, group: str) -> bool:
    """Whether a name seems to be a misspelt one; names that differ in digits alone are those of two groups."""
    if _NUMBER.sub("#", name) == _NUMBER.sub("#", group):
        return False
    return sorted(name) == sorted(group) or difflib.SequenceMatcher(None, name, group).ratio() >= NEAR
