"""Unpacks .gz, .bz2 and .xz in small pieces, from files and pipes: of an archive that was cut short
or is damaged, all that comes before the fault is read."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol

PIECE = 8 * 1024  # packed bytes that are read at a time
STEP = 1024  # bytes that are unpacked at a time: a damaged archive loses less than these
BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)
_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
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

    def __init__(self, raw: Stream, new: Callable[[], Any]) -> None:
        self._raw, self._steps = raw, _steps(raw, new)
        self._rest = b""
        self._problem: Exception | None = None

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end or before a fault."""
        steps, length = [self._rest], len(self._rest)
        try:
            while (
                length < size
                and self._problem is None
                and (step := next(self._steps, None)) is not None
            ):
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
    new = next((new for magic, new in _UNPACKERS.items() if head.startswith(magic)), None)
    return stream if new is None else Unpacked(stream, new)


def _steps(raw: Stream, new: Callable[[], Any]) -> Iterator[bytes]:
    """The content of all members, one after another; zeros behind a member are padding. Raises one
    of BROKEN."""
    member, packed = new(), b""
    while True:
        step = member.decompress(packed, STEP)
        yield step
        packed = getattr(member, "unconsumed_tail", b"")  # zlib's; the others keep it themselves
        if member.eof:
            packed = member.unused_data.lstrip(b"\0")
            while not packed and (more := raw.read(PIECE)):
                packed = more.lstrip(b"\0")
            if not packed:
                return
            member = new()
        elif not packed and not step and not (packed := raw.read(PIECE)):
            raise EOFError("the archive ends before its end mark")
