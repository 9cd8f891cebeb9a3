"""Signals that this process takes for a while."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType


@contextlib.contextmanager
def signals_taken(
    handler: Callable[[int, FrameType | None], object],
    numbers: Sequence[int] = (signal.SIGTERM, signal.SIGHUP),
) -> Iterator[None]:
    """The handler gets these signals; those that are ignored, as nohup and a shell's background
    want it, stay ignored."""
    before = {
        number: signal.signal(number, handler)
        for number in numbers
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
