"""The files with which a job was started, given in addition to its log: what lint reads of them,
and what a diagnosis uses.

The diagnosis does not know lint; the command line hands over the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

DEEPSPEED = "deepspeed"


@dataclass(frozen=True)
class Finding:
    """One fault at a line. severity: error, warning or info. instead: the replacement."""

    line: int
    rule: str
    severity: str
    found: str
    why: str
    instead: str
    source: str


@dataclass(frozen=True)
class Trait:
    """A property of a job file that is not a fault by itself. value: verbatim. name: interface,
    memory, limit, local device, local master, nodes or sharded."""

    name: str
    value: str
    line: int
    text: str


@dataclass(frozen=True, eq=False)
class JobFile:
    """One file of the job.

    kind: as lint names it, or deepspeed. settings: (variable, line) of those that hold for the
    whole job. texts: the lines of the findings. has_state: it contains a pod's state too.
    """

    name: str
    kind: str
    lines: int
    findings: tuple[Finding, ...] = ()
    settings: tuple[tuple[str, int], ...] = ()
    traits: tuple[Trait, ...] = ()
    texts: Mapping[int, str] | None = None
    has_state: bool = False

    def place(self, line: int) -> dict[str, object]:
        """{file, line, text} of a line with a finding."""
        return {"file": self.name, "line": line, "text": (self.texts or {}).get(line, "")}


@dataclass(frozen=True)
class JobReader:
    """How files of a job are read.

    kind            path -> its kind; None for a log, and for a file that cannot be read
    read            (name, path, kind) -> what is known of it; None if it is binary
    only_starts     (path, kind) -> whether nothing in it can be read like a log

    The last two raise UserError for a file that cannot be read.
    """

    kind: Callable[[Path | None], str | None] = lambda _path: None
    read: Callable[[str, Path, str], JobFile | None] = lambda _name, _path, _kind: None
    only_starts: Callable[[Path, str], bool] = lambda _path, _kind: False


LOGS_ALONE = JobReader()
"""Takes every file for a log."""
