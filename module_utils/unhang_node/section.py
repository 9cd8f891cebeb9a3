"""What a section's reader is given, and how it says that a field could not be read."""

from __future__ import annotations

import errno


class Unread:
    """Fields of one section that stay null, each with its reason; becomes probe.unread."""

    def __init__(self):
        self.rows = []

    def add(self, field, status, reason):
        """field: path inside the section; status: absent, denied, timeout or error; reason: one line."""
        row = {"field": field, "status": status, "reason": str(reason)[:1024]}
        if row not in self.rows:
            self.rows.append(row)

    def of_error(self, field, error):
        """Notes an OSError or ValueError under the status that it means."""
        self.add(field, status_of_error(error), one_line(error))

    def attempt(self, field, read, *arguments):
        """read(*arguments), or None with the reason noted when it raises OSError or ValueError."""
        try:
            return read(*arguments)
        except (OSError, ValueError) as problem:
            self.of_error(field, problem)
            return None


def status_of_error(error):
    """absent, denied, timeout or error."""
    code = getattr(error, "errno", None)
    if code in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO):
        return "absent"
    if code in (errno.EACCES, errno.EPERM):
        return "denied"
    if code in (errno.ETIMEDOUT, errno.ESTALE):
        return "timeout"
    return "error"


def one_line(error):
    """An exception as one line without control characters."""
    text = "{}: {}".format(type(error).__name__, error)
    return "".join(character if character.isprintable() else " " for character in text)[:1024]
