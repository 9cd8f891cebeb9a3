"""Users of this node from /etc/passwd alone, because a cluster's name services may hang."""

from __future__ import annotations

from ...base.named_tuple import NamedTuple
from ...base.untrusted_files import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...base.root import Root


class User(NamedTuple):
    """One user of /etc/passwd."""

    name: str
    uid: int
    home: str


def parse_passwd(text: str) -> dict[int, User]:
    """{uid: User}; if several users have one uid, the first."""
    users: dict[int, User] = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) >= 6 and fields[2].isdigit() and len(fields[2]) <= 10:
            users.setdefault(
                int(fields[2]), User(name=fields[0], uid=int(fields[2]), home=fields[5])
            )
    return users


def read_users(root: Root) -> dict[int, User]:
    """{uid: User}, {} when the file cannot be read."""
    try:
        return parse_passwd(read_text(root, "/etc/passwd", 8 << 20))
    except (OSError, ValueError):
        return {}


def user_name(users: dict[int, User], uid: int | None) -> str | None:
    """The user's name, or the uid as text if it is not in /etc/passwd; None for None."""
    if uid is None:
        return None
    return users[uid].name if uid in users else str(uid)


def user_of_home(users: dict[int, User], home: str) -> User | None:
    """The User with this home folder, or None."""
    return next(
        (user for user in users.values() if user.home.rstrip("/") == home.rstrip("/")), None
    )
