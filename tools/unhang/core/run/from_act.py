"""What the wing act knows of a run that the audit shows: who repairs a finding, the plan, the rollout.

The audit does not know that wing; the command line hands this over with the arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FromAct:
    """Each view takes a run's folder; None if there is nothing to show.

    plan        {fault, limits, totals, waves, refused, person}
    rollout     {fault, fleet, waves, rows}
    repairs     who repairs the findings of each host, see audit.triage; None: the rule's role is shown
    """

    plan: Callable[[Path], dict[str, Any] | None] = lambda _folder: None
    rollout: Callable[[Path], dict[str, Any] | None] = lambda _folder: None
    repairs: Callable[..., Any] | None = None


def from_act(arguments: argparse.Namespace) -> FromAct:
    """What was handed over; a caller that hands over nothing gets a page without plan."""
    return getattr(arguments, "from_act", FromAct())
