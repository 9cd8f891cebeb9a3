"""Documents that lie in files: a folder, a tar, standard input, a run folder. What pods' logs, AWX
slices or a shared file system bring."""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from unhang.audit.ways.documents import Arrival, read_arrival, split_documents
from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS
from unhang.core.errors import UserError
from unhang.core.path_arguments import irregular
from unhang.core.text import visible
from unhang.core.together import CountedStream, Together

STDIN = "-"
ENDINGS = (".json", ".jsonl", ".log", ".txt")
MOST_MEMBERS = 200_000
BLOCK = 512  # of a tar
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
MOST_BYTES, LONGEST_S = 16 << 30, 3600  # of all sources; of what a tar unpacks to


def check_source(named: str) -> None:
    """Raises UserError for what cannot hold documents."""
    path = Path(named)
    kind = irregular(path) or (
        "missing" if not path.exists() else "not readable" if not os.access(path, os.R_OK) else ""
    )
    if named != STDIN and kind:
        raise UserError(
            f"{visible(named, 200)} is {kind}, not a folder, a tar, a file of documents or -"
        )


def limits() -> Together:
    """Of all sources of a command."""
    return Together(MOST_BYTES, LONGEST_S)


def arrivals_of(named: str, together: Together) -> Iterator[Arrival]:
    """Each document of a folder, a file, a tar or standard input. What the limits of all sources
    leave out is a document that cannot be read."""
    path = Path(named)
    if named == STDIN:
        yield from _pieces(
            "standard input", "", getattr(sys.stdin.buffer, "raw", sys.stdin.buffer), together
        )
    elif path.is_dir():
        yield from _in_folder(path / "nodes" if (path / "run.json").is_file() else path, together)
    elif _is_tar(path):
        yield from _in_tar(path, together)
    else:
        yield from _in_file(path, together)


def _is_tar(path: Path) -> bool:
    """By its first bytes, before tarfile looks: of zeros without end it would unpack gigabytes."""
    try:
        with path.open("rb") as source:
            head = source.read(BLOCK)
    except OSError:
        return False
    return (head.startswith(COMPRESSED) or head[257:262] == b"ustar") and tarfile.is_tarfile(path)


def _in_folder(folder: Path, together: Together) -> Iterator[Arrival]:
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in ENDINGS and not path.name.startswith(".")
    )
    if not paths:
        yield Arrival(
            str(folder), "", fault=f"it holds no files of documents ({', '.join(ENDINGS)})"
        )
    if len(paths) > MOST_MEMBERS:
        yield Arrival(
            str(folder),
            "",
            fault=(f"it holds {len(paths)} files, more than {MOST_MEMBERS}; the rest was not read"),
        )
    for path in paths[:MOST_MEMBERS]:
        if kind := irregular(path):
            yield Arrival(str(path), path.stem, fault=f"it is {kind}, not a file")
        else:
            yield from _in_file(path, together)


def _in_file(path: Path, together: Together) -> Iterator[Arrival]:
    try:
        with path.open("rb") as source:
            yield from _pieces(str(path), path.stem, source, together, _is_of_run(path))
    except OSError as problem:
        yield Arrival(str(path), path.stem, fault=f"cannot be read: {problem.strerror}")


def _is_of_run(path: Path) -> bool:
    """Whether it is a node's file of a run folder."""
    folder = path.absolute().parent
    return folder.name == "nodes" and (folder.parent / "run.json").is_file()


def _in_tar(path: Path, together: Together) -> Iterator[Arrival]:
    """Its regular files, read where they are and never unpacked to the disk; links and names with
    .. mean nothing."""
    total = 0
    try:
        with tarfile.open(path, "r|*") as archive:
            for number, member in enumerate(archive):
                name = PurePosixPath(member.name)
                total += member.size
                if number >= MOST_MEMBERS or total > MOST_BYTES:
                    yield Arrival(
                        str(path),
                        "",
                        fault=(
                            f"it holds more than {MOST_MEMBERS} files or {MOST_BYTES >> 30} GiB"
                        ),
                    )
                    return
                source = (
                    archive.extractfile(member)
                    if member.isreg() and name.suffix in ENDINGS and not name.name.startswith(".")
                    else None
                )
                if source is not None:
                    yield from _pieces(f"{path}: {name}", name.stem, source, together)
    except (tarfile.TarError, OSError, EOFError) as problem:
        yield Arrival(
            str(path),
            "",
            fault=(f"the tar cannot be read to its end: {visible(str(problem), 200)}"),
        )


def _pieces(
    place: str, stem: str, source: IO[bytes], together: Together, is_of_run: bool = False
) -> Iterator[Arrival]:
    """The documents of one source; an empty one has a document that cannot be read."""
    number, counted = 0, CountedStream(source, together)
    for number, piece in enumerate(split_documents(counted), 1):
        yield read_arrival(
            place if number == 1 else f"{place}, document {number}",
            stem,
            piece[: ANSWER_LIMIT_CHARS + 1],
            is_of_run,
        )
    if counted.ended_early:
        yield Arrival(place, stem, fault=f"{counted.ended_early}; name fewer sources")
    elif not number:
        yield Arrival(place, stem, fault="it is empty, not a document of unhang collect")
