"""Users of this node as /etc/passwd has them: the name services of a cluster may hang, and are not asked."""

from __future__ import annotations

from ..files import read_text
from ..named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..root import Root


class User(NamedTuple):
    """One user of /etc/passwd."""

    name: str
    uid: int
    home: str


def parse_passwd(text: str) -> dict[int, User]:
    """{uid: User}; of several with one uid the first."""
    users: dict[int, User] = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) >= 6 and fields[2].isdigit() and len(fields[2]) <= 10:
            users.setdefault(int(fields[2]), User(name=fields[0], uid=int(fields[2]), home=fields[5]))
    return users


def read_users(root: Root) -> dict[int, User]:
    """{uid: User}, {} when the file cannot be read."""
    try:
        return parse_passwd(read_text(root, "/etc/passwd", 8 << 20))
    except (OSError, ValueError):
        return {}


def user_name(users: dict[int, User], uid: int | None) -> str | None:
    """The user's name, or his number as text where only a name service knows it; None for None."""
    if uid is None:
        return None
    return users[uid].name if uid in users else str(uid)


def user_of_home(users: dict[int, User], home: str) -> User | None:
    """The User whose home this is, or None."""
    return next((user for user in users.values() if user.home.rstrip("/") == home.rstrip("/")), None)
