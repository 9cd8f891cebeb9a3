"""The mount table of the node."""

from __future__ import annotations

from .parse.mounts import parse_mountinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .parse.mounts import Mount
    from .root import Root


def read_mounts(root: Root) -> list[Mount]:
    """[Mount] of the node. A mounted procfs shows the node's mounts under process 1, not under this
    process. Raises OSError."""
    if "/proc" in root.mounts:
        try:
            return parse_mountinfo(root.text("/proc/1/mountinfo"))
        except OSError:
            pass  # process 1 belongs to another user: this process's own mounts are the next best
    return parse_mountinfo(root.text("/proc/self/mountinfo"))
