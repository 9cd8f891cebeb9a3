"""How much all inputs of a command may be together. Each has limits of its own too; a folder with
many would still take days."""

from __future__ import annotations

import contextlib
import select
import time
from dataclasses import dataclass, field
from typing import IO

NOT_READ = "was not read whole"


@dataclass
class Together:
    """most_bytes, most_s: of all inputs; bytes: read until now; began_s: monotonic."""

    most_bytes: int
    most_s: float
    bytes: int = 0
    began_s: float = field(default_factory=time.monotonic)

    @property
    def left_bytes(self) -> int:
        """What may still be read."""
        return max(self.most_bytes - self.bytes, 0)

    @property
    def left_s(self) -> float:
        """How long may still be read; negative afterwards."""
        return self.began_s + self.most_s - time.monotonic()

    def reached(self) -> str:
        """Why the next input is not read; "" while there is room."""
        if not self.left_bytes:
            return (
                f"{NOT_READ}: {self.most_bytes:,} bytes were read of all inputs together, and no"
                " more are"
            )
        if self.left_s <= 0:
            return (
                f"{NOT_READ}: all inputs together were read for {self.most_s:,.0f} s, and no"
                " longer are"
            )
        return ""


class CountedStream:
    """A stream of bytes that ends where the limits of all inputs are reached, also while nothing
    comes; `ended_early` then says which. stream: of a pipe the raw one, because what a buffer holds
    does not show in its descriptor."""

    def __init__(self, stream: IO[bytes], together: Together) -> None:
        self._stream, self._together = stream, together
        self.ended_early = ""

    def read(self, size: int) -> bytes:
        """At most `size` bytes, b"" at the end."""
        self._wait()
        self.ended_early = self._together.reached()
        data = (
            b""
            if self.ended_early
            else self._stream.read(min(size, self._together.left_bytes)) or b""
        )
        self._together.bytes += len(data)
        return data

    def _wait(self) -> None:
        # of a stream without a descriptor everything has come
        with contextlib.suppress(OSError, ValueError, AttributeError):
            select.select([self._stream.fileno()], [], [], max(self._together.left_s, 0.0))
