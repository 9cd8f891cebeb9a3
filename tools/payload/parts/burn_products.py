"""Matrix products whose results are known exactly, bit by bit.

The inputs are whole numbers (float16: whole numbers times a power of two, which changes no digit), small enough that the sum of the magnitudes of all products
of a result stays within what the accumulator holds exactly. So every partial sum is exact, no addition rounds, and the order of summation, which differs
between libraries, GPUs and even runs, does not matter. Only one rounding remains, of an exact number to the result's type, which IEEE 754 defines. A result
that differs in one bit is wrong.

The inputs repeat after `period` rows and columns, so there are only period x period different results. The CPU computes the expected ones in float64 (exact as
well, because they are far below 2^53), never the GPU under test.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from .pattern import pattern


class Kind(NamedTuple):
    """bound: of the inputs' magnitudes; shift: inputs are divided by 2^shift; limit: the accumulator is exact for whole numbers up to this; most_inner: length
    of a sum up to which bound keeps it within limit; share: of a round's time."""

    bound: int
    shift: int
    limit: int
    most_inner: int
    share: float


# float32 has 24 digits. Tensor cores of Hopper keep about 14 digits of a sum of FP8 products (DeepSeek-V3 Technical Report, https://arxiv.org/abs/2412.19437,
# 3.3.2): with sums below 2^13 nothing is lost there either. TF32 has 11 digits for inputs.
KINDS = {
    "bfloat16": Kind(60, 0, 2**24, 16384, 0.55),
    "float16": Kind(60, 4, 2**24, 16384, 0.2),
    "float8_e4m3fn": Kind(2, 0, 2**13, 4096, 0.06),
    "int8": Kind(127, 0, 2**31 - 1, 16384, 0.08),
    "tf32": Kind(60, 0, 2**24, 16384, 0.07),
    "float32": Kind(60, 0, 2**24, 16384, 0.04),
}
RESULTS = {"float8_e4m3fn": "bfloat16", "int8": "int32", "tf32": "float32"}  # where it differs from the type of the inputs
PERIOD = 256
MOST_LISTED = 8
BITS = {2: "int16", 4: "int32"}
UNSUPPORTED = (RuntimeError, AttributeError, NotImplementedError, TypeError, ValueError)  # what torch raises for a type that torch or the GPU does not support


