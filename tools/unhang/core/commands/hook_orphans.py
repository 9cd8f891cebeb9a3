"""A hook whose processes all end with it: of a command that has no other children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.ansible.play_process import adopt_orphans, child_processes, end_orphans
from unhang.core.commands.hooks import HOOK_S, call_in_a_session


def call_and_end_all(
    argv: Sequence[str], news: Mapping[str, Any], limit_s: float = HOOK_S
) -> str | None:
    """As call_in_a_session; all processes that the program started end too."""
    adopt_orphans()
    others = set(child_processes())
    try:
        return call_in_a_session(argv, news, limit_s)
    finally:
        end_orphans(others)  # also those of a session of their own
