"""The shared page of memory in which each rank records its current step for its agent."""

from __future__ import annotations

import mmap
import struct
import time
from typing import Any


class Board:
    """A page of memory that a rank shares with its agent through a file: it can be read when the
    rank is stopped, hung or dead.

    Numbers: collectives entered and finished, when the step began, the step's deadline, the phase's
    deadline (CLOCK_MONOTONIC, s).
    """

    NUMBERS = struct.Struct("<qqddd")
    ASKED, ANSWERED, TEXT, SIZE = 48, 49, 64, 1024

    def __init__(self, path: str, create: bool = False) -> None:
        if create:
            with open(path, "wb") as fresh:
                fresh.write(b"\0" * self.SIZE)
        with open(path, "r+b") as shared:
            self.memory = mmap.mmap(shared.fileno(), self.SIZE)
        self.entered = self.done = 0
        self.phase, self.phase_until = "", 0.0

    def begin(self, phase: str, step: str, step_s: float, phase_until: float) -> None:
        """Records a step before it starts."""
        text = ("%s\n%s" % (phase, step)).encode()[: self.SIZE - self.TEXT - 1]
        self.memory[self.TEXT : self.TEXT + len(text) + 1] = text + b"\0"
        now = time.monotonic()
        self.NUMBERS.pack_into(
            self.memory, 0, self.entered, self.done, now, now + step_s, phase_until
        )

    def enter(self) -> None:
        """Records that this rank is about to enter its next collective."""
        self.entered += 1
        struct.pack_into("<q", self.memory, 0, self.entered)

    def leave(self) -> None:
        """Records that the collective has finished, on the device too."""
        self.done = self.entered
        struct.pack_into("<q", self.memory, 8, self.done)

    def read(self) -> dict[str, Any]:
        """The recorded values: phase, step, seq (entered), done, began, until, phase_until."""
        entered, done, began, until, phase_until = self.NUMBERS.unpack_from(self.memory, 0)
        text = bytes(self.memory[self.TEXT :]).split(b"\0", 1)[0].decode("utf-8", "replace")
        phase, _, step = text.partition("\n")
        return {
            "phase": phase,
            "step": step,
            "seq": entered,
            "done": done,
            "began": began,
            "until": until,
            "phase_until": phase_until,
        }

    def flag(self, place: int, value: int | None = None) -> int:
        """Reads or sets one of the two flags (ASKED: the agent wants a dump; ANSWERED: it is
        written)."""
        if value is not None:
            self.memory[place] = value
        return self.memory[place]
