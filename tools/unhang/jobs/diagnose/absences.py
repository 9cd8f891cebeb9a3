"""Whether it names ranks that they have no line of what others wait in. Values in, values out.

A rank whose own lines show that it is elsewhere is not absent. Of the others it is known only
whether their log has any text, and where they are many, that lines were not saved.
"""

from __future__ import annotations

from collections.abc import Collection, Sized

from unhang.core.verdict.waiting import are_few


def too_many(absent: set[int], words: Collection[int], waiting: Sized) -> set[int]:
    """Those whom it does not name, beside those that wait. words: ranks with lines of their own,
    who must be fewer than these; of the others one of three is missing."""
    spoke, silent = absent.intersection(words), absent.difference(words)
    many = not are_few(silent, waiting) if len(silent) > 1 else len(waiting) == 1
    return (silent if many else set()) | (spoke if 1 < len(spoke) >= len(waiting) else set())
