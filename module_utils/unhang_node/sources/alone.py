"""Reads one named path in a thread of its own, so that a server that does not answer costs that path and not those after it."""

from __future__ import annotations

import copy
import threading
import time

from ..section import Unread, read_section

SHARE_OF_SILENCE = 0.6  # the parent ends a source that says nothing for silence_s: give up before
MOST_S = 6.0


def read_alone(ctx, section, field, read, *arguments):
    """(section, fields, unread rows) of read(root, unread, *arguments), as read_section gives it.

    When a call does not return, or the path takes too long in all: ({}, and a row with status timeout under `field` that names the call). The thread stays
    behind; it reads, and touches nothing of ours any more.
    """
    state = {  # type: dict
        "call": "start", "at": time.monotonic(), "given_up": False, "piece": None,
    }
    root = copy.copy(ctx.root)

    def watch(text):
        state["call"], state["at"] = text, time.monotonic()
        if not state["given_up"]:
            ctx.mark(text)

    def work():
        state["piece"] = read_section(section, read, root, *arguments)

    root.watch = watch
    ctx.mark("read {}".format(field))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    silence_s = float(ctx.options.get("silence_s") or 4.0) * SHARE_OF_SILENCE
    ends = time.monotonic() + MOST_S
    while thread.is_alive():
        left_s = min(state["at"] + silence_s, ends) - time.monotonic()
        if left_s <= 0:
            state["given_up"] = True
            unread = Unread()
            unread.add(field, "timeout", "{} did not return in time".format(state["call"]))
            ctx.mark("go on after {}".format(field))
            return section, {}, unread.rows
        thread.join(left_s)
    return state["piece"]
