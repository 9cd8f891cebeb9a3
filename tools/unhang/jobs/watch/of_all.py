"""The samples of all jobs of this machine as they come, from a process of its own; and a look at
one of them, in another."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unhang.core.errors import UserError
from unhang.core.text import counted, visible
from unhang.jobs.inspect.here import LookHere, node_program
from unhang.jobs.watch.live import SILENT_S, raw_lines, sampler
from unhang.jobs.watch.when_to_look import Turn, Turns

LOOK_S = 60.0
AGAIN_S = 10.0  # until a sampler that failed is started again
MOST_SKIPPED = 256
OF_A_PROCESS = re.compile(r"/proc/([0-9]{1,10})/")


def moments(every_s: float, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The lines of all_samples.py, without end. A sampler that falls silent is replaced by one that
    skips what did not answer: a process whose memory map is locked, or the driver."""
    skipped: list[int] = []
    more: list[str] = []
    known: set[str] = set()
    origin = time.monotonic()
    while True:
        numbers = ",".join(map(str, skipped[-MOST_SKIPPED:]))
        with os.fdopen(os.memfd_create("unhang-watch")) as file:
            marks = file.fileno()  # into which it writes what it does next
            given = [str(every_s), str(origin), str(marks), numbers, *more]
            argv = [*node_program("all_samples"), *given]
            with sampler(argv, [marks]) as child:
                lost = set(known)
                for line in raw_lines(child, SILENT_S + every_s):
                    moment = json.loads(line)
                    came = {one["job"] for one in moment["came"]}
                    moment["ended"] += sorted(lost - came)  # while there was no sampler
                    known, lost = known - {*moment["ended"]} | came, set()
                    yield moment
                stood = child.poll() is None
                call = (
                    os.pread(marks, os.fstat(marks).st_size, 0).decode("utf-8", "replace").strip()
                )
        process = OF_A_PROCESS.search(call)
        if not stood:
            say(f"the sampler ended with {child.returncode}; it is started again")
            time.sleep(AGAIN_S)
        elif process:
            skipped.append(int(process.group(1)))
            say(f"process {skipped[-1]} is left out: {visible(call, 200)} did not return")
        else:
            more = ["no-driver"]
            say(f"the sampler goes on without the driver: {visible(call, 200)} did not return")


class Looking:
    """Looks, one after another however many jobs hang: a node that trains pays for one at a
    time. close() ends the one under way."""

    def __init__(self) -> None:
        self.here = LookHere()
        self.is_over = False
        self._turns = Turns()
        self._waiting: list[Turn] = []
        self._changed = threading.Condition()
        self._is_free = True

    def look(
        self, turn: Turn, arguments: Sequence[str], say: Callable[[str], object]
    ) -> list[dict[str, Any]]:
        """The evidence of a look with these arguments of unhang-inspect, when it is its turn. say:
        takes that it waits. Raises UserError."""
        turn.asked = time.monotonic()
        with self._changed:
            ahead = len(self._waiting) + (not self._is_free)
            self._waiting.append(turn)
        if ahead:
            say(f"its look waits for its turn; {counted(ahead, 'look')} asked for before it")
        with self._changed:
            while not (
                self.is_over
                or (self._is_free and min(self._waiting, key=self._turns.place) is turn)
            ):
                self._changed.wait()
            self._waiting.remove(turn)
            self._is_free = False
        began = time.monotonic()
        try:
            if self.is_over:
                raise UserError("the watch is over")
            return [self.here.evidence(arguments, LOOK_S)]
        finally:
            with self._changed:
                self._turns.takes(turn, began, time.monotonic())
                self._is_free = True
                self._changed.notify_all()

    def close(self) -> None:
        """No look begins any more."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
        self.here.end()
