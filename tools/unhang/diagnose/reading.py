"""Any mix of files, folders, archives and standard input as blocks of lines, in bounded memory whatever the size.

A line longer than LONGEST_LINE is cut and the rest of it is passed over; carriage returns of progress bars part one line into several
that keep its number; colours and other terminal sequences are taken out; UTF-16 becomes UTF-8; what is binary is named and left alone.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from unhang.diagnose.wrappers import PLAIN, Wrapping, find_wrapping, joined, message_of
from unhang.errors import UserError
from unhang.given_files import PIPE_PATIENCE_S, PatientPipe

BLOCK = 1 << 20
LONGEST_LINE = 16 * 1024
MOST_FILES = 20_000
SNIFFED = 64 * 1024
MOST_NOTES = 20
MOST_BYTES = 16 << 30  # of one input, unpacked
LONGEST_READ_S = 300  # of one input
LARGEST_DUMP = 64 * 1024 * 1024  # a flight-recorder dump is a few MB; it is held in memory
_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_TERMINAL = re.compile(rb"\x1b(?:\[[0-9;:?<=>!]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_()][0-9A-Za-z]?)")
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Block:
    """Some lines of one file, each without its line end. numbers is None when they count on from `first`. wrapping: what stands around each line.

    text: the lines as one, where that is at hand.
    """

    first: int
    lines: list[bytes]
    numbers: list[int] | None = None
    wrapping: Wrapping = PLAIN
    text: bytes | None = None

    def whole(self) -> bytes:
        """The lines with line ends between them."""
        return b"\n".join(self.lines) if self.text is None else self.text

    def number(self, index: int) -> int:
        """The line number, from 1, of the line at `index`."""
        return self.first + index if self.numbers is None else self.numbers[index]

    def readings(self, index: int) -> tuple[bytes, ...]:
        """The line without what stands around it, with the indentation that all lines have, and as it stands: those of them that differ."""
        line = self.lines[index]
        if self.wrapping is PLAIN:
            return (line,)
        indented, bare = self.wrapping.bare(line)
        return tuple(dict.fromkeys((bare, indented, line)))


@dataclass
class Input:
    """One thing that was read. kind: log, dump, binary, empty. notes: what a person must know about its reading."""

    name: str
    kind: str = "log"
    lines: int = 0
    bytes: int = 0
    notes: list[str] = field(default_factory=list)
    most_bytes: int = MOST_BYTES
    wrapping: Wrapping = PLAIN
    began_s: float = field(default_factory=time.monotonic)


def find_inputs(names: Iterable[str]) -> Iterator[tuple[str, Path | None]]:
    """(name to show, path or None for standard input) of each file, folders searched. Raises UserError for a name that is not there."""
    seen = 0
    for name in names:
        if name == "-":
            yield "(stdin)", None
            continue
        path = Path(name)
        if not path.exists():
            raise UserError(f"expected a log, a folder of logs or -, found nothing at {name}")
        for one in _files_under(path):
            seen += 1
            if seen > MOST_FILES:
                raise UserError(f"{name}: holds more than {MOST_FILES} files; name those that matter")
            yield str(one), one


def _files_under(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        folders.sort()
        for file in sorted(files):
            one = Path(folder) / file
            if stat.S_ISREG(one.stat(follow_symlinks=False).st_mode):
                yield one


def open_input(path: Path | None, patience_s: float = PIPE_PATIENCE_S) -> IO[bytes]:
    """A stream of what the file holds, unpacked when it is an archive of one file. Raises OSError."""
    if path is None:
        return sys.stdin.buffer
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(f"{path} is a device, not a log")
    if stat.S_ISFIFO(mode):
        return PatientPipe(path, patience_s)  # type: ignore[return-value]
    raw = path.open("rb")
    head = raw.read(6)
    raw.seek(0)
    for magic, opener in _OPENERS.items():
        if head.startswith(magic):
            return opener(raw)
    return raw


def read_blocks(stream: IO[bytes], about: Input) -> Iterator[Block]:
    """The blocks of one log; fills `about` as it goes. A dump or a binary yields nothing: about.kind says so and `about.notes` why."""
    head = _read(stream, SNIFFED, about)
    about.kind = kind_of(head)
    if about.kind == "dump":
        return
    if about.kind == "binary":
        about.notes.append("is binary and was not read")
        return
    about.wrapping = _wrapping_of(head)
    rest, cut, line = b"", False, 1
    for more in _decoded(head, stream, about):
        data = rest + more
        end = data.rfind(b"\n") + 1
        if end:
            block = _block(data[:end], line, cut, about)
            cut = False
            line += data.count(b"\n", 0, end)
            rest = data[end:]
            yield block
        else:
            rest = data
        if len(rest) > LONGEST_LINE * 4:
            if not cut:
                yield _block(rest[:LONGEST_LINE] + b"\n", line, False, about)
                _note_once(about, f"line {line} is longer than {LONGEST_LINE} bytes and was cut")
            cut, rest = True, b""
    if rest and not cut:
        yield _block(rest + b"\n", line, False, about)
        line += 1
    elif cut:
        line += 1
    about.lines = line - 1


def _wrapping_of(head: bytes) -> Wrapping:
    if _encoding(head):
        return PLAIN
    lines = _TERMINAL.sub(b"", head).replace(b"\r\n", b"\n").split(b"\n")
    return find_wrapping([line.rpartition(b"\r")[2] for line in (lines if len(head) < SNIFFED else lines[:-1])])


def kind_of(head: bytes) -> str:
    """log, dump, binary or empty, judged by the first bytes."""
    if not head:
        return "empty"
    if head[0] == 0x80 and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "dump"
    if head.lstrip()[:1] == b"{" and b'"entries"' in head and (b'"pg_config"' in head or b'"collective_seq_id"' in head):
        return "dump"
    if _encoding(head):
        return "log"
    control = sum(head.count(bytes([code])) for code in (*range(1, 7), *range(14, 27), 28, 29, 30, 31))
    if head.count(0) > len(head) * 0.95:
        return "log"  # a crash may leave zeros before, between and behind the lines of a log
    return "binary" if (control + head.count(0)) * 20 > len(head) else "log"


def _encoding(head: bytes) -> str | None:
    """utf-16 with either order of bytes, told by its mark or by a zero in every other byte."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:2000]
    if len(sample) >= 16 and sample[1::2].count(0) * 10 > len(sample) * 4 and sample[::2].count(0) * 10 < len(sample):
        return "utf-16-le"
    if len(sample) >= 16 and sample[::2].count(0) * 10 > len(sample) * 4 and sample[1::2].count(0) * 10 < len(sample):
        return "utf-16-be"
    return None


