"""Test data whose result is exactly known."""

from __future__ import annotations

from typing import Any

from .run import Run


def pattern(
    torch: Any,
    device: Any,
    count: int,
    source: int,
    seed: int,
    bound: int,
    dtype: Any,
    start: int = 0,
) -> Any:
    """`count` whole numbers in [-bound, bound], scrambled from their place, the source rank and the
    seed: any rank can compute what any other rank sent.

    Whole numbers up to 256 are exact in bfloat16, and so are their sums: a result is either right
    or wrong, never approximately right.
    """
    place = torch.arange(start, start + count, dtype=torch.int64, device=device)
    mixed = (place + source * 1_000_003 + seed * 7_919) * 6364136223846793005 + 1442695040888963407
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return ((mixed >> 33).remainder(2 * bound + 1) - bound).to(dtype)


def reduced_pattern(torch: Any, run: Run, count: int, seed: int, dtype: Any, start: int = 0) -> Any:
    """The expected result of all_reduce: the sum over the inputs of all ranks."""
    total = torch.zeros(count, dtype=torch.int64, device=run.device)
    for source in range(run.world):
        total += summand(torch, run, count, source, seed, torch.int64, start)
    return total.to(dtype)


def summand(
    torch: Any, run: Run, count: int, source: int, seed: int, dtype: Any, start: int = 0
) -> Any:
    """One rank's input of a sum. With more than 256 ranks only every k-th rank has a value other
    than zero at a place, so that the sum stays exact."""
    values = pattern(torch, run.device, count, source, seed, max(1, 256 // run.world), dtype, start)
    share = -(-run.world // 256)
    if share > 1:
        place = torch.arange(start, start + count, dtype=torch.int64, device=run.device)
        values = values * ((place + source) % share == 0).to(dtype)
    return values


def wrong_elements(found: Any, expected: Any) -> int:
    """How many elements differ; NaN differs from everything."""
    return int((found != expected).sum())
