"""Phase burn_in: keeps the GPU at full load, and compares every product bit by bit with the exact
one."""

from __future__ import annotations

import time
from typing import Any

from .burn_clocks import Clocks
from .burn_products import KINDS, Product
from .run import Failed, Run, meet

BURN_IN_S = 60.0  # where the plan names no time
PREPARE_S = 60.0  # for the expected results of one type
# until the next type has its turn; of products that are started before they are checked
TURN_S, BATCH_S = 10.0, 0.5
MOST_RESULTS = 16  # of a batch
SIZES = {"cpu": (64, 64), "small": (4096, 8192), "cuda": (8192, 16384)}  # rows, length of the sums
LARGE_BYTES = 24 * 2**30  # inputs and results of the largest need 12 GiB
# of torch, for a type that it or the GPU lacks
UNSUPPORTED = (RuntimeError, AttributeError, NotImplementedError, TypeError, ValueError)


def phase_burn_in(run: Run) -> dict[str, Any]:
    """{types: {name: {results, tflop_s}}, left_out: {name: why}, clocks}. Raises Failed for a
    result that differs in one bit."""
    left_out: dict[str, str] = {}
    products = [product for name in KINDS for product in prepare(run, name, left_out)]
    meet(run, "preparing the burn-in")
    for name, why in left_out.items():
        # on all ranks it is a library that rounds
        if 0 < run.store.add("inexact " + name, 0) < run.world:
            raise Failed(
                "expected the exact product in %s, which other GPUs have, found %s" % (name, why)
            )
    if not products:
        raise Failed(
            "expected a type of number with exact products, found none: %s" % left_out, blind=True
        )
    done: dict[str, dict[str, float]] = {
        product.name: {"results": 0, "seconds": 0.0} for product in products
    }
    clocks = Clocks(run)
    until = time.monotonic() + (run.plan.get("burn_in_s") or BURN_IN_S)
    while time.monotonic() < until or not all(row["results"] for row in done.values()):
        for product in products:
            burn(run, product, min(until, time.monotonic() + TURN_S), done[product.name], clocks)
    types = {
        product.name: {
            "results": row["results"],
            "tflop_s": round(row["results"] * product.work / row["seconds"], 3),
        }
        for product, row in zip(products, done.values())
    }
    return {"types": types, "left_out": left_out, "clocks": clocks.report()}


def prepare(run: Run, name: str, left_out: dict[str, str]) -> list[Product]:
    """The product in a list; [] for a type that is not supported, or whose first results are not
    exact. Raises Failed."""
    torch, size = run.torch, run.device.type
    if size == "cuda":
        # Partial sums of split products must be added in float32 too: in the type of the result
        # they would be rounded.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        size = "cuda" if run.free_bytes() > LARGE_BYTES else "small"
    run.step("prepare products in %s" % name, PREPARE_S)
    try:
        product = Product(torch, run.device, name, *SIZES[size])
        first, second = product.run(), product.run()
        totals = [int(product.total_of(result)) for result in (first, second)]
    except UNSUPPORTED as problem:
        if "CUDA error" in str(problem) and "CUBLAS_STATUS_NOT_SUPPORTED" not in str(problem):
            raise  # a GPU that failed
        left_out[name] = " ".join(str(problem).split())[:200]
        return []
    if totals[0] != totals[1]:
        raise Failed(
            "expected the same product in %s twice, found %s"
            % (name, product.why_wrong(first) or product.why_wrong(second))
        )
    if totals[0] != product.total:
        left_out[name] = "not exact: %s" % product.why_wrong(first)
        run.store.add("inexact " + name, 1)
        return []
    return [product]


def burn(run: Run, product: Product, until: float, row: dict[str, float], clocks: Clocks) -> None:
    """Repeats a product until then, at least one batch, and adds to the row. Each is compared by
    the sum of its bits, the last one of a batch by all of its elements. Raises Failed."""
    batch, now = 1, time.monotonic()
    while row["results"] == 0 or now < until:
        began = now
        run.step("products in %s" % product.name)
        results = [product.run() for _ in range(batch)]
        if any(
            (one["rank"], one["fault"], one.get("phase")) == (run.rank, "corrupt", "burn_in")
            for one in run.plan.get("drills") or ()
        ):
            product.flip(results[-1])
        totals = run.torch.stack([product.total_of(result) for result in results]).tolist()
        for result in [
            result for result, total in zip(results, totals) if total != product.total
        ] + results[-1:]:
            why = product.why_wrong(result)
            if why or totals.count(product.total) != batch:
                raise Failed(
                    "expected the exactly known product in %s, found %s"
                    % (product.name, why or "a wrong sum, right when read again")
                )
        now = time.monotonic()
        row["results"] += batch
        row["seconds"] += now - began
        batch = max(1, min(MOST_RESULTS, int(batch * BATCH_S / max(now - began, 1e-9))))
        clocks.read()
