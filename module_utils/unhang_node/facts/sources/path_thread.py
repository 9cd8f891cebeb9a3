"""Reads one named path in a thread, so that a server that does not answer costs only that path, not
the next ones."""

from __future__ import annotations

import copy
import threading
import time

from ...base.section import Unread, read_section

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...base.context import Context
    from ...base.section import SectionPiece

# the parent kills a source that is silent for silence_s, so give up before that
SHARE_OF_SILENCE = 0.6
MOST_S = 6.0


def read_alone(
    ctx: Context, section: str, field: str, read: Callable[..., Any], *arguments: Any
) -> SectionPiece:
    """(section, fields, unread rows) of read(root, unread, *arguments), as read_section gives it.

    When a call does not return, or the path takes too long in total, the fields are {} and an
    unread row of `field` has the status timeout and names the call. The thread is not ended; it
    only reads, and no longer changes a shared value.
    """
    state: dict[str, Any] = {
        "call": "start",
        "at": time.monotonic(),
        "given_up": False,
        "piece": None,
    }
    root = copy.copy(ctx.root)

    def watch(call: str) -> None:
        state["call"], state["at"] = call, time.monotonic()
        if not state["given_up"]:
            ctx.mark(call)

    def work() -> None:
        state["piece"] = read_section(section, read, root, *arguments)

    root.watch = watch
    ctx.mark(f"read {field}")
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if not _has_ended(thread, state, float(ctx.options.get("silence_s") or 4.0) * SHARE_OF_SILENCE):
        state["given_up"] = True
        unread = Unread()
        unread.add(field, "timeout", f"{state['call']} did not return in time")
        ctx.mark(f"go on after {field}")
        return section, {}, unread.rows
    piece: SectionPiece = state["piece"]
    return piece


def _has_ended(thread: threading.Thread, state: dict[str, Any], silence_s: float) -> bool:
    """Waits until the thread ends, its last call takes longer than silence_s, or all its calls take
    longer than MOST_S."""
    ends = time.monotonic() + MOST_S
    while thread.is_alive():
        left_s = min(state["at"] + silence_s, ends) - time.monotonic()
        if left_s <= 0:
            return False
        thread.join(left_s)
    return True
