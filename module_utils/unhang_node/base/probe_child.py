"""The child's side of a probe: detaches from the caller, then writes one source's pieces as JSON
lines into the pipe."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import time

from .section import one_line, status_of_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context, ReadSource


def be_child(read: ReadSource, context: Context, writer: int, deadline_s: float) -> None:
    """Answers through the descriptor `writer` and ends the process; never returns."""
    code = 1
    try:
        os.setsid()
        # the caller had closed one of these descriptors; /dev/null gets its number
        while writer < 3:
            writer = os.dup(writer)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _close_others(writer)
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        # If the parent dies, only this alarm ends the child.
        signal.alarm(int(deadline_s + (context.options.get("first_handle_s") or 20)) + 60)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        gc.disable()
        context.root.watch = context.mark
        _answer(read, context, writer)
        code = 0
    finally:
        os._exit(code)


def _close_others(keep: int) -> None:
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = list(range(3, 256))
    for number in numbers:
        if number > 2 and number != keep:
            try:  # noqa: SIM105 - contextlib would be imported for this alone
                os.close(number)
            except OSError:
                pass


def _answer(read: ReadSource, context: Context, writer: int) -> None:
    before = time.monotonic()
    try:
        for section, answer, unread, *more in read(context):
            fields, status, error = answer, None, None
            if isinstance(answer, Exception):
                fields, status, error = {}, status_of_error(answer), one_line(answer)
            now = time.monotonic()
            _send(
                writer,
                [
                    section,
                    fields,
                    unread,
                    status,
                    error,
                    round((now - before) * 1000, 1),
                    bool(more),
                ],
            )
            before = now
    except Exception as problem:  # every exception is this source's result
        _send(writer, [None, status_of_error(problem), one_line(problem)])
    else:
        _send(writer, [None, "ok", None])


def _send(writer: int, message: list[Any]) -> None:
    line = json.dumps(message, separators=(",", ":"), default=str).encode("utf-8") + b"\n"
    while line:
        line = line[os.write(writer, line) :]
