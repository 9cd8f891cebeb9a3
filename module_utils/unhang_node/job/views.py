"""The files, mounts and users that a rank sees: this machine's, or its container's through /proc/<pid>/root, without entering it."""

from __future__ import annotations

import os

from ..base.named_tuple import NamedTuple
from ..base.parse.mounts import parse_mountinfo
from ..base.root import Root
from ..base.untrusted_files import read_mounts_or_none
from ..facts.sections.users import read_users
from .containers import namespace_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..base.parse.mounts import Mount
    from ..facts.sections.users import User


class View(NamedTuple):
    """root: links are followed inside it; users: {uid inside: User}."""

    root: Root
    mounts: list[Mount]
    users: dict[int, User]


def view_of(root: Root, pid: int, known: dict[str | None, View]) -> View:
    """What a process sees. known: the views by their mount namespace, filled in here. Raises OSError when its mounts are not to be read."""
    space = namespace_of(root, pid, "mnt")
    if space not in known:
        known[space] = _container(root, pid) if space not in (None, namespace_of(root, os.getpid(), "mnt")) else _machine(root)
    return known[space]


def _machine(root: Root) -> View:
    return View(root=root, mounts=read_mounts_or_none(root), users=read_users(root))


def _container(root: Root, pid: int) -> View:
    mounts = parse_mountinfo(root.text(f"/proc/{pid}/mountinfo"))
    inside = Root((f"/proc/{pid}/root",))
    inside.watch = root.watch
    return View(root=inside, mounts=mounts, users=read_users(inside))


def user_of(root: Root, pid: int, view: View) -> tuple[User | None, int]:
    """(the user of a process as it sees itself, its uid as this machine has it). Raises OSError."""
    uid = os.stat(root.place(f"/proc/{pid}")).st_uid
    inside = uid if view.root is root else inside_uid(root.text(f"/proc/{pid}/uid_map"), uid)
    return (None if inside is None else view.users.get(inside)), uid


def inside_uid(uid_map: str, uid: int) -> int | None:
    """The uid inside a user namespace of a uid outside, None for one that it lacks. uid_map: /proc/<pid>/uid_map, lines `inside outside count`."""
    for words in (line.split() for line in uid_map.splitlines()):
        if len(words) == 3 and all(word.isdigit() for word in words):
            first, outside, count = map(int, words)
            if outside <= uid < outside + count:
                return first + uid - outside
    return None
