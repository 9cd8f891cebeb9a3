"""Which findings of a host a plan would give to a role, for the judge: so that no cause is shown with a role that then does nothing. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unhang.judge.compiled_catalogue import Catalogue
from unhang.judge.documents import NodeDocument
from unhang.plan.departures import Present, present_in
from unhang.plan.nccl_known import read_known
from unhang.plan.role_remedies import LOOKED_AT, RoleRemedies, sort_remedies
from unhang.triage.found import Found

_encode = msgspec.json.Encoder(order="deterministic").encode


class Promise:
    """Asked by triage. Nodes that are alike in findings, policy and versions are planned once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.reads = {rule.id: rule.decision_reads for rule in catalogue.rules}
        self.known = read_known()
        self.before: dict[Any, RoleRemedies] = {}

    def keep(self, document: NodeDocument) -> Present:
        """What is needed of a node's facts."""
        return present_in(document.sections)

    def repaired(self, findings: Sequence[Found], policy: Mapping[str, Any], policy_key: int, present: Present) -> RoleRemedies:
        """What roles repair of one host's findings, and what they do not and why. policy_key: the same for equal policies."""
        about = [(one.rule, one.severity, one.scope, [one.where.get(key) for key in LOOKED_AT], one.remedy) for one in findings]
        key = (policy_key, _encode(about), present)
        if key not in self.before:
            rows = [{"rule": one.rule, "severity": one.severity, "scope": one.scope, "where": one.where, "remedy": one.remedy} for one in findings]
            self.before[key] = sort_remedies(rows, policy, present, self.reads, self.known)
        return self.before[key]
