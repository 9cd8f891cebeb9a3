"""Reads any mix of files, folders, archives and standard input as blocks of lines, in bounded
memory.

A line longer than LONGEST_LINE is cut and its rest is skipped; carriage returns of progress bars
split a line into several with the same number; colours and other terminal sequences are removed;
UTF-16 becomes UTF-8; a binary file is reported and not read.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from unhang.core.errors import UserError
from unhang.core.path_arguments import PIPE_PATIENCE_S, PatientPipe
from unhang.core.text import counted
from unhang.core.together import NOT_READ
from unhang.jobs.diagnose.logs.archives import BROKEN, Stream, unpacked
from unhang.jobs.diagnose.logs.documents import may_be_document, messages_in
from unhang.jobs.diagnose.logs.flight_dumps import LARGEST_DUMP
from unhang.jobs.diagnose.logs.wrappers import PLAIN, Wrapping, find_wrapping, joined, message_of

BLOCK = 1 << 20
LONGEST_LINE = 16 * 1024
MOST_FILES = 20_000
SNIFFED = 64 * 1024
MOST_NOTES = 20
NOT_OPENED = ("unread", "binary")
MOST_BYTES = 16 << 30  # of one input, unpacked
LONGEST_READ_S = 300  # of one input
_TERMINAL = re.compile(
    rb"\x1b(?:\[[0-9;:?<=>!]{0,32}["
    rb" -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_()][0-9A-Za-z]?)"
)
# What pages put between words instead of blanks, in UTF-8: no-break spaces, and spaces without
# width.
_BLANKS = ((b"\xc2\xa0", b" "), (b"\xe2\x80\xaf", b" "), (b"\xe2\x80\x8b", b""))


@dataclass(frozen=True)
class Block:
    """Some lines of one file, without line ends. numbers: None if they count up from `first`.
    wrapping: the wrapper of each line. text: the lines as one text, if available."""

    first: int
    lines: list[bytes]
    numbers: list[int] | None = None
    wrapping: Wrapping = PLAIN
    text: bytes | None = None

    def whole(self) -> bytes:
        """The lines joined by line ends."""
        return b"\n".join(self.lines) if self.text is None else self.text

    def number(self, index: int) -> int:
        """The line number, from 1, of the line at `index`."""
        return self.first + index if self.numbers is None else self.numbers[index]

    def readings(self, index: int) -> tuple[bytes, ...]:
        """The different forms of a line: without its wrapper, with the common indentation, and
        unchanged."""
        line = self.lines[index]
        if self.wrapping is PLAIN:
            return (line,)
        indented, bare = self.wrapping.bare(line)
        return tuple(dict.fromkeys((bare, indented, line)))


@dataclass
class Input:
    """One input. kind: log, dump, binary, empty, unread, job. notes: for a person, about its
    reading."""

    name: str
    kind: str = "log"
    lines: int = 0
    bytes: int = 0
    notes: list[str] = field(default_factory=list)
    most_bytes: int = MOST_BYTES
    wrapping: Wrapping = PLAIN
    began_s: float = field(default_factory=time.monotonic)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it was left out; what is empty is whole."""
        return self.kind not in NOT_OPENED and not any(
            note.startswith(NOT_READ) for note in self.notes
        )


def find_inputs(names: Iterable[str]) -> Iterator[tuple[str, Path | None]]:
    """(name to show, path or None for standard input) of each file, also those in folders. Raises
    UserError for a missing name."""
    seen = 0
    for name in names:
        if name == "-":
            yield "(stdin)", None
            continue
        path = Path(name)
        if not path.exists():
            raise UserError(f"there is no log and no folder of logs at {name}{_log_of_job(name)}")
        if (path / "run.json").is_file() and (path / "nodes").is_dir():
            raise UserError(
                f"{name} is a run folder of unhang, not a folder of logs; what it found is evidence"
                f" beside a log: unhang diagnose LOG --run {name}"
            )
        for one in _files_under(path):
            seen += 1
            if seen > MOST_FILES:
                raise UserError(
                    f"{name}: holds more than {MOST_FILES} files; name those that matter"
                )
            yield str(one), one


def _log_of_job(name: str) -> str:
    """A hint where Slurm writes the log of a job, if the name is a job's number."""
    if not (name.isascii() and name.isdigit()):
        return ""
    return (
        f"; Slurm names the log of job {name} while it knows the job: scontrol show job {name}"
        f" (StdOut); by default slurm-{name}.out where it was submitted"
    )


