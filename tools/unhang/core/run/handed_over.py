"""What the command line hands to the commands that judge a run: what the wing act knows of it, and
its page.

The audit does not know that wing, and judging reads no HTML.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class HandedOver:
    """Each view takes a run's folder; None if there is nothing to show.

    page        (run's folder, arguments of render_html) -> the HTML page of a run

    plan        {fault, limits, totals, waves, refused, person}
    rollout     {fault, fleet, waves, rows}
    repairs     who repairs the findings of each host, see judge.triage; None: the rule's role is
    shown
    """

    page: Callable[..., str]
    plan: Callable[[Path], dict[str, Any] | None] = lambda _folder: None
    rollout: Callable[[Path], dict[str, Any] | None] = lambda _folder: None
    repairs: Callable[..., Any] | None = None
