"""What to run next where the log does not decide: few commands, which together tell as many of the causes that are left apart as they can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.diagnose.ranking import Cause

MOST_COMMANDS = 6
LEAST_BELIEF = 0.03  # of a cause that is listed at all
USUAL_BELIEF = 0.02  # of a cause that is usual in the phase, and that nothing speaks for
ASKED_FOR = 0.05  # what a command counts for that the answer itself asks for
LATER = 0.6  # how much less each further command of a cause's own list tells
SECOND = 0.25  # what is left of a cause once a command is listed that would tell it


def what_to_run_next(
    causes: Sequence[Cause], rows: Mapping[str, Mapping[str, Any]], ask: Sequence[str] = (), usual: Sequence[str] = (), most: int = MOST_COMMANDS
) -> list[str]:
    """The commands, most telling first. causes: ranked; rows: the catalogue's, each with its list; ask: of the answer; usual: causes of the phase."""
    beliefs = dict.fromkeys(usual, USUAL_BELIEF)
    beliefs.update({cause.id: max(cause.score, LEAST_BELIEF) for cause in causes})
    tells: dict[str, dict[str, float]] = {}
    for cause in beliefs:
        for place, command in enumerate(rows[cause]["collect"]):
            tells.setdefault(command, {})[cause] = LATER**place
    asked = dict.fromkeys(ask, ASKED_FOR)
    chosen: list[str] = []
    while len(chosen) < most and (rest := [one for one in {**tells, **asked} if one not in chosen]):
        best = max(rest, key=lambda one: sum(beliefs[cause] * share for cause, share in tells.get(one, {}).items()) + asked.get(one, 0.0))
        chosen.append(best)
        for cause in tells.get(best, ()):
            beliefs[cause] *= SECOND
    return chosen
