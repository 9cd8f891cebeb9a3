"""Runs each source in a child process, all at once, with a deadline for each.

A child gets its own session, and /dev/null for descriptors 0 to 2 before it does anything else: a
child that is stuck in a driver call with the caller's stdout open would hang the program that reads
that stdout. Answers come through a pipe, one JSON line per piece of a section, so facts that were
read before a stall are kept. Silence is measured from the child's last mark (see context.Mark),
which names the call that does not return.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time

from .context import Mark
from .named_tuple import NamedTuple
from .probe_child import be_child
from .section import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .context import Context, ReadSource
    from .section import UnreadRow


ANSWER_LIMIT_BYTES = 8 * 1024 * 1024
EXIT_GRACE_S = 1.0  # closing a driver's files takes a while
KILL_GRACE_S = 0.5


class Piece(NamedTuple):
    """A part of one section, as received: fields to merge, rows of unread fields, or why the whole
    section could not be read.

    more: the source will send more of this section; if it does not, the section is incomplete.
    """

    section: str
    fields: Any
    unread: list[UnreadRow]
    status: str | None
    error: str | None
    duration_ms: float
    more: bool = False


class SourceResult:
    """What one source answered: pieces in the order in which they arrived, then how it ended
    (status and one line, as in the document's probe)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[Piece] = []
        self.status: str | None = None
        self.error: str | None = None
        self.duration_ms: float | None = None
        self.survivor: str | None = None  # one line if the child survived SIGKILL


class _Child:
    def __init__(self, name: str, limits: tuple[float, float]) -> None:
        self.answer = SourceResult(name)
        self.mark = Mark()
        self.limits = limits
        self.pid = 0  # 0: not started
        self.pipe = -1
        self.started = time.monotonic()
        self.received = 0
        self.rest = b""
        self.extra_s = 0.0
        self.exit_status: int | None = None


def run_sources(
    sources: Iterable[tuple[str, ReadSource]],
    context: Context,
    silence_s: float = 4.0,
    deadline_s: float = 15.0,
    meanwhile: Callable[[], None] | None = None,
    then: Callable[[list[SourceResult]], None] | None = None,
) -> list[SourceResult]:
    """[SourceResult] in the order of `sources`, a list of (name, read).

    read(context) yields (section, fields or exception, unread rows), with a fourth item where more
    pieces of that section follow. meanwhile: called once the first source has been started, before
    the others; then: called with the answers while the children are still closing their files. A
    child that survives SIGKILL is given in its SourceResult's survivor, at the latest on return. No
    source can delay the return by more than its deadline (plus the time that its marks were
    allowed) and two short grace periods. An exception in a source is never raised here.
    """
    children = []
    try:
        for name, read in sources:
            child = _Child(name, (silence_s, deadline_s))
            children.append(child)
            _start(child, read, context)
            if meanwhile and len(children) == 1:
                meanwhile()
        _listen([child for child in children if child.pipe >= 0])
        if then:
            then([child.answer for child in children])
        _reap([child for child in children if child.pid])
    finally:
        for child in children:
            if child.pipe >= 0:
                os.close(child.pipe)
            if child.pid and child.exit_status is None and child.answer.survivor is None:
                _kill(child)
            child.mark.memory.close()
    return [child.answer for child in children]


def _start(child: _Child, read: Callable[..., Any], context: Context) -> None:
    try:
        reader, writer = os.pipe()
    except OSError as problem:
        _finish(child, "error", f"could not start: {one_line(problem)}")
        return
    child.mark.set(f"start of {child.answer.name}")
    try:
        pid = os.fork()
    except OSError as problem:
        os.close(reader)
        os.close(writer)
        _finish(child, "error", f"could not start: {one_line(problem)}")
        return
    if pid == 0:
        be_child(read, context.marking(child.mark), writer, child.limits[1])
    os.close(writer)
    os.set_blocking(reader, False)
    child.pid, child.pipe = pid, reader


def _finish(child: _Child, status: str, error: str | None) -> None:
    child.answer.status = status
    child.answer.error = error
    child.answer.duration_ms = round((time.monotonic() - child.started) * 1000, 1)


def _listen(children: list[_Child]) -> None:
    """Receives answers until every child has ended, gone silent or run out of time."""
    open_pipes = {child.pipe: child for child in children}
    poll = select.poll()
    for number in open_pipes:
        poll.register(number, select.POLLIN)
    while open_pipes:
        limit = min(_limit(child)[0] for child in open_pipes.values())
        for number, _ in poll.poll(max(0.0, limit - time.monotonic()) * 1000 + 1):
            _receive(open_pipes[number])
        for number, child in list(open_pipes.items()):
            if child.answer.status is None:
                _check_time(child)
            if child.answer.status is not None:
                poll.unregister(number)
                del open_pipes[number]


def _limit(child: _Child) -> tuple[float, str]:
    """(monotonic seconds at which the child is out of time, the line that is then reported)."""
    silence_s, deadline_s = child.limits
    call, set_at, allow_s = child.mark.get()
    child.extra_s = max(child.extra_s, allow_s)
    call_s = max(silence_s, allow_s)
    total_s = deadline_s + child.extra_s
    by_call, by_total = set_at + call_s, child.started + total_s
    if by_call <= by_total:
        return by_call, f"{call} did not return within {call_s:g} s"
    return by_total, f"not done within {total_s:g} s; last call: {call}"


def _check_time(child: _Child) -> None:
    limit, reason = _limit(child)
    if time.monotonic() < limit:
        return
    _receive(child)
    if child.answer.status is None:
        _kill(child)
        _finish(
            child,
            "timeout",
            reason if child.answer.survivor is None else f"{reason}; {child.answer.survivor}",
        )


def _receive(child: _Child) -> None:
    """Reads what is in the pipe; ends the child's answer at its end mark, at the end of the pipe,
    or when the answer is too large."""
    while child.answer.status is None:
        try:
            data = os.read(child.pipe, 1 << 17)
        except BlockingIOError:
            return
        if not data:
            _explain_death(child)
            return
        child.received += len(data)
        if child.received > ANSWER_LIMIT_BYTES:
            _kill(child)
            _finish(
                child,
                "error",
                f"answered more than {ANSWER_LIMIT_BYTES} bytes; last call: {child.mark.get()[0]}",
            )
            return
        lines = (child.rest + data).split(b"\n")
        child.rest = lines.pop()
        for line in lines:
            _take(child, line)


def _take(child: _Child, line: bytes) -> None:
    try:
        message = json.loads(line.decode("utf-8"))
        if message[0] is None:
            _finish(child, message[1], message[2])
        else:
            child.answer.pieces.append(Piece(*message))
    except (ValueError, TypeError, IndexError, RecursionError) as problem:
        _kill(child)
        _finish(child, "error", f"answer not understood: {one_line(problem)}")


def _explain_death(child: _Child) -> None:
    _wait(child, EXIT_GRACE_S)
    if child.exit_status is None:
        _kill(child)
    call, status = child.mark.get()[0], child.exit_status
    if status is not None and os.WIFSIGNALED(status):
        _finish(child, "error", f"killed by {_signal_name(os.WTERMSIG(status))} in {call}")
    else:
        _finish(child, "error", f"ended without an answer (wait status {status}) in {call}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _reap(children: list[_Child]) -> None:
    """Reaps children that have answered; one that survives SIGKILL is reported as a fact."""
    limit = time.monotonic() + EXIT_GRACE_S
    for child in children:
        _wait(child, max(0.0, limit - time.monotonic()))
        if child.exit_status is None and child.answer.survivor is None:
            _kill(child)


def _kill(child: _Child) -> None:
    for kill in (os.killpg, os.kill):  # the group exists only once the child has called setsid
        try:  # noqa: SIM105
            kill(child.pid, signal.SIGKILL)
        except OSError:
            pass
    _wait(child, KILL_GRACE_S)
    if child.exit_status is None:
        child.answer.survivor = f"process {child.pid} survives SIGKILL (state {_state(child.pid)})"


def _wait(child: _Child, grace_s: float) -> None:
    """Sets exit_status when the child ends within grace_s."""
    limit, pause_s = time.monotonic() + grace_s, 0.0005
    while child.exit_status is None:
        try:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
        except OSError as problem:
            if problem.errno != errno.ECHILD:
                raise
            pid, status = child.pid, 0  # another waiter has reaped it
        if pid:
            child.exit_status = status
        elif time.monotonic() >= limit:
            return
        else:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            return source.read(4096).rsplit(b")", 1)[1].split()[0].decode("ascii")
    except (OSError, IndexError):
        return "unknown"
