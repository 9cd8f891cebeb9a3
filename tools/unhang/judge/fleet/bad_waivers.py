"""Findings about a waiver itself, such as one that has expired: one for each waiver, whatever
number of nodes has the policy that contains it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unhang.core.schemas.policy import Waiver, waivers_of
from unhang.judge.fleet.findings import Entry
from unhang.judge.rules.groups import GroupJudged
from unhang.judge.rules.node_rules import Judged
from unhang.judge.rules.rules import Rule

OF_WAIVERS = ("policy", "waivers")
_PLACE = re.compile(r"policy\.waivers\[([0-9]+)\]")


@dataclass
class BadWaiver:
    """A waiver that a rule found fault with. judged, texts: of the first node; hosts: the nodes
    that it is for."""

    rule: Rule
    judged: Judged
    texts: dict[str, str]
    waiver: Waiver
    hosts: list[str] = field(default_factory=list)

    def entry(self, rules: Collection[str]) -> Entry:
        """The finding. It names the hosts that the waiver names; without any, or if the waiver's
        rule is unknown, it is about the policy, so it names none."""
        named = self.waiver.row.get("hosts") and self.waiver.rule in rules
        judged = GroupJudged(
            "fail", "", tuple(self.hosts) if named else (), evidence=self.judged.evidence
        )
        return Entry(replace(self.rule, scope="group"), "fail", None, judged, self.texts, {})


def is_of_waivers(rule: Rule) -> bool:
    """Whether a rule looks at the policy's waivers, one by one."""
    return rule.for_each is not None and rule.for_each.kind.path == OF_WAIVERS


def waiver_at(rule: Rule, item: str | None, policy: Mapping[str, Any]) -> Waiver | None:
    """The waiver that a rule looked at; None for another rule."""
    found = _PLACE.fullmatch(item or "") if is_of_waivers(rule) else None
    return waivers_of({"waivers": [policy["waivers"][int(found[1])]]})[0] if found else None
