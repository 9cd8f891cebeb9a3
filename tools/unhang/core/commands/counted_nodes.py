"""What a person at a terminal sees while nodes are read: a bar, counts, and the nodes that are
waited for. It is read from the run's folder, so every way to read nodes has it."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from unhang.core.commands.in_place import Screen
from unhang.core.errors import UserError
from unhang.core.run.documents import READ
from unhang.core.run.run_folder import file_stem, read_run
from unhang.core.text import counted, visible

LOOK_EVERY_S = 0.5
NAMED = 3
BAR = 24  # columns
STATUS = re.compile(r'"status": ?"(\w{1,20})"')
HEAD_CHARS = 16_384  # groups and policy of the inventory come before the status


@contextlib.contextmanager
def counting(folder: Path) -> Iterator[None]:
    """Shows how far the run in this folder is, until the end of the block; nothing where nobody
    looks. What is written to standard error meanwhile appears above it."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb":
        yield
        return
    before, over = sys.stderr, threading.Event()
    screen, nodes = _Shared(before), CountedNodes(folder)

    def follow() -> None:
        while True:
            screen.draw(nodes.lines(shutil.get_terminal_size().columns - 1))
            if over.wait(LOOK_EVERY_S):
                return

    thread = threading.Thread(target=follow, name="counted nodes", daemon=True)
    thread.start()
    sys.stderr = screen
    try:
        yield
    finally:
        over.set()
        thread.join()
        sys.stderr = before
        screen.draw(nodes.lines(shutil.get_terminal_size().columns - 1)[:1])


class _Shared(Screen):
    """A screen that two threads write to."""

    def __init__(self, target: object) -> None:
        super().__init__(target)
        self.lock = threading.RLock()

    def draw(self, lines: list[str]) -> None:  # type: ignore[override]  # what it is given here
        with self.lock:
            super().draw(lines)

    def write(self, text: str) -> int:
        with self.lock:
            return super().write(text)


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=int(seconds)))


class CountedNodes:
    """hosts: in the order in which they are asked; {} before the run knows them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: dict[str, str] = {}  # file: host
        self.statuses: dict[str, str] = {}
        self.earlier = dict(self._files())  # of a run that is gone on with
        self.began = time.monotonic()

    def lines(self, width: int) -> list[str]:
        """One line with the bar, and one with the nodes that are waited for longest, if any."""
        self._look()
        found = Counter(self.statuses.values())
        lost = found["unreachable"]
        failed = sum(found.values()) - lost - sum(found[one] for one in READ)
        took_s = time.monotonic() - self.began
        text = f"the nodes are listed {_clock(took_s)}"
        if self.hosts:
            done, all_of_them = len(self.statuses), len(self.hosts)
            left = f", {_clock(took_s * (all_of_them / done - 1))} left" if done else ""
            read = f"{done} of {counted(all_of_them, 'node')} "
            rest = f"{failed} failed, {lost} unreachable {_clock(took_s)}{left}"
            bar = min(BAR, width - len(read + rest) - 3)
            drawn = f"[{'#' * (bar * done // all_of_them):-<{bar}}] " if bar > 0 else ""
            text = f"{read}{drawn}{rest}"
        shown = [text[:width]]
        waited = [host for file, host in self.hosts.items() if file not in self.statuses]
        if waited and self.statuses:
            names = ", ".join(visible(host, 60) for host in waited[:NAMED])
            more = f" and {len(waited) - NAMED} more" if len(waited) > NAMED else ""
            shown.append(f"waited for: {names}{more}"[:width])
        return shown

    def _look(self) -> None:
        """Reads each node's file once: the head, because a run may have thousands."""
        if not self.hosts:
            with contextlib.suppress(OSError, UserError):  # not written yet
                self.hosts = {file_stem(one) + ".json": one for one in read_run(self.folder).hosts}
        for file, written in self._files():
            if file in self.hosts and file not in self.statuses:
                with contextlib.suppress(OSError):
                    status = self._status(file)
                    if status in READ or self.earlier.get(file) != written:
                        self.statuses[file] = status

    def _files(self) -> Iterator[tuple[str, int]]:
        """(name, time of its last change in ns) of each node's file."""
        with contextlib.suppress(OSError), os.scandir(self.folder / "nodes") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield entry.name, entry.stat().st_mtime_ns

    def _status(self, file: str) -> str:
        with (self.folder / "nodes" / file).open(encoding="utf-8", errors="replace") as opened:
            found = STATUS.search(opened.read(HEAD_CHARS))
        return found[1] if found else "failed"
