"""Which findings of a host a plan would give to a role, for the judge: so that no cause is shown with a role that then does nothing. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from unhang.judge.compiled_catalogue import Catalogue
from unhang.judge.documents import NodeDocument
from unhang.plan.departures import Present, present_in
from unhang.plan.nccl_known import read_known
from unhang.plan.role_refusals import role_refusals
from unhang.plan.role_remedies import LONGEST, LOOKED_AT, RoleRemedies, sort_remedies
from unhang.text import visible
from unhang.triage.found import Found

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Kept:
    """What is needed of a node's facts. refusals: (role, reason) of roles that would refuse the node as a whole."""

    present: Present
    refusals: tuple[tuple[str, str], ...] = ()


class Promise:
    """Asked by triage. Nodes that are alike in findings, policy and versions are planned once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.reads = {rule.id: rule.decision_reads for rule in catalogue.rules}
        self.known = read_known()
        self.before: dict[Any, RoleRemedies] = {}

    def keep(self, document: NodeDocument) -> Kept:
        """What is needed of a node's facts."""
        return Kept(present_in(document.sections), tuple(role_refusals(document.sections).items()))

    def repaired(self, findings: Sequence[Found], policy: Mapping[str, Any], policy_key: int, kept: Kept) -> RoleRemedies:
        """What roles repair of one host's findings, and what they do not and why. policy_key: the same for equal policies."""
        about = [(one.rule, one.severity, one.scope, [one.where.get(key) for key in LOOKED_AT], one.remedy) for one in findings]
        key = (policy_key, _encode(about), kept)
        if key not in self.before:
            rows = [{"rule": one.rule, "severity": one.severity, "scope": one.scope, "where": one.where, "remedy": one.remedy} for one in findings]
            self.before[key] = self._sorted(rows, policy, kept)
        return self.before[key]

    def _sorted(self, rows: list[dict[str, Any]], policy: Mapping[str, Any], kept: Kept) -> RoleRemedies:
        """As plan_for_host sorts them: what a refusing role would have repaired, a person does, and what its findings propose stays out of the policy."""
        whole = sort_remedies(rows, policy, kept.present, self.reads, self.known)
        reasons = {role: reason for role, reason in kept.refusals if role in whole.roles}
        if not reasons:
            return whole
        left = [one for one in rows if (one["remedy"] or {}).get("role") not in reasons]
        turned_down = ((rule, _reason(role, reason)) for role, reason in reasons.items() for rule in whole.roles[role])
        return replace(sort_remedies(left, policy, kept.present, self.reads, self.known), person=whole.person, turned_down=tuple(sorted(turned_down)))


def _reason(role: str, reason: str) -> str:
    return visible(f"role {role} refuses this node: {reason}", LONGEST)
