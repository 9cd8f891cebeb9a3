"""Users of this node as /etc/passwd has them: the name services of a cluster may hang, and are not asked."""

from __future__ import annotations

from collections import namedtuple

from ..files import read_text


class User(namedtuple("User", "name uid home")):
    """name, uid, home folder."""

    __slots__ = ()


def parse_passwd(text):
    """{uid: User}; of several with one uid the first."""
    users = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) >= 6 and fields[2].isdigit() and len(fields[2]) <= 10:
            users.setdefault(int(fields[2]), User(fields[0], int(fields[2]), fields[5]))
    return users


def read_users(root):
    """{uid: User}, {} when the file cannot be read."""
    try:
        return parse_passwd(read_text(root, "/etc/passwd", 8 << 20))
    except (OSError, ValueError):
        return {}


def user_name(users, uid):
    """The user's name, or his number as text where only a name service knows it; None for None."""
    if uid is None:
        return None
    return users[uid].name if uid in users else str(uid)


def user_of_home(users, home):
    """The User whose home this is, or None."""
    return next((user for user in users.values() if user.home.rstrip("/") == home.rstrip("/")), None)
