"""Matrix products whose results are known exactly, bit by bit.

The inputs are whole numbers (float16: times a power of two), so small that the magnitudes of all
products of a result add up to what the accumulator holds
exactly: no addition rounds, in whichever order. One rounding remains, of an exact number to the
result's type, which IEEE 754 defines. The inputs repeat after `period` rows and columns, so the CPU
can compute all expected results, in float64 and never on the GPU under test.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .pattern import pattern


class Kind(NamedTuple):
    """bound: of the inputs' magnitudes; shift: they are divided by 2^shift; limit: of the exact
    accumulator; most_inner: longest sum; result: its type."""

    bound: int
    shift: int
    limit: int
    most_inner: int
    result: str


# float32 has 24 digits, TF32 11 for inputs. Hopper keeps about 14 digits of a sum of FP8 products
# (DeepSeek-V3, https://arxiv.org/abs/2412.19437, 3.3.2).
KINDS = {
    "bfloat16": Kind(60, 0, 2**24, 16384, "bfloat16"),
    "float16": Kind(60, 4, 2**24, 16384, "float16"),
    "float8_e4m3fn": Kind(2, 0, 2**13, 4096, "bfloat16"),
    "int8": Kind(127, 0, 2**31 - 1, 16384, "int32"),
    "tf32": Kind(60, 0, 2**24, 16384, "float32"),
    "float32": Kind(60, 0, 2**24, 16384, "float32"),
}


class Product:
    """One product, ready to be repeated. total: the sum of the result's 64-bit words, modulo 2^64;
    work: 10^12 operations."""

    def __init__(self, torch: Any, device: Any, name: str, rows: int, inner: int) -> None:
        self.torch, self.device, self.name, self.kind = torch, device, name, KINDS[name]
        self.rows, self.inner, self.period = rows, min(inner, self.kind.most_inner), min(256, rows)
        self.work = 2e-12 * rows * rows * self.inner
        left, right = self._block(1), self._block(2)
        most = float((left.abs() @ right.abs().t()).max())
        if most > self.kind.limit:
            raise AssertionError(
                "%s: expected sums of at most %d, found %.0f" % (name, self.kind.limit, most)
            )
        expected = ((left @ right.t()) * 2.0 ** (-2 * self.kind.shift)).to(
            getattr(torch, self.kind.result)
        )
        words = int(expected.view(torch.int64).sum()) * (rows // self.period) ** 2
        self.total = (words + 2**63) % 2**64 - 2**63  # signed, as torch adds
        self.bits = torch.int16 if expected.element_size() == 2 else torch.int32
        self.expected = expected.view(self.bits).to(device)
        self.left, self.right = self._whole(left), self._whole(right).t()
        self.one = torch.ones((), dtype=torch.float32, device=device)

    def _block(self, seed: int) -> Any:
        """`period` rows of whole numbers, float64, on the CPU."""
        return pattern(
            self.torch,
            "cpu",
            self.period * self.inner,
            0,
            seed,
            self.kind.bound,
            self.torch.float64,
        ).reshape(self.period, -1)

    def _whole(self, block: Any) -> Any:
        scaled = (block * 2.0**-self.kind.shift).to(self.torch.float32).to(self.device)
        return scaled.repeat(self.rows // self.period, 1).to(
            getattr(self.torch, "float32" if self.name == "tf32" else self.name)
        )

    def run(self) -> Any:
        """Starts one product and does not wait for its result. Raises torch's error where torch or
        the GPU does not support the type."""
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = self.name == "tf32"
        if self.name == "int8":
            return torch._int_mm(self.left, self.right)
        if self.name != "float8_e4m3fn":
            return torch.matmul(self.left, self.right)
        found = torch._scaled_mm(
            self.left,
            self.right,
            scale_a=self.one,
            scale_b=self.one,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
        return found[0] if isinstance(found, tuple) else found

    def total_of(self, result: Any) -> Any:
        """The same sum of a result, still on the device: one bit that differs changes it."""
        return result.view(self.torch.int64).sum()

    def why_wrong(self, result: Any) -> str | None:
        """How many elements differ in any bit, and the first of them; None if all are right."""
        period, width, held = self.period, 8 * result.element_size(), result.view(self.bits)
        blocks = held.view(self.rows // period, period, self.rows // period, period)
        different = (blocks != self.expected[None, :, None, :]).view(self.rows, self.rows)
        count = int(different.sum())
        if not count:
            return None
        row, column = different.nonzero()[0].tolist()
        found, right = (
            int(value) & (1 << width) - 1
            for value in (held[row, column], self.expected[row % period, column % period])
        )
        wrong = ", ".join(str(bit) for bit in range(width) if (found ^ right) >> bit & 1)
        return "%d wrong elements: row %d, column %d expected 0x%x, found 0x%x, bits %s" % (
            count,
            row,
            column,
            right,
            found,
            wrong,
        )

    def flip(self, result: Any) -> None:
        """For a drill: flips one bit of one element."""
        result.view(self.bits).view(-1)[77] ^= 1 << 5
