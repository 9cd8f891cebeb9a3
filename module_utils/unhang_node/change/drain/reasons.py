"""The reason by which unhang knows what it drained: `unhang RUN: why`."""

from __future__ import annotations

import re

from ...named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, List, Optional

MARK = "unhang"
MAX_CHARACTERS = 200
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_OURS = re.compile(r"unhang ([A-Za-z0-9][A-Za-z0-9._-]{0,79}): ")


class DrainAnswer(NamedTuple):
    """What every adapter answers.

    drained: the node takes no new work now, whoever saw to that. by, reason: who did and why, as the scheduler has it; "" for nobody.
    jobs: work that is still there, [{id, user, state, ends}]; None when it could not be read. owned: the reason is this run's.
    """

    drained: bool
    by: str
    reason: str
    jobs: Optional[List[Dict[str, Any]]]
    owned: bool


class DrainRefused(Exception):
    """The node is not brought to what was asked; the text says why, answer what was found there."""

    def __init__(self, why: str, answer: DrainAnswer):
        super().__init__(why)
        self.answer = answer


def reason_for(run: str, why: str) -> str:
    """The reason of a run, one printable line. Raises ValueError for a run's id that would not be found again in it."""
    if not _RUN.fullmatch(run):
        raise ValueError(f"expected a run's id of letters, digits, '.', '_' and '-', found {run[:100]!r}")
    text = "".join(letter if letter.isprintable() else " " for letter in why)
    # What a scheduler prints behind the reason, or could take for another field, must not stand in it.
    text = " ".join(re.sub(r"[\[\]=\"'\\]", " ", text).split())
    return f"{MARK} {run}: {text or 'maintenance'}"[:MAX_CHARACTERS].rstrip()


def run_of(reason: str) -> Optional[str]:
    """The run that a reason names; None when it is not one of ours."""
    found = _OURS.match(reason + " ")
    return found[1] if found else None


def is_ours(reason: str, runs: Collection[str]) -> bool:
    """True when the reason is that of one of the runs."""
    return run_of(reason) in [run for run in runs if run]


def message_of(problem: Exception) -> str:
    """What went wrong, with the file or program that it is about."""
    text = getattr(problem, "strerror", None) or str(problem)
    name = getattr(problem, "filename", None)
    return f"{name}: {text}" if name else text
