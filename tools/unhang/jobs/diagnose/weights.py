"""The weights that a signature may have, and what each adds to the score of a cause.

The numbers work as log-odds: +1 makes a cause about three times as likely against the others. They were set by what a message means (a program that names the
fault is decisive, a consequence that many faults share is weak), then checked on a collection of solved threads; no number was fitted to a single log. Each
further piece of evidence for the same cause counts half as much as the one before it, so that ten hints never make a proof.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

WEIGHTS = {"decisive": 6.0, "strong": 4.0, "supporting": 2.0, "hinting": 1.3, "weak": 0.7}
MOST_PIECES = 64  # further evidence adds less than the precision of a float
NOTHING = 2.0  # the score of "none of these"
FIRST_ERROR = 1.0  # bonus for the cause of the earliest error, because later errors are often its consequences
ABOVE_WARNING = 3.5  # from this score on a cause has the severity of its row
ABOVE_INFO = 1.8  # from this score on it is a warning, below it a remark


def added_up(weights: Iterable[float]) -> float:
    """The score of several pieces of evidence for one cause: the strongest counts fully, each further one half as much as the one before."""
    return sum(weight / 2**place for place, weight in enumerate(heapq.nlargest(MOST_PIECES, weights)))


def shares(scores: Iterable[float]) -> list[float]:
    """Each score as its share of belief, 0 to 1; the rest to 1 is the share of "none of these"."""
    values = [math.exp(min(score, 50.0)) for score in scores]
    whole = math.exp(NOTHING) + sum(values)
    return [value / whole for value in values]
