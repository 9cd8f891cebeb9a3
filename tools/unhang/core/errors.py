"""An error that a command reports to its user in one line."""

from __future__ import annotations


class UserError(Exception):
    """Its text has what was expected, what was found, where, and the next step; it ends the command
    with exit code 2, or with its `code`."""
