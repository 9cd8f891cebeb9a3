"""The smoke tests that the page shows: those of the rollout in the run folder, the gate's, and
files that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unhang.core.run.record import GATE, Bandwidth, GateSmoke, read_gate_smoke
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.core.text import visible

MOST_READ = 400  # results of a large rollout, the newest first
LARGEST_BYTES = 64 << 20


class Phase(msgspec.Struct, frozen=True):
    """duration_s: of the slowest rank; steps: its longest ones, in seconds."""

    name: str
    status: str
    duration_s: float
    steps: dict[str, float] = {}


class Suspect(msgspec.Struct, frozen=True):
    phase: str
    why: str
    host: str | None = None
    rank: int | None = None


class Member(msgspec.Struct, frozen=True):
    host: str


class Group(msgspec.Struct, frozen=True):
    gpu: str = ""
    gpus: int = 0


class SmokeResult(msgspec.Struct, frozen=True):
    """The fields of unhang/smoke/1 that the page needs."""

    verdict: str
    world_size: int | None
    hosts: list[Member]
    phases: list[Phase] = []
    group: Group | None = None
    started: str = ""
    duration_s: float = 0.0
    bandwidth: list[Bandwidth] = []
    collectives: list[Bandwidth] = []
    suspects: list[Suspect] = []

    @property
    def rates(self) -> list[Bandwidth]:
        """Measured bandwidth, judged or not."""
        return self.bandwidth or [row for row in self.collectives if row.measures == "bandwidth"]


@dataclass(frozen=True)
class SmokeTests:
    """faults: a line for each result that could not be read; unread: number of older results that
    were not read."""

    results: tuple[SmokeResult, ...]
    faults: tuple[str, ...] = ()
    unread: int = 0


def read_smoke_tests(run_dir: Path, named: Sequence[Path] = ()) -> SmokeTests:
    """All results, the newest first. A file that is no result becomes a fault and does not affect
    the others."""
    found = sorted(run_dir.glob("smoke/*/*/result.json"), reverse=True)
    results: list[SmokeResult] = []
    faults: list[str] = []
    for path in [*named, *found[:MOST_READ]]:
        try:
            results.append(msgspec.json.decode(read_bounded(path, LARGEST_BYTES), type=SmokeResult))
        except (OSError, NotStrict, ValueError, RecursionError) as problem:
            faults.append(
                f"{visible(str(path), 200)} is not a result of the smoke test:"
                f" {visible(str(problem), 160)}"
            )
    results += _of_the_gate(
        run_dir, {tuple(member.host for member in one.hosts) for one in results}, faults
    )
    return SmokeTests(tuple(results), tuple(faults), max(0, len(found) - MOST_READ))


def _of_the_gate(
    run_dir: Path, known: set[tuple[str, ...]], faults: list[str]
) -> list[SmokeResult]:
    """The gate's summaries of tests whose own results are missing."""
    try:
        smoke = read_gate_smoke(run_dir) or GateSmoke()
    except ValueError as problem:
        faults.append(f"{GATE} is not the outcome of the gate: {visible(str(problem), 160)}")
        return []
    given = [
        one
        for one in (smoke.together, *smoke.alone.values())
        if one is not None and tuple(one.hosts) not in known
    ]
    return [
        SmokeResult(
            one.verdict or "error",
            one.world_size,
            [Member(host) for host in one.hosts],
            bandwidth=one.bandwidth,
        )
        for one in given
    ]
