"""Whether a machine was so busy that a rank may only have been slow. Values in, values out.

The limits are far from idle: a hang leaves its ranks asleep, or spinning on GPUs beside CPUs that
are free; tasks that wait for a CPU for half of the time are more tasks than CPUs
(https://docs.kernel.org/accounting/psi.html).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from unhang.core.smoke_result import SmokeResult
from unhang.core.verdict.suspect import Suspect
from unhang_node.base.parse.values import as_map, number_of

WAITED = 0.5  # of the time, beside more runnable tasks than CPUs
QUEUE = 2.0  # runnable tasks for each CPU, where the kernel counts no pressure
STOLEN = 0.2
# of the time, that threads of a rank waited for a CPU: 0.19 to 0.85 where a rank was only slow,
# 0.02 where it hung
QUEUED = 0.1
NEXT = "run it again when the machine is less busy, or let each step take longer: --step-timeout"
AGAIN = "run it again on idle machines, and more than once: what comes and goes is found so"
MOST_LOADS = 4


def busy_reason(node: Mapping[str, Any]) -> str | None:
    """Why a node's ranks may only have been slow, from the evidence of the node; None if its load
    is low or was not read."""
    load = as_map(node.get("load"))
    cpus, runnable = number_of(load.get("cpus")), number_of(load.get("runnable"))
    waited, stolen = load.get("waited"), number_of(load.get("stolen"))
    queued = runnable > cpus > 0 if waited is not None else runnable > QUEUE * cpus > 0
    if not (queued and (waited is None or number_of(waited) >= WAITED)) and stolen < STOLEN:
        return None
    reasons = [_tasks(node)]
    reasons += (
        [f"tasks waited for a CPU {100 * number_of(waited):.0f} % of the time"] if waited else []
    )
    reasons += [f"the hypervisor took {100 * stolen:.0f} %"] if stolen else []
    return f"the machine is busy ({', '.join(reasons)}, over {number_of(load.get('over_s')):.0f} s)"


def _tasks(node: Mapping[str, Any]) -> str:
    load = as_map(node.get("load"))
    return f"{number_of(load.get('runnable')):g} tasks for {number_of(load.get('cpus')):g} CPUs"


def excuse_busy(
    suspects: Sequence[Suspect],
    nodes: Sequence[Mapping[str, Any]],
    evidence: Sequence[Mapping[str, Any]],
) -> tuple[list[Suspect], str | None]:
    """(the suspects, why nothing is proved): what may only have been slow on a busy machine accuses
    nobody, unless its ranks did not wait for a CPU. The reason is None if other suspects remain.
    nodes, evidence: rows of the result."""
    waited = {row["rank"]: number_of(row["queued"]) for row in evidence if "queued" in row}
    reasons = {row["host"]: reason for row in nodes if (reason := busy_reason(row))}
    first = next((f"{host}: {reason}" for host, reason in reasons.items()), None)
    answered = []
    for suspect in suspects:
        reason = first if suspect.host is None else reasons.get(suspect.host)
        ranks = waited.values() if suspect.rank is None else [waited.get(suspect.rank, QUEUED)]
        is_slow = suspect.may_be_slow and reason and max(ranks, default=QUEUED) >= QUEUED
        answered.append(_excused(suspect, f"{reason}", NEXT) if is_slow else suspect)
    excused = [one for one, before in zip(answered, suspects, strict=True) if one is not before]
    return answered, first if excused and len(excused) == len(suspects) else None


def excuse_cured(result: SmokeResult, phase: str) -> SmokeResult:
    """The result after this phase was repeated and passed: what may only have been slow in it is
    not proved. A wrong value, an end, a refusal and a fault of the node are."""
    loads = [f"{row['host']} had {_tasks(row)}" for row in result.nodes if row.get("load")]
    reason = f"the same again passed; {', '.join(loads[:MOST_LOADS]) or 'the load was not read'}"
    cured = [one.may_be_slow and one.phase == phase for one in result.suspects]
    suspects = [
        _excused(one, reason, AGAIN) if is_cured else one
        for one, is_cured in zip(result.suspects, cured, strict=True)
    ]
    changes = {"verdict": "error", "not_proved": reason} if all(cured) else {}
    return msgspec.structs.replace(result, suspects=suspects, **changes)


def _excused(suspect: Suspect, reason: str, then: str) -> Suspect:
    return replace(suspect, why=f"{suspect.why}; not proved: {reason}", next=then, blind=True)