def _decoded(head: bytes, stream: IO[bytes], about: Input) -> Iterator[bytes]:
    encoding = _encoding(head)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    if encoding:
        about.notes.append(f"was read as {encoding}")
    data = head.removeprefix(codecs.BOM_UTF8)
    while data:
        if decoder:
            data = decoder.decode(data).encode("utf-8", "replace")
        elif b"\0" in data:
            data = data.replace(b"\0", b"")
        if data:
            yield data
        data = _read(stream, BLOCK, about)


def _read(stream: IO[bytes], size: int, about: Input) -> bytes:
    """Some bytes, b"" at the end; an archive that breaks off ends there and says so, and so does what has no end."""
    if about.bytes >= about.most_bytes or time.monotonic() - about.began_s > LONGEST_READ_S:
        over = f"{about.bytes:,} bytes" if about.bytes >= about.most_bytes else f"{LONGEST_READ_S} s"
        _note_once(about, f"was read for {over} and no further; cut out the part that matters")
        return b""
    try:
        data = stream.read(size)
    except _BROKEN as problem:
        about.notes.append(f"broke off after {about.bytes} bytes: {problem}")
        return b""
    about.bytes += len(data)
    return data


def _note_once(about: Input, note: str) -> None:
    if len(about.notes) < MOST_NOTES and note not in about.notes:
        about.notes.append(note)


def _block(data: bytes, first: int, cut: bool, about: Input) -> Block:
    if cut:  # the end of a line that was cut before
        data = data[data.find(b"\n") :]
    if b"\x1b" in data:
        data = _TERMINAL.sub(b"", data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    lines = data.split(b"\n")
    lines.pop()
    if about.wrapping.is_json or about.wrapping.columns or (_may_hold_long_lines(data) and max(map(len, lines), default=0) > LONGEST_LINE):
        lines, numbers = _parted(lines, first, about)
        if about.wrapping.columns:
            lines, numbers = joined(lines, numbers, about.wrapping.columns)
    elif b"\r" in data:
        lines, numbers = _redrawn(lines, first)
    else:
        return Block(first, lines, None, about.wrapping, data[:-1])
    return Block(first, lines, numbers, about.wrapping)


def _may_hold_long_lines(data: bytes) -> bool:
    """Whether some stretch has no line end: a line that is too long covers a whole one, wherever it begins."""
    half = LONGEST_LINE // 2
    return any(data.find(b"\n", at, at + half) < 0 for at in range(0, len(data), half))


def _redrawn(lines: list[bytes], first: int) -> tuple[list[bytes], list[int]]:
    """The parts of lines of which some were drawn anew, with their numbers."""
    parted: list[bytes] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, first):
        if b"\r" in line:
            parts = [part for part in line.split(b"\r") if part] or [b""]
            parted += parts
            numbers += [number] * len(parts)
        else:
            parted.append(line)
            numbers.append(number)
    return parted, numbers


def _parted(lines: list[bytes], first: int, about: Input) -> tuple[list[bytes], list[int]]:
    """Lines of bounded length with their numbers: redrawn ones in their parts, and of JSON the message."""
    parted: list[bytes] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, first):
        message = message_of(line) if about.wrapping.is_json else None
        text = line if message is None else _TERMINAL.sub(b"", message).replace(b"\n", b"\r")
        parts = [part for part in text.split(b"\r") if part] or [b""]
        if any(len(part) > LONGEST_LINE for part in parts):
            _note_once(about, f"line {number} is longer than {LONGEST_LINE} bytes and was cut")
        parted += [part[:LONGEST_LINE] for part in parts]
        numbers += [number] * len(parts)
    return parted, numbers
