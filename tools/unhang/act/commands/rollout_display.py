"""Shows a rollout while it runs, from its journal: plain lines, or on a terminal one screen that is
updated in place."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from unhang.act.plan.plan_document import Plan
from unhang.act.rollout.journal import JournalReader
from unhang.act.rollout.progress import Progress
from unhang.act.rollout.steps import Entry
from unhang.core.commands.in_place import Screen
from unhang.core.errors import UserError
from unhang.core.run.run_folder import utc_now

LOOK_EVERY_S = 1.0


@contextlib.contextmanager
def following(folder: Path, plan: Plan, target: TextIO) -> Iterator[Callable[[str], None]]:
    """Shows the journal's entries from now on; returns a function that writes other lines without
    breaking the screen."""
    display = _Display(folder, Progress(plan), target)
    over = threading.Event()

    def follow() -> None:
        while not over.wait(LOOK_EVERY_S):
            display.look()

    thread = threading.Thread(target=follow, name="journal", daemon=True)
    thread.start()
    try:
        yield display.note
    finally:
        over.set()
        thread.join()
        display.look()
        display.close()


class _Display:
    """The journal's entries so far, and the current screen."""

    def __init__(self, folder: Path, progress: Progress, target: TextIO) -> None:
        self.journal, self.progress = JournalReader(folder), progress
        self.lock = threading.Lock()
        self.place = Screen(target)
        self.fault = ""
        self.on_screen = target.isatty() and os.environ.get("TERM") != "dumb"
        for _ in self.progress.feed(self._new_entries()):
            pass  # --status shows what earlier controllers did
        self.begun = False

    def look(self) -> None:
        with self.lock:
            lines = list(self.progress.feed(self._new_entries()))
            self.begun = self.begun or bool(lines)
            if not self.on_screen:
                self._write([f"unhang: {line}" for line in lines])
            elif self.begun:
                columns = max(20, shutil.get_terminal_size().columns - 1)
                self.place.draw([line[:columns] for line in self.progress.screen(utc_now())])

    def note(self, line: str) -> None:
        with self.lock:
            self._write([line])

    def close(self) -> None:
        """Removes the screen; the outcome of all nodes is printed next."""
        with self.lock:
            self.place.clear()
            self._write([f"unhang: {self.fault}"] if self.fault else [])

    def _new_entries(self) -> list[Entry]:
        """Reports an unreadable journal once, at the end."""
        try:
            return self.journal.news()
        except (OSError, UserError) as problem:
            self.fault = f"the journal could not be followed: {problem}"
            return []

    def _write(self, lines: list[str]) -> None:
        if lines:
            self.place.write("".join(f"{line}\n" for line in lines))
            self.place.flush()
