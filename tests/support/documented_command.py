"""A command of README.md, docs/ or a role's page, for a test that runs it. No page is read here, so
that a new sentence on a page does not boot nodes again."""

from __future__ import annotations

import shlex


def as_typed(form, places=None):
    """argv of a command of a page, for a test that runs it. places: word of the page, or part of
    one, -> its replacement here.

    test_commands_in_pages.py searches for calls of this function: by them it knows which commands
    are run, and it fails where no page has the command.
    """
    return filled(form, places)


def filled(form, places=None):
    """The same for a command that no page has, such as one that `unhang explain` prints."""
    argv = shlex.split(form)
    for example, here in (places or {}).items():
        assert any(example in word for word in argv), f"{example} is not in: {form}"
        argv = [word.replace(example, str(here)) for word in argv]
    return argv
