"""The processes of one container, seen from the node and without entering it: by its ID in the
cgroup, else by the process that its engine names.

Whatever shares that process's pid or mount namespace or its cgroup, or descends from it, is in the
container; a shell of `docker exec` is, too.
"""

from __future__ import annotations

import os
import re

from ..base.section import Absent
from ..facts.sections.reading import text_if_there
from .container_engines import ID, pid_of_engines
from .namespaces import namespace_of
from .process_table import ancestors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..base.context import Context
    from ..base.root import Root
    from .parse.process_state import Stat

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
# as `lsns` and `readlink /proc/PID/ns/pid` print it
NAMESPACE = re.compile(r"(?:pid|mnt):\[(\d{1,20})\]\Z|(\d{10})\Z")
EXPECTED = "the name or ID of a container, or a namespace such as pid:[4026532649]"


def check_name(name: object) -> None:
    """Raises ValueError for what can be no container."""
    if not isinstance(name, str) or not (NAME.match(name) or NAMESPACE.match(name)):
        raise ValueError(f"container must be {EXPECTED}, and is {str(name)[:80]!r}")


def processes_of_container(ctx: Context, name: str, stats: dict[int, Stat]) -> dict[int, Stat]:
    """Those of `stats` that are in the container. Raises Absent with what each engine said when
    nothing knows it, or it does not run."""
    namespace = NAMESPACE.match(name)
    seeds = (
        _of_namespace(ctx.root, stats, namespace.group(1) or namespace.group(2))
        if namespace
        else []
    )
    if not seeds and ID.match(name):
        seeds = [pid for pid in stats if name in text_if_there(ctx.root, f"/proc/{pid}/cgroup")]
    if not seeds and NAME.match(name):
        seeds = [pid_of_engines(ctx, name, stats)]
    if not seeds:
        raise Absent(
            f"no process of this node is in the namespace {name}, or another user's and hidden"
            " without root"
        )
    return _with_the_same(ctx.root, stats, set(seeds))


def _of_namespace(root: Root, stats: dict[int, Stat], number: str) -> list[int]:
    return [
        pid
        for pid in stats
        if any(
            (namespace_of(root, pid, kind) or "").endswith(f"[{number}]") for kind in ("pid", "mnt")
        )
    ]


def _with_the_same(root: Root, stats: dict[int, Stat], seeds: set[int]) -> dict[int, Stat]:
    """The seeds' namespaces and cgroups, as far as they are not the node's own, say who else is in
    the container."""

    def marks(pid: int) -> set[str]:
        spaces = {namespace_of(root, pid, kind) for kind in ("pid", "mnt")}
        groups = {
            line.partition(":")[2]
            for line in text_if_there(root, f"/proc/{pid}/cgroup").splitlines()
            if len(line.rpartition("/")[2]) >= 12
        }
        return {mark for mark in spaces | groups if mark}

    of_the_node = marks(os.getpid()) | marks(1)
    wanted = {mark for pid in seeds for mark in marks(pid)} - of_the_node
    return {
        pid: stat
        for pid, stat in stats.items()
        if seeds & set(ancestors(stats, pid)) or wanted & marks(pid)
    }
