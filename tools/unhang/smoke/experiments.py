"""After a failure: repeats the failing phase with one thing changed at a time. A change with which
it passes is evidence for the cause, not a fix."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from unhang.core.smoke_result import SmokeResult, Trial
from unhang.smoke.busy import excuse_cured
from unhang.smoke.node_plans import PHASES, Request, with_changes

# phases without a collective: settings of NCCL change nothing
ALONE = ("launch", "environment", "binding", "rendezvous", "consistency")
BANDWIDTH = "bandwidth"
LIMIT_S = 60.0
NOTE = "evidence for the cause, no fix: find out why the default way fails before you set this"


@dataclass(frozen=True)
class Experiment:
    """One change. environment: settings for all ranks; alone: one rank on one node instead of the
    group."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    alone: bool = False


# (experiment, phase) to be tried -> (verdict, seconds)
Attempt = Callable[[Experiment, str], Generator[Any, Any, tuple[str, float]]]
REPEAT = Experiment("the same again")
ONE_RANK = Experiment("one rank alone", alone=True)
FOR_NCCL = (
    Experiment("peer-to-peer off", {"NCCL_P2P_DISABLE": "1"}),
    Experiment("shared memory off", {"NCCL_SHM_DISABLE": "1"}),
    Experiment("NVLS off", {"NCCL_NVLS_ENABLE": "0"}),
    Experiment("InfiniBand off", {"NCCL_IB_DISABLE": "1"}),
    Experiment("algorithm Ring", {"NCCL_ALGO": "Ring"}),
    Experiment("algorithm Tree", {"NCCL_ALGO": "Tree"}),
)


def plan_experiments(backend: str, interfaces: Iterable[str] = ()) -> list[Experiment]:
    """The experiments that are useful with this backend; interfaces: the unused ones that all nodes
    have."""
    variable = "NCCL_SOCKET_IFNAME" if backend == "nccl" else "GLOO_SOCKET_IFNAME"
    others = [Experiment(f"interface {name}", {variable: name}) for name in interfaces]
    return [REPEAT, ONE_RANK, *(FOR_NCCL if backend == "nccl" else ()), *others]


def worth_trying(result: SmokeResult) -> str | None:
    """The phase to try again; None if other settings could show nothing: there was no group, the
    answer is exact, or a node is unfit for more."""
    if result.unfit:
        return None
    failed = [row.name for row in result.phases if row.status not in ("ok", "skip")]
    blamed = [suspect.phase for suspect in result.suspects]
    candidates = [name for name in [*failed, *blamed] if name in PHASES and name not in ALONE]
    return candidates[0] if result.verdict == "fail" and candidates else None


def narrowed(request: Request, phase: str, experiment: Experiment) -> Request:
    """The request with only the failing phase, the change, and a short limit."""
    return with_changes(
        replace(request, phases=(phase,), total_timeout_s=min(request.total_timeout_s, LIMIT_S)),
        experiment.environment,
    )


def experiment_rounds(
    result: SmokeResult, planned: Sequence[Experiment], attempt: Attempt
) -> Generator[Any, Any, SmokeResult]:
    """The result with its experiments. attempt: tries one in this phase, in rounds of its own. A
    failure that does not repeat ends them, and is not proved. Another way has another bandwidth, so
    that one is only repeated."""
    phase = worth_trying(result)
    if phase is None:
        return result
    rows: list[Trial] = []
    for experiment in [REPEAT] if phase == BANDWIDTH else planned:
        verdict, duration_s = yield from attempt(experiment, phase)
        cured = verdict == "pass"
        note = (
            "it did not happen again: what was broken is gone, or comes and goes"
            if experiment == REPEAT and cured
            else NOTE
            if cured
            else None
        )
        rows.append(Trial(
            experiment.name, phase, experiment.environment, verdict, cured, note,
            round(duration_s, 1),
        ))  # fmt: skip
        result = msgspec.structs.replace(result, experiments=rows)
        if experiment == REPEAT and cured:
            return excuse_cured(result, phase)
    return result
