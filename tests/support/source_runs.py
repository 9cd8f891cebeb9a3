"""Sources to run in child processes: one that answers, one that stalls; and a check whether a child
is left."""

from __future__ import annotations

import os
import time

from unhang_node.base import probe
from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.root import Root

_OTHERS: set[int] = set()


def context(**options):
    return Context(Root(), dict(DEFAULTS, **options), ["node", "gpus"], load_pynvml=None)


def good(ctx):
    ctx.mark("open /etc/os-release")
    yield "node", {"hostname": "gpu001"}, []


def stalls(ctx):
    yield "gpus", {"count": 8}, [{"field": "x", "status": "absent", "reason": "y"}]
    ctx.mark("nvmlDeviceGetMemoryInfo(3)")
    time.sleep(3600)


def run(*sources, silence_s=60.0, deadline_s=60.0):
    return probe.run_sources(
        [(str(number), read) for number, read in enumerate(sources)],
        context(),
        silence_s,
        deadline_s,
    )


def children():
    """Process ids of this process's children, zombies among them. Another test of the same worker
    may have some of its own."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as source:
                fields = source.read().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if int(fields[1]) == os.getpid():
            found.add(int(name))
    return found


def forget_others():
    """Ignores children that exist already, because this test did not start them."""
    _OTHERS.clear()
    _OTHERS.update(children())


def no_children_left():
    assert children() - _OTHERS == set()
