"""The files, mounts and home that a rank sees, for a reader that has its user's rights."""

from __future__ import annotations

from ..base.named_tuple import NamedTuple
from ..facts.sections.users import read_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..base.parse.mounts import Mount
    from ..base.root import Root


class View(NamedTuple):
    """root: the files as the process sees them; uid: its user as this machine has it; inside: the
    same as its user namespace has it, None if it lacks it."""

    root: Root
    mounts: list[Mount]
    uid: int
    inside: int | None


def home_of(view: View) -> str | None:
    """The home folder by the view's own /etc/passwd, None without one."""
    user = None if view.inside is None else read_users(view.root).get(view.inside)
    return user.home if user and user.home.startswith("/") else None


def inside_uid(uid_map: str, uid: int) -> int | None:
    """The uid inside a user namespace of a uid outside, None for one that it lacks. uid_map:
    /proc/<pid>/uid_map, lines `inside outside count`."""
    for words in (line.split() for line in uid_map.splitlines()):
        if len(words) == 3 and all(word.isdigit() for word in words):
            first, outside, count = map(int, words)
            if outside <= uid < outside + count:
                return first + uid - outside
    return None
