"""What to run next if the log does not decide: four commands or questions at most, each with its outcomes; two beside causes, which have checks of their own.

First what the conclusion itself asks for, then the rows of the catalogue's table `next_steps` that fit the circumstances, one for each thing that is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from unhang.core import catalogue
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.rules.recording_rules import common_place

MOST_COMMANDS = 4
MOST_BESIDE_CAUSES = 2
OUTPUT_OF = {  # facts that show that the output of a command is among the inputs, in the number that is needed -> beginning of the command
    ("driver_version", 1): "cat /proc/driver/nvidia/version",
    ("topology", 1): "nvidia-smi topo",
    ("ib_adapter", 1): "ibstat",
}
STACKS = "stacks"
BETWEEN_GPUS = ("the same job with NCCL_P2P_DISABLE", "the same start with NCCL_P2P_DISABLE")
# What rows ask for -> circumstances in which it has been answered, or cannot be.
ANSWERED_BY = {STACKS: {"stacks-given", "ended"}, "nccl": {"nccl-log-given"}}


def commands_with_output(facts: Facts) -> list[str]:
    """Beginnings of commands whose output is among the inputs, or that decide nothing where all stacks stand outside of collectives."""
    given = [command for (fact, number), command in OUTPUT_OF.items() if len(facts.of(fact)) >= number]
    return given + (["the flight recorder's"] if facts.flights else []) + ([*BETWEEN_GPUS] if common_place(facts) else [])


def what_to_run_next(
    told: Collection[str], *, first: Sequence[str] = (), error: Mapping[str, Any] | None = None, given: Sequence[str] = (), beside_causes: bool = False
) -> list[str]:
    """The commands, each with a line for each outcome. told: the circumstances; first: what the conclusion asks for; error: the row of `error_words` for the
    line of a failure; given: beginnings of commands whose output was read, or that nobody here can run.
    """
    asked = {*([STACKS] if first else []), *([error.get("asks") or ""] if error else [])}
    rows = [row for row in rows_for(told, asked) if not row["run"].startswith(tuple(given))]
    if error:
        rows.insert(1 if "changed" in told else 0, error)  # what was changed is asked before what the error says
    steps = ["\n".join([row["run"], *row["tells"]]) for row in rows]
    return [*first, *steps][: MOST_BESIDE_CAUSES if beside_causes else MOST_COMMANDS]


def rows_for(told: Collection[str], asked: Collection[str] = ()) -> list[Mapping[str, Any]]:
    """The rows of `next_steps` that fit the circumstances, one for each thing that they ask for. asked: what is asked for already."""
    seen = {*asked, *(asks for asks, answers in ANSWERED_BY.items() if answers & set(told))}
    found: list[Mapping[str, Any]] = []
    for row in catalogue.table("next_steps").values():
        if row["asks"] not in seen and set(row["when"]) <= set(told) and not set(row["unless"]) & set(told):
            seen.add(row["asks"])
            found.append(row)
    return found
