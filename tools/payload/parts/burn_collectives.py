"""Collectives between the products: sums over all GPUs with exactly known results, and decisions that all ranks must share."""

from __future__ import annotations

import datetime
from typing import Any

from .burn_products import wrong_place
from .pattern import pattern

BUFFERS = 8
BOUND = 100  # whole numbers; their sums over all GPUs, weighted by rank, stay far below 2^24 and are therefore exact in float32 in any order
MOST_WRONG = 8


class Collectives:
    """The process group of all workers, with this rank's data and the expected sums."""

    def __init__(self, torch: Any, device: Any, place: tuple[int, int], meeting: str, count: int) -> None:
        self.torch, self.device, (self.rank, self.world) = torch, device, place
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        self.count = count
        if self.world == 1:
            return
        limit = datetime.timedelta(seconds=300)
        torch.distributed.init_process_group(self.backend, init_method=meeting, rank=self.rank, world_size=self.world, timeout=limit)
        base = pattern(torch, device, count, 0, 3, BOUND, torch.float32)
        self.own = base * (self.rank + 1)
        self.expected = base * (self.world * (self.world + 1) // 2)
        self.buffers = [torch.empty_like(base) for _ in range(BUFFERS)]
        self.agree(False)

    def agree(self, end: bool) -> bool:
        """Whether any of the workers is to end."""
        if self.world == 1:
            return end
        flag = self.torch.full((1,), int(end), dtype=self.torch.int32, device=self.device)
        self.torch.distributed.all_reduce(flag, op=self.torch.distributed.ReduceOp.MAX)
        return bool(int(flag))

    def sum_up(self) -> None:
        """Fills all buffers with sums over the GPUs."""
        for buffer in self.buffers:
            buffer.copy_(self.own)
            self.torch.distributed.all_reduce(buffer)

    def flip(self, place: int, bit: int) -> None:
        """For a drill: flips one bit of one element of the last sum."""
        self.buffers[-1].view(self.torch.int32)[place] ^= 1 << bit

    def wrong_places(self) -> tuple[int, list[dict[str, Any]]]:
        """How many elements of the sums differ from the expected value, and the first of them."""
        bits = self.torch.int32
        total = 0
        listed: list[dict[str, Any]] = []
        counts = self.torch.stack([(buffer.view(bits) != self.expected.view(bits)).sum() for buffer in self.buffers]).tolist()
        for buffer, count in zip(self.buffers, counts):
            total += count
            if count:
                wrong = (buffer.view(bits) != self.expected.view(bits)).nonzero()[: MOST_WRONG - len(listed)]
                for (place,) in wrong.tolist():
                    values = [int(one.view(bits)[place]) & 2**32 - 1 for one in (buffer, self.expected)]
                    listed.append(wrong_place(buffer.data_ptr() + 4 * place, values[0], values[1], 32, "element %d" % place))
        return total, listed
