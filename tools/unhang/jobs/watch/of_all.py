"""The samples of all jobs of this machine as they come, from a process of its own; and a look at
one of them, in another."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unhang.core.errors import UserError
from unhang.core.text import counted, visible
from unhang.jobs.inspect.ways import end_of
from unhang.jobs.watch.live import MODULES, SILENT_S, raw_lines, sampler
from unhang.jobs.watch.when_to_look import Turn, Turns
from unhang_node.job.all_samples import MARK_BYTES

START, LOOK = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from unhang_node.job.{} import main;"
    " sys.exit(main({}))".format(*words)
    for words in (("all_samples", ""), ("command", "sys.argv[1:]"))
)
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
            argv = [sys.executable, "-P", "-c", START, MODULES, *given]
            with sampler(argv, [marks]) as child:
                lost = set(known)
                for line in raw_lines(child, SILENT_S + every_s):
                    moment = json.loads(line)
                    came = {one["job"] for one in moment["came"]}
                    moment["ended"] += sorted(lost - came)  # while there was no sampler
                    known, lost = known - {*moment["ended"]} | came, set()
                    yield moment
                stood = child.poll() is None
                call = os.pread(marks, MARK_BYTES, 0).decode("utf-8", "replace").strip()
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
    """Looks, one after another however many jobs stand: a node that trains pays for one at a
    time. close() ends the one under way."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
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
            while not (self.is_over or (self._is_free and self._next() is turn)):
                self._changed.wait()
            self._waiting.remove(turn)
            self._is_free = False
        began = time.monotonic()
        try:
            return self._evidence(arguments)
        finally:
            with self._changed:
                self._turns.takes(turn, began, time.monotonic())
                self._is_free = True
                self._changed.notify_all()

    def _next(self) -> Turn:
        return min(self._waiting, key=self._turns.place)

    def _evidence(self, arguments: Sequence[str]) -> list[dict[str, Any]]:
        if self.is_over:
            raise UserError("the watch is over")
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-c", LOOK, MODULES, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            printed, problem = self.child.communicate(timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            raise UserError(f"it did not end within {LOOK_S:g} s") from None
        finally:
            self._end()
        if self.child.returncode:
            raise UserError(end_of(problem, 300) or f"it ended with {self.child.returncode}")
        return [json.loads(printed)]

    def close(self) -> None:
        """No look begins any more."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
        self._end()

    def _end(self) -> None:
        """With py-spy, which a look starts; its group is gone where it has ended by itself."""
        if self.child is not None and self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
