"""How full the kernel's tables are: processes and threads, open files, tracked connections. Part of
section `limits`."""

from __future__ import annotations

from ...base.parse.values import parse_integer
from .reading import integer_if_there, read_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

NETFILTER = "/proc/sys/net/netfilter/nf_conntrack_"


def read_in_use(root: Root) -> dict[str, Any]:
    """{tasks, tasks_max, files, files_max, connections, connections_max, load_15}. Raises OSError
    and ValueError.

    tasks: processes and threads; tasks_max is the kernel's maximum (the lower of pid_max and
    threads-max). connections are None without connection tracking.
    """
    words = read_line(root, "/proc/loadavg", 256).split()
    if len(words) < 4:
        raise ValueError(f"/proc/loadavg must have five words, and has {' '.join(words)[:40]!r}")
    files = read_line(root, "/proc/sys/fs/file-nr", 256).split()
    if len(files) != 3:
        raise ValueError(
            f"/proc/sys/fs/file-nr must have three numbers, and has {' '.join(files)[:40]!r}"
        )
    most = [
        value
        for value in (
            integer_if_there(root, "/proc/sys/kernel/" + name)
            for name in ("pid_max", "threads-max")
        )
        if value is not None
    ]
    load = float(words[2])
    if not 0 <= load < 1e9:
        raise ValueError(f"/proc/loadavg must have a load, and has {words[2][:40]!r}")
    return {
        "tasks": parse_integer(words[3].partition("/")[2]),
        "tasks_max": min(most) if most else None,
        "files": parse_integer(files[0]),
        "files_max": parse_integer(files[2]),
        "connections": integer_if_there(root, NETFILTER + "count"),
        "connections_max": integer_if_there(root, NETFILTER + "max"),
        "load_15": load,
    }
