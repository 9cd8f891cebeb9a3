"""Patterns in the GPU's free memory: written, kept while the products run, and read back."""

from __future__ import annotations

from typing import Any

from .burn_products import wrong_place

WORD_BYTES = 8
SLICE_WORDS = 2**24  # words that are filled or compared at a time, so that the comparison itself needs little memory
KEPT_FREE, LEAST_FREE = 0.04, 2 * 2**30  # share and bytes that stay free for the driver, NCCL and the temporary memory of the products
MOST_PLACES = 8
# Words of 64 bits by name; a pattern without a number here computes its words from their place. Its complement comes next, so every cell holds both.
PATTERNS = ("zeros", "alternating", "own place", "nibbles", "walking one", "scrambled")
WORDS = {"zeros": 0, "alternating": 0x5555555555555555, "nibbles": 0x0F0F0F0F0F0F0F0F}


class Memory:
    """Blocks of 64-bit words over the memory that was free. size: bytes of all blocks; held: (name, complement) of their pattern, or None."""

    def __init__(self, torch: Any, device: Any, block_bytes: int, most_bytes: int | None) -> None:
        self.torch, self.device = torch, device
        self.blocks: list[Any] = []
        self.held: tuple[str, bool] | None = None
        limit = most_bytes if most_bytes is not None else free_bytes(torch, device)
        try:
            while (len(self.blocks) + 1) * block_bytes <= limit:
                self.blocks.append(torch.empty(block_bytes // WORD_BYTES, dtype=torch.int64, device=device))
        except RuntimeError as problem:
            if "out of memory" not in str(problem):
                raise
        self.size = len(self.blocks) * block_bytes

    def fill(self, name: str, complement: bool) -> None:
        """Writes a pattern into all blocks."""
        for number, block in enumerate(self.blocks):
            for start, part in slices(block):
                part.copy_(words(self.torch, self.device, name, complement, number * block.numel() + start, part.numel()))
        self.held = (name, complement)

    def wrong_places(self) -> tuple[int, list[dict[str, Any]]]:
        """How many words differ from what was written, and the first of them."""
        counts = []
        for number, block in enumerate(self.blocks):
            for start, part in slices(block):
                counts.append((part != self.expected(number, start, part.numel())).sum())
        total = int(self.torch.stack(counts).sum()) if counts else 0
        return total, self.listed() if total else []

    def listed(self) -> list[dict[str, Any]]:
        """Reads the first wrong words again, one by one: a word that is right at the second reading was wrong on the way, not in the memory cell."""
        found: list[dict[str, Any]] = []
        for number, block in enumerate(self.blocks):
            for start, part in slices(block):
                wanted = self.expected(number, start, part.numel())
                for (place,) in (part != wanted).nonzero()[: MOST_PLACES - len(found)].tolist():
                    address = part.data_ptr() + place * WORD_BYTES
                    values = [int(one[place]) & 2**64 - 1 for one in (part, wanted)]
                    found.append(wrong_place(address, values[0], values[1], 64, "pattern %s%s" % (self.name, ", complement" if self.complement else "")))
        return found

    @property
    def name(self) -> str:
        """The pattern that the blocks hold."""
        return self.held[0] if self.held else ""

    @property
    def complement(self) -> bool:
        """Whether they hold its complement."""
        return bool(self.held and self.held[1])

    def expected(self, block: int, start: int, count: int) -> Any:
        """The expected content of a part of a block."""
        return words(self.torch, self.device, self.name, self.complement, block * self.blocks[0].numel() + start, count)

    def flip(self, place: int, bit: int) -> None:
        """For a drill: flips one bit of one word of the last block."""
        self.blocks[-1][place] ^= 1 << bit


def free_bytes(torch: Any, device: Any) -> int:
    """Bytes of this GPU's memory that may be used now."""
    free, total = torch.cuda.mem_get_info(device)
    return int(max(0, free - max(LEAST_FREE, KEPT_FREE * total)))


def slices(block: Any) -> list[tuple[int, Any]]:
    """(first word, part) for each part of a block."""
    return [(start, block[start : start + SLICE_WORDS]) for start in range(0, block.numel(), SLICE_WORDS)]


def words(torch: Any, device: Any, name: str, complement: bool, start: int, count: int) -> Any:
    """`count` words of a pattern from word `start` on."""
    if name in WORDS:
        return torch.full((1,), WORDS[name] ^ (-1 if complement else 0), dtype=torch.int64, device=device).expand(count)
    place = torch.arange(start, start + count, dtype=torch.int64, device=device)
    if name == "walking one":
        place = torch.ones_like(place) << (place % 63)
    elif name == "scrambled":
        place = (place ^ (place >> 29)) * -4658895280553007687
    return ~place if complement else place
