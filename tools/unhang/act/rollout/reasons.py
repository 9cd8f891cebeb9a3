"""Reasons for people: the cause first, and nothing twice. Text in, text out."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from unhang.act.rollout.steps import STEPS
from unhang.core.nodeset import fold_hosts, shortened

# What a kernel says of a machine that cannot be changed. dpkg, apt and modules print it last, where
# a shortened line loses it.
CAUSES = tuple(
    os.strerror(one)
    for one in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.ESTALE)
)
LONGEST_LIST = 200
BEGINNING = 60  # letters that a reader sees of any reason


def cause_first(text: str) -> str:
    """The text behind the kernel's own words for its cause, where these are far inside it."""
    places = {text.find(cause): cause for cause in CAUSES if cause in text}
    first = min(places, default=0)
    return f"{places[first]}: {text}" if first > BEGINNING else text


def joined(*reasons: str | None) -> str:
    """The reasons as one, cause first, and each part once, whichever step reported it."""
    once: dict[str, str] = {}
    for reason in filter(None, reasons):
        for part in reason.split("; "):
            once.setdefault(_without_step(part), part)
    return cause_first("; ".join(once.values()))


def _without_step(part: str) -> str:
    step, _, text = part.partition(": ")
    return text if step in STEPS else part


def describe_edit(hosts: Sequence[str]) -> str:
    """The edit as a line; "" for no host."""
    if not hosts:
        return ""
    return (
        f"unhang_policy of {shortened(fold_hosts(hosts), LONGEST_LIST)} was edited since the plan,"
        " which keeps to its own; to apply the edit, audit and plan again afterwards"
    )
