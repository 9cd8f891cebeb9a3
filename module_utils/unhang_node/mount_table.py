"""The mount table of the node."""

from __future__ import annotations

from .parse.mounts import parse_mountinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .parse.mounts import Mount
    from .root import Root


def read_mounts(root: Root) -> list[Mount]:
    """[Mount] of the node. A procfs that was handed in shows the node's view under process 1, not under this one. Raises OSError."""
    if "/proc" in root.mounts:
        try:
            return parse_mountinfo(root.text("/proc/1/mountinfo"))
        except OSError:
            pass  # process 1 is another user's: the own view is the next best
    return parse_mountinfo(root.text("/proc/self/mountinfo"))
