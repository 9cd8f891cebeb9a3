"""An error that a command reports to its user in one line."""

from __future__ import annotations


class UserError(Exception):
    """Says what was expected, what was found, where, and what to do next; ends the command with exit code 2."""
