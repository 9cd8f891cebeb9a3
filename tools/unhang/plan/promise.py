"""Which findings of a host a plan would give to a role, for the judge: so that no cause is shown with a role that then does nothing. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from unhang.judge.compiled_catalogue import Catalogue
from unhang.judge.documents import NodeDocument
from unhang.plan.departures import Present, present_in
from unhang.plan.nccl_known import read_known
from unhang.plan.policy_check import PolicyJudge
from unhang.plan.policy_facts import facts_under, sections_of, tree_of
from unhang.plan.role_refusals import role_refusals
from unhang.plan.role_remedies import LONGEST, LOOKED_AT, RoleRemedies, sort_remedies
from unhang.text import visible
from unhang.triage.found import Found

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Judged:
    """What a policy is judged by. policy: of the inventory, as it stands there. facts: as facts_under() gives them, b"" for a node that was not read."""

    host: str
    groups: tuple[str, ...]
    policy: Mapping[str, Any]
    facts: bytes


@dataclass(frozen=True)
class Kept:
    """What is needed of a node's facts. refusals: (role, reason) of roles that would refuse the node as a whole."""

    present: Present
    refusals: tuple[tuple[str, str], ...] = ()
    judged: Judged | None = field(default=None, compare=False)  # of one host; the rest is the same for hosts that are alike


class Promise:
    """Asked by triage. Nodes that are alike in findings, policy and versions are planned once. today: the day that waivers are judged by."""

    def __init__(self, catalogue: Catalogue, today: str) -> None:
        self.reads = {rule.id: rule.decision_reads for rule in catalogue.rules}
        self.known = read_known()
        self.before: dict[Any, RoleRemedies] = {}
        self.judge = PolicyJudge(catalogue, today)
        self._tree = tree_of(self.judge.reads)
        self._facts: dict[bytes, Any] = {}  # what decides, as JSON -> the same, typed; None until a policy is judged by it

    def keep(self, document: NodeDocument) -> Kept:
        """What is needed of a node's facts."""
        facts = facts_under(self._tree, document.sections) if document.sections is not None else b""
        self._facts.setdefault(facts)
        judged = Judged(document.host, document.groups, document.policy, facts)
        return Kept(present_in(document.sections), tuple(role_refusals(document.sections).items()), judged)

    def repaired(self, findings: Sequence[Found], policy: Mapping[str, Any], policy_key: int, kept: Kept) -> RoleRemedies:
        """What roles repair of one host's findings, and what they do not and why. policy_key: the same for equal policies."""
        found = self._known(findings, policy, policy_key, kept)
        reason = self._refusal(found.policy, kept.judged) if found.roles and kept.judged is not None else ""
        if not reason:
            return found
        turned_down = ((rule, reason) for rules in found.roles.values() for rule in rules)
        return replace(found, roles={}, turned_down=(*found.turned_down, *turned_down))

    def _refusal(self, policy: Mapping[str, Any], judged: Judged) -> str:
        """Why no role acts on this host at all, as remediate.yml says it; "" where roles do. policy: the one that they would be played with."""
        if judged.facts and self._facts[judged.facts] is None:
            self._facts[judged.facts] = sections_of(judged.facts)
        applied = policy if self.judge.is_usable(judged.policy) else judged.policy
        refusals = self.judge.refusals(judged.host, judged.groups, applied, self._facts[judged.facts])
        why = "; ".join(f"{one['title']} ({one['rule']})" for one in refusals)
        return visible(f"no role acts on this node, for its unhang_policy is refused: {why}; correct unhang_policy first", LONGEST) if why else ""

    def _known(self, findings: Sequence[Found], policy: Mapping[str, Any], policy_key: int, kept: Kept) -> RoleRemedies:
        """What does not depend on the judge of policies."""
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
        remaining = [one for one in rows if (one["remedy"] or {}).get("role") not in reasons]
        turned_down = ((rule, _reason(role, reason)) for role, reason in reasons.items() for rule in whole.roles[role])
        return replace(sort_remedies(remaining, policy, kept.present, self.reads, self.known), person=whole.person, turned_down=tuple(sorted(turned_down)))


def _reason(role: str, reason: str) -> str:
    return visible(f"role {role} refuses this node: {reason}", LONGEST)