def _by_number(name: str) -> list[str]:
    """Puts look10 behind look9, whose order is that of their times."""
    return [part.zfill(20) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _files_under(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        folders.sort(key=_by_number)
        for file in sorted(files, key=_by_number):
            one = Path(folder) / file
            if stat.S_ISREG(one.stat(follow_symlinks=False).st_mode):
                yield one


def open_input(path: Path | None, patience_s: float = PIPE_PATIENCE_S) -> Stream:
    """A stream of the file's content, unpacked if it is an archive of one file. Raises OSError."""
    if path is None:
        return unpacked(sys.stdin.buffer)
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError("is a device, not a log")
    if stat.S_ISFIFO(mode):
        return PatientPipe(path, patience_s)
    return unpacked(path.open("rb"))


def read_blocks(stream: Stream, about: Input) -> Iterator[Block]:
    """The blocks of one log; fills `about` as it goes. A dump or a binary file yields nothing: see
    about.kind, and about.notes for the reason."""
    head = _read(stream, SNIFFED, about)
    about.kind = kind_of(head)
    if about.kind == "dump":
        return
    if about.kind == "binary":
        about.notes.append(_why_not_read(head))
        return
    about.wrapping = _wrapping_of(head)
    if not about.wrapping.is_json and may_be_document(head):
        head += _read(stream, LARGEST_DUMP - len(head), about)
        if len(head) < LARGEST_DUMP and (found := messages_in(head.decode("utf-8", "replace"))):
            yield _of_document(found, about)
            about.lines = head.count(b"\n")
            return
    head += _read(stream, max(BLOCK - len(head), 0), about)  # the output of a tool is one block
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


def _of_document(found: list[tuple[int, str]], about: Input) -> Block:
    """The messages of a document as lines, each with the number of its line there."""
    lines = [_plain(line.encode("utf-8", "replace"))[:LONGEST_LINE] for _, line in found]
    about.wrapping = find_wrapping(lines)
    return Block(found[0][0], lines, [number for number, _ in found], about.wrapping)


def _wrapping_of(head: bytes) -> Wrapping:
    if _is_utf_16(head):
        return PLAIN
    lines = _plain(head).replace(b"\r\n", b"\n").split(b"\n")
    return find_wrapping(
        [line.rpartition(b"\r")[2] for line in (lines if len(head) < SNIFFED else lines[:-1])]
    )


def kind_of(head: bytes) -> str:
    """log, dump, binary or empty, by the first bytes."""
    if not head:
        return "empty"
    if head[0] == 0x80 and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "dump"
    if (
        head.lstrip()[:1] in (b"{", b"[")
        and (b'"entries"' in head or b'"pg_status"' in head)
        and (b'"pg_config"' in head or b'"collective_seq_id"' in head)
    ):
        return "dump"
    if _is_utf_16(head):
        return "log"
    control = sum(
        head.count(bytes([code])) for code in (*range(1, 7), *range(14, 27), 28, 29, 30, 31)
    )
    if head.count(0) > len(head) * 0.95:
        return "log"  # after a crash a log may have zeros before, between and after its lines
    return "binary" if (control + head.count(0)) * 20 > len(head) else "log"


def _why_not_read(head: bytes) -> str:
    """The kind of a binary file, and how to read it, if its first bytes show that. head: unpacked
    if the file is .gz, .bz2 or .xz."""
    if head[257:262] == b"ustar":
        return (
            "is a tar archive and was not read; unpack it and name its folder: tar -xf FILE -C"
            " FOLDER"
        )
    if head.startswith(b"PK\x03\x04"):
        return (
            "is a zip archive and was not read; unpack it and name its folder: unzip FILE -d FOLDER"
        )
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "is packed with zstd and was not read; unpack it: zstd -dc FILE | unhang diagnose -"
    return "is binary and was not read"


def _is_utf_16(head: bytes) -> bool:
    """By the mark that Windows' programs write."""
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _decoded(head: bytes, stream: Stream, about: Input) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("replace") if _is_utf_16(head) else None
    if decoder:
        about.notes.append("was read as utf-16")
    data = head.removeprefix(codecs.BOM_UTF8)
    while data:
        if decoder:
            data = decoder.decode(data).encode("utf-8", "replace")
        else:
            data = data.replace(b"\0", b"")
        if data:
            yield data
        data = _read(stream, BLOCK, about)


def _read(stream: Stream, size: int, about: Input) -> bytes:
    """Some bytes, b"" at the end. A truncated archive, and a stream without an end, end with a
    note."""
    if about.bytes >= about.most_bytes or time.monotonic() - about.began_s > LONGEST_READ_S:
        over = (
            f"{about.bytes:,} bytes" if about.bytes >= about.most_bytes else f"{LONGEST_READ_S} s"
        )
        _note_once(about, f"{NOT_READ}: only {over} of it; cut out the part that matters")
        return b""
    try:
        data = stream.read(size)
    except BROKEN as problem:
        about.notes.append(
            f"{NOT_READ}: it broke off after {counted(about.bytes, 'byte')}: {problem}"
        )
        return b""
    about.bytes += len(data)
    return data


def _note_once(about: Input, note: str) -> None:
    if len(about.notes) < MOST_NOTES and note not in about.notes:
        about.notes.append(note)


def _block(data: bytes, first: int, cut: bool, about: Input) -> Block:
    if cut:  # the rest of a line that was cut in the previous block
        data = data[data.find(b"\n") :]
    data = _plain(data).replace(b"\r\n", b"\n")
    lines = data.split(b"\n")
    lines.pop()
    if not (
        about.wrapping.is_json
        or about.wrapping.columns
        or b"\r" in data
        or max(map(len, lines), default=0) > LONGEST_LINE
    ):
        return Block(first, lines, None, about.wrapping, data[:-1])
    lines, numbers = _parted(lines, first, about)
    if about.wrapping.columns:
        lines, numbers = joined(lines, numbers, about.wrapping.columns)
    return Block(first, lines, numbers, about.wrapping)


def _plain(data: bytes) -> bytes:
    """Without terminal sequences, and with blanks between words."""
    if b"\x1b" in data:
        data = _TERMINAL.sub(b"", data)
    if data.isascii():  # as most logs are, and read a fifth faster so
        return data
    for code, blank in _BLANKS:
        data = data.replace(code, blank)
    return data


def _parted(lines: list[bytes], first: int, about: Input) -> tuple[list[bytes], list[int]]:
    """Lines of bounded length with their numbers: redrawn lines split, and of a JSON line the
    message."""
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