class Product:
    """One product of one type, ready to be repeated. rows: of the square result; inner: length of the sums; total: sum of the result's 64-bit words."""

    def __init__(self, torch: Any, device: Any, name: str, rows: int, inner: int) -> None:
        self.torch, self.device, self.name, self.kind = torch, device, name, KINDS[name]
        self.rows, self.inner = rows, min(inner, self.kind.most_inner)
        self.period = min(PERIOD, rows)
        self.flops = 2.0 * rows * rows * self.inner
        left, right = self._block(1), self._block(2)
        most = float((left.abs() @ right.abs().t()).max())
        if most > self.kind.limit:
            raise AssertionError("%s: expected sums of magnitudes of at most %d, found %.0f" % (name, self.kind.limit, most))
        exact = (left @ right.t()) * 2.0 ** (-2 * self.kind.shift)
        expected = exact.to(getattr(torch, RESULTS.get(name, name)))
        # Each element of the CPU's block occurs (rows / period)^2 times in the whole result.
        self.total = wrapped(int(expected.view(torch.int64).sum()) * (rows // self.period) ** 2)
        self.expected = expected.to(device)
        self.left, self.right = self._whole(left), self._whole(right).t()
        if name == "float8_e4m3fn":
            self.one = torch.ones((), dtype=torch.float32, device=device)

    def _block(self, seed: int) -> Any:
        """`period` rows of whole numbers, float64, on the CPU."""
        values = pattern(self.torch, "cpu", self.period * self.inner, 0, seed, self.kind.bound, self.torch.float64)
        return values.reshape(self.period, self.inner)

    def _whole(self, block: Any) -> Any:
        kind = {"tf32": "float32"}.get(self.name, self.name)
        scaled = (block * 2.0**-self.kind.shift).to(self.torch.float32).to(self.device)
        return scaled.repeat(self.rows // self.period, 1).to(getattr(self.torch, kind))

    def run(self) -> Any:
        """Starts one product and does not wait for its result. Raises torch's error where torch or the GPU does not support the type."""
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = self.name == "tf32"
        if self.name == "int8":
            return torch._int_mm(self.left, self.right)
        if self.name != "float8_e4m3fn":
            return torch.matmul(self.left, self.right)
        found = torch._scaled_mm(self.left, self.right, scale_a=self.one, scale_b=self.one, out_dtype=torch.bfloat16, use_fast_accum=True)
        return found[0] if isinstance(found, tuple) else found

    def total_of(self, result: Any) -> Any:
        """The sum of the result's bits as 64-bit words, modulo 2^64, still on the device: one bit that differs always changes it."""
        return result.view(self.torch.int64).sum()

    def wrong_places(self, result: Any) -> tuple[int, list[dict[str, Any]]]:
        """How many elements differ from the expected ones in any bit, and the first of them."""
        torch, size = self.torch, result.element_size()
        bits = getattr(torch, BITS[size])
        blocks = result.view(bits).view(self.rows // self.period, self.period, self.rows // self.period, self.period)
        wanted = self.expected.view(bits)[None, :, None, :]
        different = (blocks != wanted).view(self.rows, self.rows)
        count = int(different.sum())
        listed = []
        for row, column in different.nonzero()[:MOST_LISTED].tolist() if count else ():
            found = int(result.view(bits)[row, column]) & (1 << 8 * size) - 1
            right = int(self.expected.view(bits)[row % self.period, column % self.period]) & (1 << 8 * size) - 1
            listed.append(wrong_place(result.data_ptr() + (row * self.rows + column) * size, found, right, 8 * size, "row %d, column %d" % (row, column)))
        return count, listed

    def flip(self, result: Any, place: int, bit: int) -> None:
        """For a drill: flips one bit of one element."""
        flat = result.view(getattr(self.torch, BITS[result.element_size()])).view(-1)
        flat[place] ^= 1 << bit


def wrong_place(address: int, found: int, right: int, width: int, where: str) -> dict[str, Any]:
    """{address, where, expected, found, bits}: the GPU's virtual address, both values as they are in memory, and the bits that differ."""
    form = "0x%%0%dx" % (width // 4)
    return {
        "address": "0x%x" % address, "where": where, "expected": form % right, "found": form % found,
        "bits": [bit for bit in range(width) if (found ^ right) >> bit & 1],
    }  # fmt: skip


def is_fault(problem: BaseException) -> bool:
    """Whether torch reports a GPU that failed, and not a type or a library that is missing."""
    return "CUDA error" in str(problem) and "CUBLAS_STATUS_NOT_SUPPORTED" not in str(problem)


def wrapped(value: int) -> int:
    """As a signed number of 64 bits, the type of torch's sums."""
    return (value + 2**63) % 2**64 - 2**63


def make_product(torch: Any, device: Any, name: str, rows: int, inner: int) -> tuple[Product | None, dict[str, Any]]:
    """(product or None, what to report of it): whether the GPU supports the type, how long a product takes, whether the first two results are as expected."""
    try:
        product = Product(torch, device, name, rows, inner)
        results = [product.run() for _ in range(2)]
        totals = [int(product.total_of(result)) for result in results]
        began = time.monotonic()
        int(product.total_of(product.run()))
        took = time.monotonic() - began
    except UNSUPPORTED as problem:
        if is_fault(problem):
            raise
        return None, {"type": name, "status": "absent", "why": " ".join(str(problem).split())[:200]}
    report: dict[str, Any] = {"type": name, "status": "ready", "digest": "%016x" % (totals[0] % 2**64), "one_s": round(took, 6), "inner": product.inner}
    if totals != [product.total] * 2:
        count, listed = product.wrong_places(results[0])
        report.update(status="inexact", wrong=count, places=listed, repeats=totals[0] == totals[1])
        return None, report
    return product, report
