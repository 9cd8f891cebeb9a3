"""Unpacks .gz, .bz2 and .xz in small pieces, from files and pipes: of an archive that was cut short
or is damaged, all that comes before the fault is read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any, Protocol

STEP = io.DEFAULT_BUFFER_SIZE  # unpacked at a time: a damaged archive loses less than these
BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)
_OPENED_BY: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


class Stream(Protocol):
    """What readers of logs need of a stream."""

    def read(self, size: int, /) -> bytes:
        """So many bytes, fewer only at the end."""
        ...

    def close(self) -> None:
        """Closes what it reads from."""
        ...


class Unpacked:
    """A stream of an archive's content. Reading raises one of BROKEN after everything that can be
    unpacked was given."""

    def __init__(self, raw: Stream, opened: Any) -> None:
        self._raw, self._opened = raw, opened
        self._rest = b""
        self._problem: Exception | None = None

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end or before a fault."""
        steps, length = [self._rest], len(self._rest)
        try:
            while length < size and self._problem is None and (step := self._opened.read1(STEP)):
                steps.append(step)
                length += len(step)
        except BROKEN as problem:
            self._problem = problem
        data = b"".join(steps)
        self._rest = data[size:]
        if self._problem and not data:
            raise self._problem
        return data[:size]

    def close(self) -> None:
        """Closes the archive's file."""
        self._raw.close()


def unpacked(raw: IO[bytes]) -> Stream:
    """The stream itself, or its content if it is an archive, by its first bytes. It need not be
    seekable."""
    stream = raw if isinstance(raw, io.BufferedReader) else io.BytesIO(raw.read())
    head = stream.peek(1) if isinstance(stream, io.BufferedReader) else stream.getvalue()
    by = next((by for magic, by in _OPENED_BY.items() if head.startswith(magic)), None)
    return stream if by is None else Unpacked(stream, by(stream))
