"""The policy of a host: the inventory's values, and for missing keys the proposals of the catalogue's remedies. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.rules.remedies import INVENTORY, PolicyRequest, merge_requests


@dataclass(frozen=True)
class Resolved:
    """policy: the one to apply. conflicts: rule -> why none of its proposals is part of the policy."""

    policy: dict[str, Any]
    conflicts: dict[str, str] = field(default_factory=dict)


def resolve_policy(policy: Mapping[str, Any], proposals: Sequence[PolicyRequest]) -> Resolved:
    """The inventory's policy with all proposals that agree with it and with each other, the more severe rule first in `proposals`.

    The inventory is never overruled, and if one key of a rule's proposal is in conflict, the whole proposal is left out.
    """
    remaining, conflicts = list(proposals), dict[str, str]()
    while True:
        merged = merge_requests([*remaining, PolicyRequest(INVENTORY, policy)])
        if not merged.conflicts:
            return Resolved(_laid_over(policy, merged.policy), conflicts)
        for conflict in merged.conflicts:
            wanted = ", and ".join(f"{side['because']} wants {side['wants']}" for side in conflict["sides"])
            conflicts |= {side["because"]: f"{wanted}; {conflict['decides']}" for side in conflict["sides"] if side["because"] != INVENTORY}
        remaining = [one for one in remaining if one.because not in conflicts]


def value_at(policy: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a path of a policy, None if it has none."""
    value: Any = policy
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Maps are merged; every other value of `upper` replaces the lower one. Neither argument is changed."""
    inside = {key: _laid_over(lower.get(key) or {}, value) if isinstance(value, Mapping) else value for key, value in upper.items()}
    return {**lower, **inside}
