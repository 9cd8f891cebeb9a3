"""The weights that a signature may have, and what they add to the score of a cause.

The numbers are log-odds in all but name: +1 makes a cause about three times as likely against the others. They were set by what a message
means (a program that names the fault is decisive, a consequence that many faults share is weak), then looked at on a collection of solved
threads; no number was fitted to a single log. Each further piece of evidence for the same cause counts half as much as the one before it,
so that ten hints never make a proof.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

WEIGHTS = {"decisive": 6.0, "strong": 4.0, "supporting": 2.0, "hinting": 1.3, "weak": 0.7}
MOST_PIECES = 64  # what is further down the list adds less than a float can tell
NOTHING = 2.0  # the score that "none of these" starts with
FIRST_ERROR = 1.0  # for what the earliest error speaks for: later ones are often its consequences
ABOVE_WARNING = 3.5  # from here on a cause is as severe as its row says
ABOVE_INFO = 1.8  # from here on it is a warning, below it is a remark


def added_up(weights: Iterable[float]) -> float:
    """The score of several pieces of evidence for one cause: the strongest whole, each further one half as much."""
    return sum(weight / 2**place for place, weight in enumerate(heapq.nlargest(MOST_PIECES, weights)))


def shares(scores: Iterable[float]) -> list[float]:
    """Each score as its share of belief, 0 to 1; what is missing to 1 is the share of "none of these"."""
    values = [math.exp(min(score, 50.0)) for score in scores]
    whole = math.exp(NOTHING) + sum(values)
    return [value / whole for value in values]
