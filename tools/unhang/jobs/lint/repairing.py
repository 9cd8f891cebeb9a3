"""`unhang lint --fix` and `--diff`: writes the corrected files, or shows them as a diff."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.path_arguments import irregular
from unhang.core.printing import safe_text
from unhang.core.text import visible
from unhang.core.together import Together
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.fixing import Fix, fix_text
from unhang.jobs.lint.linting import (
    LONGEST_OF_ALL_S,
    MARK,
    MOST_BYTES_OF_ALL,
    find_files,
    read_with_mark,
)
from unhang.jobs.lint.settings import kind_of

LONGEST_NAME = 5000  # above the system's own limit
# what a terminal acts upon, and base/printing lets pass; the \r of a line end is part of the patch
_MOVES = re.compile(r"\x1b|\r(?!$)")


@dataclass(frozen=True)
class Repair:
    """A file that changes. before, after: its text, with a byte order mark if it has one."""

    path: Path
    before: str
    after: str
    fixes: tuple[Fix, ...]


def repairs_of(
    names: Sequence[str], context: Context, kind: str | None, takes: Callable[[Finding], bool]
) -> list[Repair]:
    """The files with a fault that has one right answer. Reads files. Raises UserError."""
    found = []
    once = {path.resolve(): path for path in reversed(find_files(names))}
    together = Together(MOST_BYTES_OF_ALL, LONGEST_OF_ALL_S)
    for path in sorted(once.values()):
        text = None if irregular(path) or together.reached() else read_with_mark(path)
        together.bytes += len(text or "")
        if text is None:
            continue
        bare = text.removeprefix(MARK)
        after, fixes = fix_text(bare, kind or kind_of(str(path), bare), context, takes)
        if fixes:
            found.append(Repair(path, text, text.removesuffix(bare) + after, tuple(fixes)))
    return found


def write_repair(repair: Repair) -> None:
    """Replaces the file atomically; its mode, its byte order mark and a link to it are kept. Raises
    UserError."""
    path = repair.path.resolve()
    try:
        read = path.read_bytes().decode("utf-8", "surrogateescape")
        if read != repair.before:
            raise UserError(
                f"{repair.path}: expected the text that was read before, found different text; run"
                " it again"
            )
        _replace(path, repair.after.encode("utf-8", "surrogateescape"))
    except OSError as problem:
        raise UserError(
            f"{repair.path}: cannot be written: {problem.strerror or problem}"
        ) from None


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".unhang-fix-")
    try:
        with os.fdopen(handle, "wb") as target:
            target.write(content)
        Path(temporary).chmod(path.stat().st_mode & 0o7777)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def print_diff(repairs: Iterable[Repair]) -> None:
    """One unified diff of all files on standard output: for git apply the bytes of the files, on a
    terminal with an escape for what it would act upon."""
    lines = [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in _lines_of_diff(repairs)
    ]
    if sys.stdout.isatty():
        sys.stdout.write("".join(map(_for_terminal, lines)))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write("".join(lines).encode("utf-8", "surrogateescape"))


def _lines_of_diff(repairs: Iterable[Repair]) -> Iterator[str]:
    for one in repairs:
        before, after = (
            io.StringIO(text, newline="\n").readlines() for text in (one.before, one.after)
        )
        name = visible(_name_in_diff(one.path), LONGEST_NAME)
        yield from difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")


def _name_in_diff(path: Path) -> str:
    """The path of the file itself, because git changes no file through a link or ..: relative to
    the working directory, for git apply there; of a file elsewhere the absolute one without its
    first /, for git apply in /."""
    real, here = path.resolve(), Path.cwd()
    return str(real.relative_to(here if real.is_relative_to(here) else real.anchor))


def _for_terminal(line: str) -> str:
    return safe_text(_MOVES.sub(lambda found: visible(found[0]), line))


def describe_repairs(repairs: Iterable[Repair]) -> list[dict[str, Any]]:
    """The `fixed` of a lint document."""
    return [{"file": str(repair.path), **asdict(one)} for repair in repairs for one in repair.fixes]
