"""Merges the remedies of one node: a policy that satisfies all of them, or the conflict with the
reason of each side. Values in, values out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from unhang.judge.rules.syntax import shape_at
from unhang_node.base.versions.compare import compare_versions, holds

INVENTORY = "unhang_policy"  # the source of requests by the inventory's own policy
UNLIMITED = -1
_BOUNDS = ("min", "version", "max")


class PolicyRequest(NamedTuple):
    """Keys of the policy that one rule, or the inventory, wants. because: a rule's id, or
    INVENTORY."""

    because: str
    policy: Mapping[str, Any]


class Merged(NamedTuple):
    """policy: satisfies every request that is in no conflict. conflicts: [{key, sides: [{wants,
    because}], decides}]."""

    policy: dict[str, Any]
    conflicts: list[dict[str, Any]]


def merge_requests(requests: Sequence[PolicyRequest]) -> Merged:
    """The rules' requests as one policy; the inventory's own policy limits it and is not part of
    it. The more severe rule comes first."""
    keys: dict[tuple[str, ...], list[tuple[Any, str]]] = {}
    for request in requests:
        for path, value in _flat(request.policy):
            keys.setdefault(path, []).append((value, request.because))
    asked = {
        path: wanted
        for path, wanted in keys.items()
        if any(because != INVENTORY for _, because in wanted)
    }
    conflicts: list[dict[str, Any]] = []
    agreed: dict[tuple[str, ...], tuple[Any, str]] = {}
    for path, wanted in keys.items():
        best = _agreed(path, wanted)
        if best is not None:
            agreed[path] = best
        elif path in asked:
            conflicts.append(
                _conflict(path[0], [(path, value, because) for value, because in wanted])
            )
    apart = list(
        _bounds(agreed, {path[0] for path in asked} - {str(one["key"]) for one in conflicts})
    )
    undecided = {(str(one["key"]), bound) for one in apart for bound in _BOUNDS}
    conflicts += apart
    policy: dict[str, Any] = {}
    for path in asked:
        if path in agreed and path not in undecided:
            _put(policy, path, agreed[path][0])
    return Merged(policy, conflicts)


def _flat(
    policy: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in policy.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*above, key))
        elif not isinstance(value, list):
            yield (*above, key), value


def _put(policy: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        policy = policy.setdefault(key, {})
    policy[path[-1]] = value


def _agreed(path: tuple[str, ...], wanted: Sequence[tuple[Any, str]]) -> tuple[Any, str] | None:
    """The value that satisfies all, and its sources; None if there is none."""
    best = wanted[0]
    for value, because in wanted[1:]:
        if value == best[0]:
            continue
        if path[-1] in ("min", "max"):
            if _holds(path, value, ">" if path[-1] == "min" else "<", best[0]):
                best = (value, because)
        elif path[0] == "limits" and isinstance(value, int):
            if best[0] != UNLIMITED and (value == UNLIMITED or value > best[0]):
                best = (value, because)
        else:
            return None
    return best


def _bounds(
    agreed: Mapping[tuple[str, ...], tuple[Any, str]], parts: set[str]
) -> Iterator[dict[str, Any]]:
    """Conflicts between an exact version, a lower bound and an upper bound of one part of the
    policy."""
    for part in sorted(parts):
        for low, high in (("min", "version"), ("version", "max"), ("min", "max")):
            left, right = agreed.get((part, low)), agreed.get((part, high))
            if left and right and _holds((part, low), left[0], ">", right[0]):
                yield _conflict(part, [((part, low), *left), ((part, high), *right)])
                break


def _holds(path: tuple[str, ...], left: Any, operator: str, right: Any) -> bool:
    return holds(compare_versions(left, right, _order(path)), operator) is True


def _order(path: tuple[str, ...]) -> str:
    return shape_at(("policy", *path)).version or "generic"


def _conflict(part: str, sides: Sequence[tuple[tuple[str, ...], Any, str]]) -> dict[str, Any]:
    described = [
        {"wants": f"{'.'.join(path)}: {_text(value)}", "because": because}
        for path, value, because in sides
    ]
    rules = [because for _, _, because in sides if because != INVENTORY]
    decides = (
        f"{INVENTORY} decides what a role installs: change {part} there, or waive"
        f" {' and '.join(rules)}"
        if len(rules) < len(sides)
        else (
            f"no {part} satisfies both: {rules[0]} is the graver; waive {rules[-1]} once you have"
            " decided"
        )
    )
    return {"key": part, "sides": described, "decides": decides}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
