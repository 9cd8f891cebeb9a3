"""Where the ranks of a job are, by their stacks: who waits for others, and for whom the others
wait. The catalogue's table job_activities says which call is a wait for others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from unhang.core.verdict.activities import (
    BACKWARD,
    CODE,
    COLLECTIVE,
    EVALUATING,
    IMPORTING,
    LOCK,
    MAIN,
    SERVING,
    STARTING,
    Activity,
    activity_of,
    user_frames,
)
from unhang.core.verdict.joined import Seen
from unhang.core.verdict.odd_one_out import AT_LEAST, odd_ones_out

WAITS_FOR_OTHERS = (COLLECTIVE, STARTING, LOCK)
# Calls below which a host waits for its GPU without a frame of a library.
MAY_WAIT_FOR_GPU = (CODE, BACKWARD, EVALUATING)
_FORMS = re.compile(r"^_|(?:_object|_list|_base|_into_tensor|_tensor|_coalesced)+$")
# Between two ranks: the job is a pipeline, whose stages are in other calls at the same time. What a
# graph's replay waits in is not seen.
PAIRS = re.compile(r"send|recv|isend|irecv|batch_isend_irecv|replay")
WORK = ("saving", "restoring", "compiling", EVALUATING, IMPORTING, SERVING)


@dataclass(frozen=True)
class Frame:
    """A call. said: FUNCTION (PATH:LINE), with the dump's path; text: the same, with a path that
    begins with / though the tool shortened it. shown: the log's line, with the number `line`."""

    said: str
    text: str
    line: int
    shown: str


@dataclass(frozen=True)
class Stack:
    """The calls of a thread, the youngest first. rank, pid: None if the dump does not name them;
    ~3 of a launcher's label 3 until the file is read.
    command: without digits, equal for ranks of one job. idle: py-spy saw the thread sleep. gil: it
    saw it hold the interpreter's lock. of_file: only the name of the file has the rank.
    before: the same thread in the look before."""

    rank: int | None
    pid: int | None
    thread: str
    frames: tuple[Frame, ...]
    file: str
    command: str = ""
    idle: bool = False
    gil: bool = False
    of_file: bool = False
    before: Stack | None = None

    @property
    def calls(self) -> list[str]:
        """The frames as text."""
        return [frame.text for frame in self.frames]

    @property
    def own_calls(self) -> tuple[str, ...]:
        """The job's own among them."""
        return tuple(user_frames(self.calls))

    @property
    def moved(self) -> bool:
        """Whether they are others than in the look before."""
        return self.before is not None and self.before.own_calls != self.own_calls

    @property
    def name(self) -> str:
        """rank 3, or process 88311, or the file."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return self.file if self.pid is None else f"process {self.pid}"


class Standing(NamedTuple):
    """Where a rank is. is_awake: py-spy met it in the middle of code of its own, and one that
    waits for others asleep."""

    stack: Stack
    activity: Activity
    is_awake: bool = False

    @property
    def collective(self) -> str | None:
        """all_gather of all_gather_object and _all_gather_base: the operation of a collective; None
        outside of collectives."""
        doing = self.activity
        return _FORMS.sub("", doing.function) if doing.name == COLLECTIVE else None

    @property
    def is_at_work(self) -> bool:
        """Whether the others wait for it in healthy jobs too: one dump does not show whether it
        goes on; or a second one shows that it does. So does a loop that never ends, which looks
        like long work."""
        return self.activity.name in WORK or self.stack.moved or self.is_awake


@dataclass(frozen=True)
class Stuck:
    """Whom the others wait for. thread: whose stacks show it. elsewhere: names of ranks or
    processes that are in another call than a wait; apart: names of those that wait in another one
    than most; hung: name -> whether only its line shows that it holds up a job that hangs."""

    thread: str = MAIN
    elsewhere: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    hung: Mapping[str, bool] = field(default_factory=dict)


def standings(stacks: Mapping[str, Stack]) -> dict[str, Standing]:
    """Where the ranks are. Processes of another command than most are not: a launcher, a server
    in front of its workers, another job."""
    found = {
        name: Standing(stack, activity)
        for name, stack in stacks.items()
        if (activity := activity_of(stack.calls))
    }
    rows = {name: {"command": one.stack.command or None} for name, one in found.items()}
    others = {one.row for one in odd_ones_out(rows)}
    rests = any(one.stack.idle for one in found.values() if one.activity.awaits_ranks)
    return {
        name: one._replace(is_awake=rests and one.activity.name == CODE and not one.stack.idle)
        for name, one in found.items()
        if name not in others
    }


def in_one_line(ranks: Mapping[str, Standing]) -> list[str]:
    """The ranks that are in the same calls, line by line, in code that no row of the table knows
    as work of its own: where most are in one line at a time, they wait in it or compute long. A
    rank that holds the interpreter's lock does not wait."""
    places: dict[tuple[str, ...], list[str]] = {}
    for name, one in ranks.items():
        if one.activity.name in MAY_WAIT_FOR_GPU and not one.stack.gil:
            places.setdefault(tuple(one.stack.calls), []).append(name)
    most = max(places.values(), key=len, default=[])
    return most if len(most) >= AT_LEAST else []


def seen_in_stacks(ranks: Mapping[str, Standing], odd: Iterable[str] = ()) -> Seen:
    """What the stacks of main threads show of the ranks whose number is known. odd: names of those
    that the others wait for."""
    apart = [ranks[name] for name in odd]
    waiting = [one for one in ranks.values() if one.activity.awaits_ranks]
    # where nobody was stuck before, the last look shows a wait of which nobody knows that it ends
    before = {one.stack.before and one.stack.before.own_calls for one in ranks.values()}
    return Seen(
        _numbers(waiting),
        _numbers(apart),
        _numbers(one for one in ranks.values() if one.is_at_work),
        _numbers(one for one in ranks.values() if one.activity.name == SERVING),
        all(one.stack.own_calls in before for one in apart)
        and (
            any(one.stack.moved for one in waiting)
            # of a job that hangs few move, those that poll; by majority, which was not measured
            or sum(one.stack.moved for one in ranks.values()) * 2 > len(ranks)
        ),
    )


def _numbers(ranks: Iterable[Standing]) -> frozenset[int]:
    return frozenset(one.stack.rank for one in ranks if one.stack.rank is not None)
