"""A command of README.md, docs/ or a role's page, for a test that runs it. No page is read here, so that another sentence on a page has no node booted anew."""

from __future__ import annotations

import shlex


def as_typed(form, places=None):
    """argv of a command of a page, for a test that runs it. places: word of the page, or part of one, -> what stands for it here.

    test_commands_in_pages.py finds the form where it is given to this function: it knows so that the page's command is run, and fails where no page has it.
    """
    argv = shlex.split(form)
    for example, here in (places or {}).items():
        assert any(example in word for word in argv), f"{example} is not in: {form}"
        argv = [word.replace(example, str(here)) for word in argv]
    return argv
