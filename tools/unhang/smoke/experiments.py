"""After a failure: repeats the failing phase with one thing changed at a time. A change with which
it passes is evidence for the cause, not a fix."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unhang.smoke.node_plans import PHASES, Request, with_changes

# phases without a collective: settings of NCCL change nothing
ALONE = ("launch", "environment", "binding", "rendezvous", "consistency")
LIMIT_S = 60.0
NOTE = "evidence for the cause, no fix: find out why the default way fails before you set this"


@dataclass(frozen=True)
class Experiment:
    """One change. environment: settings for all ranks; alone: one rank on one node instead of the
    group."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    alone: bool = False


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


def worth_trying(result: dict[str, Any]) -> str | None:
    """The phase to try again; None if other settings could show nothing: there was no group, the
    answer is exact, or a node is unfit for more."""
    if result.get("unfit"):
        return None
    failed = [row["name"] for row in result["phases"] if row["status"] not in ("ok", "skip")]
    blamed = [suspect["phase"] for suspect in result["suspects"]]
    candidates = [name for name in [*failed, *blamed] if name in PHASES and name not in ALONE]
    return candidates[0] if result["verdict"] == "fail" and candidates else None


def narrowed(request: Request, phase: str, experiment: Experiment) -> Request:
    """The request with only the failing phase, the change, and a short limit."""
    return with_changes(
        replace(request, phases=(phase,), total_timeout_s=min(request.total_timeout_s, LIMIT_S)),
        experiment.environment,
    )


def experiment_rounds(
    result: dict[str, Any], planned: Sequence[Experiment]
) -> Generator[tuple[Experiment, str], tuple[str, float], list[dict[str, Any]]]:
    """Rows of the result's `experiments`. Yields (experiment, phase) to be tried, is sent (verdict,
    seconds). A failure that does not repeat ends them."""
    phase = worth_trying(result)
    rows: list[dict[str, Any]] = []
    for experiment in planned if phase else ():
        assert phase is not None
        verdict, duration_s = yield experiment, phase
        cured = verdict == "pass"
        note = (
            "it did not happen again: what was broken is gone, or comes and goes"
            if experiment == REPEAT and cured
            else NOTE
            if cured
            else None
        )
        rows.append({
            "name": experiment.name, "phase": phase, "change": dict(experiment.environment),
            "verdict": verdict, "cured": cured, "note": note,
            "duration_s": round(duration_s, 1),
        })  # fmt: skip
        if experiment == REPEAT and cured:
            break
    return rows


def run_experiments(
    result: dict[str, Any],
    planned: Sequence[Experiment],
    attempt: Callable[[Experiment, str], tuple[str, float]],
) -> list[dict[str, Any]]:
    """The same, with attempt(experiment, phase) that runs one and returns (verdict, seconds)."""
    rounds = experiment_rounds(result, planned)
    try:
        wanted = next(rounds)
        while True:
            wanted = rounds.send(attempt(*wanted))
    except StopIteration as done:
        rows: list[dict[str, Any]] = done.value
        return rows
