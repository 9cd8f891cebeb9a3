"""The baseline of a node: its findings and hardware before a change.

The node keeps it until it is proved healthy or rolled back, so that a retry does not mistake damage
by the first run for the earlier state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from unhang.core.errors import UserError
from unhang.core.run.record import Finding

SCHEMA = "unhang/baseline/1"
KEPT = "baselines"  # beside the plan, a copy of each that a rollout has stored on its node
MOST_FINDINGS = 10_000
NEXT = "move /var/lib/unhang/baseline.json away on the node after a look"


@dataclass(frozen=True)
class Baseline:
    """State of one host before a run changed it: failed findings and undecided rules (key_of each),
    and the hardware."""

    run: str
    failed: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    hardware: Mapping[str, Any] = field(default_factory=dict)


def baseline_of(
    run: str, findings: Iterable[Finding], host: str, hardware: Mapping[str, Any]
) -> Baseline:
    """A baseline from the findings of a run that has changed nothing yet."""
    own = findings_of(findings, host)
    return Baseline(run, with_verdict(own, "fail"), with_verdict(own, "unknown"), dict(hardware))


def to_document(baseline: Baseline) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **asdict(baseline),
        "failed": sorted(baseline.failed),
        "unknown": sorted(baseline.unknown),
    }


def from_document(document: object) -> Baseline:
    """The baseline from the JSON object that a node has kept. Raises UserError."""
    if (
        not isinstance(document, dict)
        or document.get("schema") != SCHEMA
        or not isinstance(document.get("hardware"), dict)
    ):
        raise UserError(f"the file is not the node's baseline ({SCHEMA}); {NEXT}")
    lists = [document.get("failed"), document.get("unknown")]
    if not all(
        isinstance(one, list)
        and len(one) <= MOST_FINDINGS
        and all(isinstance(rule, str) for rule in one)
        for one in lists
    ):
        raise UserError(f"the node's baseline must hold lists of findings, and does not; {NEXT}")
    return Baseline(
        str(document.get("run")),
        frozenset(document["failed"]),
        frozenset(document["unknown"]),
        document["hardware"],
    )


def findings_of(findings: Iterable[Finding], host: str) -> list[Finding]:
    """A host's own findings; findings of groups name `hosts` and no host."""
    return [one for one in findings if one.host == host and one.scope == "node"]


def with_verdict(findings: Iterable[Finding], verdict: str) -> frozenset[str]:
    """Keys of the findings of this verdict."""
    return frozenset(key_of(one) for one in findings if one.verdict == verdict)


def key_of(finding: Finding) -> str:
    """The rule, and the device if it is about one: the same fault of a second GPU is another
    finding."""
    where = finding.where
    device = where.get("uuid") or where.get("pci_address")
    return f"{finding.rule} {device}" if device else finding.rule


def rules_of(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key.partition(" ")[0] for key in keys)
