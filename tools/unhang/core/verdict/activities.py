"""What a rank does, from the functions that it is in, by the catalogue's table job_activities.

The youngest frame that a row knows decides; the first frame that is no library's says where in the
user's code that is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from msgspec import Struct, convert

COLLECTIVE, BACKWARD, LOADING, STARTING = "collective", "backward", "loading", "starting"
EVALUATING, IMPORTING, CODE = "evaluating", "importing", "code"
MAIN, OTHER = "MainThread", "another thread"
SERVING, LOCK = "serving", "waiting for a lock"
WAITS = (COLLECTIVE, STARTING, BACKWARD)  # for other ranks
_FRAME = re.compile(r"^(.{1,200}) \((.{1,400}):(\d{1,9})\)$")
_OF_GPU = re.compile(r"synchronize|wait\w*")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<|/torch/")


class _Call(NamedTuple):
    function: str
    path: str
    line: str


@dataclass(frozen=True)
class Activity:
    """name: of the table. function, place: the frame that decides it. user: the youngest frame of
    the user's code, "" without one: it calls the function, or is called below it. caller: the
    function that calls `user`, which may be a wrapper of one line."""

    name: str
    function: str
    place: str
    user: str
    caller: str = ""
    is_below: bool = False

    @property
    def awaits_gpu(self) -> bool:
        """Whether it waits for its GPU, which does not show whom that waits for."""
        return self.name == COLLECTIVE and bool(_OF_GPU.fullmatch(self.function))

    @property
    def awaits_ranks(self) -> bool:
        """Whether it waits for other ranks."""
        return self.name in (COLLECTIVE, STARTING) and not self.awaits_gpu

    @property
    def where(self) -> str:
        """all_reduce, called by step (train.py:88), by main; or, where a library
        calls the user's code, read (train.py:7), called by __next__."""
        own = f"{self.function} ({self.place})"
        if self.user in ("", own):
            return own
        if self.is_below:
            return f"{self.user}, called by {self.function}"
        by = f", by {self.caller}" if self.caller else ""
        return f"{self.function}, called by {self.user}{by}"


class ActivityRow(Struct, frozen=True):
    """Of the table job_activities."""

    frames: Sequence[str]
    goes_on: Sequence[str]
    next: str
    busy: str | None = None
    cause: str | None = None


@cache
def activities() -> Mapping[str, ActivityRow]:
    """{activity: its row}. That the table has no fault, a test shows."""
    # here, because a watcher that has not looked yet loads no YAML
    from unhang.core.catalogue.own_tables import table

    return convert(table("job_activities"), dict[str, ActivityRow])


@cache
def _frames() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(frame), name) for name, row in activities().items() for frame in row.frames]


def activity_of(frames: Sequence[str]) -> Activity | None:
    """What a thread does whose frames these are, youngest first; None without frames."""
    parsed = [*filter(None, map(_call, frames))]
    if not parsed:
        return None
    own = [found for found in parsed if not _LIBRARY.search(found.path)]
    user = next(map(_shown, own), "")
    caller = next((one.function for one in own[1:2] if one.function != "<module>"), "")
    if user.startswith("<module> (") and any(
        found.path.startswith("<frozen importlib") for found in parsed
    ):
        return Activity(
            IMPORTING,
            "import",
            _file_and_line(
                next((found for found in parsed if not found.path.startswith("<")), parsed[0])
            ),
            user,
        )
    for found in parsed:
        is_below = bool(own) and parsed.index(own[0]) < parsed.index(found)
        for frame, name in _frames():
            # a server that runs the user's code has something to do; py-spy shortens its own paths
            if frame.match(f"{found.function.rpartition('.')[2]} ({found.path}") and not (
                is_below
                and name == SERVING
                and own[0].path.split("/")[:3] != found.path.split("/")[:3]
            ):
                return Activity(
                    name,
                    _public(parsed, found) if _LIBRARY.search(found.path) else found.function,
                    _file_and_line(found),
                    user,
                    caller,
                    is_below,
                )
    first = [*own, *parsed][0]
    return Activity(CODE, first.function, _file_and_line(first), user)


def _call(frame: str) -> _Call | None:
    found = _FRAME.match(frame)
    return _Call(*found.groups()) if found else None


def innermost_of(frames: Sequence[str]) -> str:
    """The youngest frame without class, folder and line, `function (file)`; "" without one."""
    found = next(map(_call, frames), None)
    if not found:
        return ""
    return f"{found.function.rpartition('.')[2]} ({found.path.rsplit('/', 1)[-1]})"


def user_frames(frames: Sequence[str]) -> list[str]:
    """The frames that are no library's: loops of a library that wait move without any progress of
    the job."""
    return [
        frame for frame in frames if (found := _call(frame)) and not _LIBRARY.search(found.path)
    ]


def function_names(frames: Sequence[str]) -> list[str]:
    """Frames without their lines: a loop that only waits moves between its lines."""
    return [frame.rpartition(":")[0] for frame in frames]


def _public(parsed: Sequence[_Call], found: _Call) -> str:
    """The function that the user called in the same file: all_reduce rather than a helper of it."""
    same = [
        one
        for one in parsed[parsed.index(found) :]
        if one.path == found.path and not one.function.startswith("<")
    ]
    return (same or [found])[-1].function.rpartition(".")[2]


def _file_and_line(found: _Call) -> str:
    return f"{found.path.rsplit('/', 1)[-1]}:{found.line}"


def _shown(found: _Call) -> str:
    return f"{found.function} ({_file_and_line(found)})"
