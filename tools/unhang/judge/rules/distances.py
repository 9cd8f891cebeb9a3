"""How far a number is from those of its like: the median of all, and the median distance from it.
Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence

ALIKE = 4  # fewer accuse nobody
WIDTHS = 6  # times the median distance, about four standard deviations


def median(values: Sequence[float]) -> float:
    """Of one value and more. The quick check has no time to load statistics."""
    low, high = ((len(values) - 1) // 2, len(values) // 2)
    return (sorted(values)[low] + sorted(values)[high]) / 2


def distances(values: Sequence[float], least: float, share: float, worse: str) -> list[float]:
    """How often each value is as far from the median as the like may be, 0.0 for one that is no
    farther. They may be least, share of the median, or WIDTHS; more than a quarter that are farther
    are no odd ones. worse: higher, lower or any."""
    middle = median(values) if values else 0.0
    away = [value - middle for value in values]
    allowed = max(least, share * abs(middle), WIDTHS * median([abs(one) for one in away] or [0]))
    sided = [one if worse == "higher" else -one if worse == "lower" else abs(one) for one in away]
    far = [one / allowed if one > allowed > 0 else 0.0 for one in sided]
    is_told = len(values) >= ALIKE and 4 * sum(map(bool, far)) <= len(values)
    return far if is_told else [0.0] * len(values)
