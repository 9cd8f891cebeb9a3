"""The journal of a rollout, `journal.jsonl` in the run folder. Append only; each entry is on disk
before its step starts; one controller at a time.

`journal.lock` beside it is locked for each append and contains the number of the controller that
may write: an earlier controller that still runs is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unhang.act.plan.plan_document import JOURNAL, LOCK
from unhang.act.rollout.journal_text import (
    LONGEST_LINE_BYTES,
    NEXT,
    JournalParser,
    JournalText,
    last_epoch,
    parse_journal,
    render_entry,
)
from unhang.act.rollout.steps import BEGUN, ROLLOUT, Entry
from unhang.core.errors import UserError
from unhang.core.run.private_file import open_private, read_regular

MOST_BYTES = 512 * 1024 * 1024  # of a journal; 10,000 nodes write less than a tenth
GUARD_BYTES, SHORT_LINE_BYTES, MOST_LOCK_BYTES = 256, 4096, 4096


class Superseded(UserError):
    """Another controller has taken over this rollout; this one may neither write nor act."""


def read_journal(run: Path) -> JournalText:
    """All entries of a journal; none if there is no journal yet. Raises UserError, OSError."""
    try:
        return parse_journal(read_regular(run / JOURNAL, MOST_BYTES))
    except FileNotFoundError:
        return JournalText(())


class JournalReader:
    """Follows a journal from its beginning: each call returns the entries since the last call."""

    def __init__(self, run: Path) -> None:
        self.path = run / JOURNAL
        self._parser = JournalParser()
        self._last = b""  # digest of the bytes that were read, to check that they have not changed

    @property
    def read_bytes(self) -> int:
        return self._parser.taken_bytes

    def news(self) -> list[Entry]:
        """New entries in their order; [] if there is no journal yet. Raises OSError, UserError;
        UserError also if entries that were already read have changed."""
        try:
            content = read_regular(
                self.path, MOST_BYTES, self._parser.taken_bytes - len(self._last)
            )
        except FileNotFoundError:
            content = b""
        if not content.startswith(self._last):
            raise UserError(
                f"{self.path} has changed since it was read, and nothing more is done: {NEXT}"
            )
        content, before = content[len(self._last) :], self._parser.taken_bytes
        try:
            return self._parser.feed(content)
        finally:
            self._last = (self._last + content[: self._parser.taken_bytes - before])[-GUARD_BYTES:]


def controllers_of_a_lost_journal(run: Path) -> int:
    """How many controllers have written a journal that is gone or empty, by journal.lock beside it;
    0 if none is lost. Raises UserError, OSError."""
    try:
        if (run / JOURNAL).lstat().st_size:
            return 0
    except FileNotFoundError:
        pass
    try:
        text = read_regular(run / LOCK, MOST_LOCK_BYTES)[:64].strip()
    except FileNotFoundError:
        return 0
    return int(text) if text.isdigit() else 0


def begin(run: Path, at: str, evidence: Mapping[str, Any]) -> int:
    """The number of this controller, which becomes the only one that may write. at: RFC 3339, UTC;
    evidence: its identity. Raises UserError, OSError."""
    lost = controllers_of_a_lost_journal(run)
    with _locked(run) as lock:
        epoch = max(_number(lock), last_epoch(read_journal(run).entries)) + 1
        os.pwrite(lock, f"{epoch:<20}\n".encode(), 0)
        os.fsync(lock)
        _append(
            run,
            Entry(at, "", ROLLOUT, BEGUN, epoch, {**evidence, **({"lost": lost} if lost else {})}),
        )
    return epoch


def append(run: Path, epoch: int, entry: Entry) -> None:
    """Writes one entry and waits until it is on the disk. Raises Superseded, UserError, OSError,
    ValueError."""
    with _locked(run) as lock:
        newest = _number(lock)
        if newest != epoch:
            raise Superseded(
                f"controller {newest} is the newest of the rollout in {run}, not {epoch}; this one"
                " has stopped, and that one continues"
            )
        _append(run, entry)


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[int]:
    handle = open_private(run / LOCK, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _number(lock: int) -> int:
    text = os.pread(lock, 64, 0).strip()
    return int(text) if text.isdigit() else 0


def _append(run: Path, entry: Entry) -> None:
    existed = (run / JOURNAL).exists()
    handle = open_private(run / JOURNAL, os.O_RDWR | os.O_APPEND)
    try:
        content = render_entry(entry, _last_line(handle))
        while content:
            content = content[os.write(handle, content) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    if not existed:
        _sync_folder(run)


def _last_line(handle: int) -> bytes:
    """The last line, with its line end if there is one. Of a line that is longer than any entry
    only the last part, which is no valid JSON either."""
    size = os.fstat(handle).st_size
    for most in (SHORT_LINE_BYTES, LONGEST_LINE_BYTES + 1):
        length = min(size, most)
        tail = os.pread(handle, length, size - length)
        start = tail.rfind(b"\n", 0, len(tail) - 1) + 1
        if start or length == size:
            break
    return tail[start:] if tail else b"\n"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
