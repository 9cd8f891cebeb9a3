"""Decides which findings of a host a plan would give to a role, so that the judge shows no cause with a role that would do nothing. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from unhang.audit.judge.compiled_catalogue import Catalogue
from unhang.audit.judge.documents import NodeDocument, to_fragment
from unhang.audit.triage.found import Found
from unhang.base.text import visible
from unhang.repair.plan.departures import Present, present_in
from unhang.repair.plan.policy_check import PolicyJudge
from unhang.repair.plan.role_refusals import role_refusals
from unhang.repair.plan.role_remedies import LONGEST, LOOKED_AT, RoleRemedies, sort_remedies
from unhang.repair.role_changes.nccl_setting_check import read_known

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Judged:
    """The input of judging a policy. policy: the inventory's, unchanged. facts: of PolicyJudge.facts(), b"" for a node that was not read."""

    host: str
    groups: tuple[str, ...]
    policy: Mapping[str, Any]
    facts: bytes


@dataclass(frozen=True)
class Kept:
    """The data of a node that is kept until all nodes are judged. refusals: (role, reason) of roles that would refuse the node as a whole."""

    present: Present
    refusals: tuple[tuple[str, str], ...] = ()
    judged: Judged | None = field(default=None, compare=False)  # of one host; the other fields are the same for equal hosts


class Promise:
    """Answers triage. Nodes with equal findings, policy and versions are planned once. today: the day for which waivers are judged."""

    def __init__(self, catalogue: Catalogue, today: str) -> None:
        self.reads = {rule.id: rule.decision_reads for rule in catalogue.rules}
        self.known = read_known()
        self.before: dict[Any, RoleRemedies] = {}
        self.judge = PolicyJudge(catalogue, today)

    def keep(self, document: NodeDocument) -> Kept:
        """The data of a node's facts that repaired() needs."""
        facts = self.judge.facts(document.sections) if document.sections is not None else b""
        judged = Judged(document.host, document.groups, document.policy, facts)
        return Kept(present_in(document.sections), tuple(role_refusals(document.sections).items()), judged)

    def repaired(self, findings: Sequence[Found], policy: Mapping[str, Any], policy_key: int, kept: Kept) -> RoleRemedies:
        """The findings of a host that roles repair, and those that they do not, with the reasons. policy_key: equal for equal policies."""
        found = self._known(findings, policy, policy_key, kept)
        reason = self._refusal(found.policy, kept.judged) if found.roles and kept.judged is not None else ""
        if not reason:
            return found
        turned_down = ((rule, reason) for rules in found.roles.values() for rule in rules)
        return replace(found, roles={}, turned_down=(*found.turned_down, *turned_down))

    def _refusal(self, policy: Mapping[str, Any], judged: Judged) -> str:
        """The reason why no role changes this host, as remediate.yml prints it; "" if roles do. policy: the one that they would apply."""
        sections = to_fragment(msgspec.json.decode(judged.facts)) if judged.facts else None
        applied = policy if self.judge.is_usable(judged.policy) else judged.policy
        refusals = self.judge.refusals(judged.host, judged.groups, applied, sections)
        why = "; ".join(f"{one['title']} ({one['rule']})" for one in refusals)
        return visible(f"no role acts on this node, for its unhang_policy is refused: {why}; correct unhang_policy first", LONGEST) if why else ""

    def _known(self, findings: Sequence[Found], policy: Mapping[str, Any], policy_key: int, kept: Kept) -> RoleRemedies:
        """The part of the result that does not depend on the judge of policies, from the cache."""
        about = [(one.rule, one.severity, one.scope, [one.where.get(key) for key in LOOKED_AT], one.remedy) for one in findings]
        key = (policy_key, _encode(about), kept)
        if key not in self.before:
            rows = [{"rule": one.rule, "severity": one.severity, "scope": one.scope, "where": one.where, "remedy": one.remedy} for one in findings]
            self.before[key] = self._sorted(rows, policy, kept)
        return self.before[key]

    def _sorted(self, rows: list[dict[str, Any]], policy: Mapping[str, Any], kept: Kept) -> RoleRemedies:
        """Sorts findings as plan_for_host does: the findings of a role that refuses the node are left to a person, and their proposals are not merged into
        the policy."""
        whole = sort_remedies(rows, policy, kept.present, self.reads, self.known)
        reasons = {role: reason for role, reason in kept.refusals if role in whole.roles}
        if not reasons:
            return whole
        remaining = [one for one in rows if (one["remedy"] or {}).get("role") not in reasons]
        turned_down = ((rule, _reason(role, reason)) for role, reason in reasons.items() for rule in whole.roles[role])
        return replace(sort_remedies(remaining, policy, kept.present, self.reads, self.known), person=whole.person, turned_down=tuple(sorted(turned_down)))


def _reason(role: str, reason: str) -> str:
    return visible(f"role {role} refuses this node: {reason}", LONGEST)
