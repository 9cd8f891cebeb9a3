"""The commands to run next if the log does not decide: few commands that together distinguish as many of the remaining causes as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.ranking import Cause

MOST_COMMANDS = 6
LEAST_BELIEF = 0.03  # minimum weight of a listed cause
USUAL_BELIEF = 0.02  # weight of a cause that is usual in the phase but has no evidence
ASKED_FOR = 0.05  # value of a command that the conclusion itself requests
OUTPUT_OF = {  # facts that show that the output of a command is among the inputs, in the number that is needed -> beginning of the command
    ("stack_process", 2): "py-spy dump",
    ("driver_version", 1): "cat /proc/driver/nvidia/version",
    ("topology", 1): "nvidia-smi topo",
    ("ib_adapter", 1): "ibstat",
}
LATER = 0.6  # factor for each further command in a cause's own list
SECOND = 0.25  # remaining weight of a cause after a command that would prove it


def commands_with_output(facts: Facts) -> list[str]:
    """Beginnings of commands whose output is among the inputs."""
    return [command for (fact, number), command in OUTPUT_OF.items() if len(facts.of(fact)) >= number] + (["the flight recorder's"] if facts.flights else [])


def what_to_run_next(
    causes: Sequence[Cause],
    rows: Mapping[str, Mapping[str, Any]],
    ask: Sequence[str] = (),
    usual: Sequence[str] = (),
    most: int = MOST_COMMANDS,
    *,
    given: Sequence[str] = (),
) -> list[str]:
    """The commands, most informative first. causes: ranked; rows: the catalogue's, each with its list; ask: of the conclusion; usual: causes of the phase;
    given: beginnings of commands whose output was read.
    """
    beliefs = {one: USUAL_BELIEF for one in usual if one in rows}  # another catalogue may lack causes that the rules know
    beliefs.update({cause.id: max(cause.score, LEAST_BELIEF) for cause in causes})
    tells: dict[str, dict[str, float]] = {}
    for cause in beliefs:
        for place, command in enumerate(rows[cause]["collect"]):
            tells.setdefault(command, {})[cause] = LATER**place
    asked = dict.fromkeys(ask, ASKED_FOR)
    chosen: list[str] = []
    while len(chosen) < most and (rest := [one for one in {**tells, **asked} if one not in chosen and not one.startswith(tuple(given))]):
        best = max(rest, key=lambda one: sum(beliefs[cause] * share for cause, share in tells.get(one, {}).items()) + asked.get(one, 0.0))
        chosen.append(best)
        for cause in tells.get(best, ()):
            beliefs[cause] *= SECOND
    return chosen
