"""One policy of a host: what the inventory says of it, and what remedies of the catalogue propose where it says nothing. Values in, values out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.schemas.shapes import Shape, policy_shape
from unhang_node.versions.compare import compare_versions, holds

_BOUNDS = ("version", "min", "max")
_AT_MOST = (("min", "version"), ("version", "max"), ("min", "max"))


@dataclass(frozen=True)
class Proposal:
    """Keys of a policy that the remedy of a rule proposes."""

    rule: str
    policy: Mapping[str, Any]


@dataclass
class Resolved:
    """policy: the one to apply. conflicts: rule -> why its proposal is not in it. by: path -> rule that brought the value in."""

    policy: dict[str, Any]
    conflicts: dict[str, str] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)


def resolve_policy(policy: Mapping[str, Any], proposals: Sequence[Proposal]) -> Resolved:
    """The policy with all proposals that agree with it and with each other. The inventory is never overruled, and of two minima the higher one holds."""
    resolved = Resolved(copy.deepcopy(dict(policy)))
    for proposal in sorted(proposals, key=lambda one: one.rule):
        against = [line for path, value in _leaves(proposal.policy) if (line := _conflict(resolved, path, value))]
        if against:
            resolved.conflicts[proposal.rule] = "; ".join(against)
            continue
        for path, value in _leaves(proposal.policy):
            _lay_in(resolved, path, value, proposal.rule)
    return resolved


def value_at(policy: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a path of a policy, None where it says nothing."""
    value: Any = policy
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _leaves(policy: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in policy.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _conflict(resolved: Resolved, path: tuple[str, ...], value: Any) -> str:
    """Why a value cannot be laid into the policy, "" where it can."""
    order = _version_order(path)
    if order and path[-1] in _BOUNDS:
        return _bound_conflict(resolved, path, value, order)
    there = value_at(resolved.policy, path)
    return "" if there is None or there == value else f"{_named(resolved, path)} is {there}, and the remedy is {value}"


def _bound_conflict(resolved: Resolved, path: tuple[str, ...], value: Any, order: str) -> str:
    """A version against what the same section has of `version`, `min` and `max`."""
    *section, bound = path
    for other in _BOUNDS:
        there = value_at(resolved.policy, (*section, other))
        if there is None or (other == bound and bound != "version"):
            continue
        left, right = (value, there) if (bound, other) in _AT_MOST else (there, value)
        if holds(compare_versions(str(left), str(right), order), "==" if other == bound else "<=") is not True:
            return f"{_named(resolved, (*section, other))} is {there}, and the remedy is {'.'.join(path)} {value}"
    return ""


def _lay_in(resolved: Resolved, path: tuple[str, ...], value: Any, rule: str) -> None:
    *section, key = path
    order, there = _version_order(path), value_at(resolved.policy, path)
    if order and key in ("min", "max"):
        if value_at(resolved.policy, (*section, "version")) is not None:
            return  # the exact one suits already
        if there is not None and _sign(value, there, order) != (1 if key == "min" else -1):
            return
    elif there is not None:
        return
    holder = resolved.policy
    for name in section:
        holder = holder.setdefault(name, {})
    holder[key] = value
    resolved.by[".".join(path)] = rule


def _sign(left: Any, right: Any, order: str) -> int | None:
    return compare_versions(str(left), str(right), order).sign


def _version_order(path: Sequence[str]) -> str | None:
    shape: Shape | None = policy_shape()
    for key in path:
        shape = shape.fields.get(key) if shape is not None and shape.kind == "object" else None
    return shape.version if shape is not None else None


def _named(resolved: Resolved, path: Sequence[str]) -> str:
    name = ".".join(path)
    return f"{name} as {resolved.by[name]} has it" if name in resolved.by else f"unhang_policy.{name}"
