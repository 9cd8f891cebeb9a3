"""What the stages left in a run folder, as structs: findings.json (unhang/findings/1) and the smoke
tests of gate.json (unhang/gate/1).

They have the keys that the stages behind the audit use; other keys of the files are skipped without
being decoded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from unhang.core.errors import UserError
from unhang.core.strict_json import NotStrict, read_bounded

FINDINGS, GATE = "findings.json", "gate.json"
MOST_FINDINGS_BYTES = 1 << 30
MOST_GATE_BYTES = 64 * 1024 * 1024


class Missing(msgspec.Struct, gc=False):
    """A fact that was not read."""

    path: str
    status: str = ""
    reason: str = ""


class Finding(msgspec.Struct, gc=False):
    """One finding. host: None for a finding over several nodes, which names `hosts`."""

    rule: str
    severity: str
    scope: str
    verdict: str
    host: str | None
    title: str = ""
    hosts: list[str] = []
    where: dict[str, Any] = {}
    expected: str = ""
    found: str = ""
    missing: list[Missing] = []
    remedy: dict[str, Any] | None = None
    waiver: dict[str, Any] | None = None

    def about(self) -> list[str]:
        """The hosts that it is about; [] for a finding about the run itself."""
        return [self.host] if self.host is not None else self.hosts


class JudgedRun(msgspec.Struct):
    """Whose findings they are, and on which day they were judged."""

    id: str
    started: str | None = None
    judged: str = ""


class JudgedBy(msgspec.Struct):
    """The policy and the folders of rules of the command line."""

    policy: str | None = None
    rules: list[str] = []


class UsedCatalogue(msgspec.Struct):
    """stopped: rules that were left out."""

    stopped: list[str] = []


class Findings(msgspec.Struct):
    """findings.json. node_verdicts: verdict -> hosts; totals_by_rule: rule -> verdict -> how
    many."""

    run: JudgedRun
    findings: list[Finding]
    node_verdicts: dict[str, list[str]] = {}
    totals_by_rule: dict[str, dict[str, int]] = {}
    catalogue: UsedCatalogue = msgspec.field(default_factory=UsedCatalogue)
    judged_by: JudgedBy = msgspec.field(default_factory=JudgedBy)


class Bandwidth(msgspec.Struct, frozen=True):
    """busbw of one operation and size; low_gb_s: the minimum for this kind of group, if known."""

    op: str
    size_bytes: int
    busbw_gb_s: float
    low_gb_s: float | None = None
    verdict: str = ""
    measures: str = "bandwidth"


class SmokeSummary(msgspec.Struct, frozen=True):
    """The gate's summary of one smoke test."""

    verdict: str | None = None
    hosts: list[str] = []
    world_size: int | None = None
    bandwidth: list[Bandwidth] = []


class GateSmoke(msgspec.Struct, frozen=True):
    """alone: host -> its own test; together: the test of all."""

    alone: dict[str, SmokeSummary | None] = {}
    together: SmokeSummary | None = None


class _Gate(msgspec.Struct, frozen=True):
    smoke: GateSmoke = msgspec.field(default_factory=GateSmoke)


def read_findings_record(folder: Path) -> Findings:
    """findings.json of a run folder. Raises UserError if it is missing or cannot be read."""
    path = folder / FINDINGS
    try:
        return msgspec.json.decode(read_bounded(path, MOST_FINDINGS_BYTES), type=Findings)
    except (OSError, NotStrict, ValueError, RecursionError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise UserError(
            f"the findings of the run in {path} cannot be read: {str(why)[:200]}; next: unhang"
            f" judge {folder}"
        ) from None


def read_gate_smoke(folder: Path) -> GateSmoke | None:
    """The smoke tests of gate.json in a run folder, None without one. Raises ValueError with the
    reason if it cannot be read."""
    path = folder / GATE
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(read_bounded(path, MOST_GATE_BYTES), type=_Gate).smoke
    except (OSError, NotStrict, RecursionError) as problem:
        raise ValueError(str(problem)) from None
