"""Checks policies against their schema and their version orders; each fault has its path, what was
found and what is allowed."""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import Shape, policy_shape
from unhang.core.strict_yaml import YamlFault, load_yaml
from unhang_node.base.versions.compare import check_version, compare_versions, holds

# Of a node: the keys of policy-1.yaml, each of which may be absent.
Policy = Mapping[str, Any]
MOST_FAULTS_SHOWN = 20


@dataclass(frozen=True)
class Waiver:
    """The hosts that may ignore a rule, and until when. hosts: exact names; patterns: wildcards and
    group names; both empty: all hosts. parts: wildcards of what parts_of() has; empty: all."""

    rule: str
    hosts: frozenset[str]
    patterns: tuple[str, ...]
    row: Mapping[str, Any]
    parts: tuple[str, ...] = ()

    def covers(self, host: str, groups: Iterable[str], where: Mapping[str, Any]) -> bool:
        """True if the waiver covers a finding on this host. where: of the finding; one that names
        no part is not covered by a waiver that does."""
        named = parts_of(where)
        is_meant = not self.parts or (
            bool(named)
            and all(any(fnmatch.fnmatchcase(one, part) for part in self.parts) for one in named)
        )
        return is_meant and self.covers_host(host, groups)

    def covers_host(self, host: str, groups: Iterable[str]) -> bool:
        """True if the waiver is for this host."""
        if not self.hosts and not self.patterns:
            return True
        return host in self.hosts or any(
            fnmatch.fnmatchcase(host, one) or one in groups for one in self.patterns
        )


def parts_of(where: Mapping[str, Any]) -> list[str]:
    """What a finding about a field or a counter is about: `bond0 mtu`, one for each name; the field
    alone where no name is known; [] for any other finding."""
    field = where.get("field") or where.get("counter")
    names = [one for one in str(where.get("name") or "").split(", ") if one]
    return [f"{name} {field}" for name in names] or [str(field)] if field else []


def policy_faults(policy: Any, threshold_names: Iterable[str] = ()) -> list[tuple[tuple, str]]:
    """(path, message) of every fault; threshold_names: those that rules read, [] if unknown."""
    found = [(one.path, one.message) for one in check_schema(policy, "policy-1")]
    if found:
        return found
    found = list(_bad_versions(policy, policy_shape(), ()))
    found += _bad_bounds(policy) if not found else ()
    found += _bad_waivers(policy.get("waivers", ()))
    known = sorted(threshold_names)
    for name in policy.get("thresholds", ()) if known else ():
        if name not in known:
            found.append(
                (
                    ("thresholds", name),
                    (
                        f"no rule reads this threshold{nearest(name, known)}; those that rules read"
                        f" are {', '.join(known)}"
                    ),
                )
            )
    return found


def _bad_versions(value: Any, shape: Shape, path: tuple) -> Iterator[tuple[tuple, str]]:
    if shape.kind == "object":
        for key, inside in value.items():
            yield from (
                _bad_versions(inside, shape.fields[key], (*path, key))
                if not isinstance(inside, list)
                else ()
            )
    elif shape.version and value != value.strip():
        yield path, f"found {value!r} with blanks around it; write {value.strip()!r}"
    elif shape.version and (problem := check_version(value, shape.version)):
        yield path, problem


def _bad_bounds(policy: Mapping[str, Any]) -> Iterator[tuple[tuple, str]]:
    """Exact versions and bounds that no version satisfies."""
    for part in ("driver", "kernel", "cuda", "nccl"):
        wanted = policy.get(part) or {}
        for low, high in (("min", "version"), ("version", "max"), ("min", "max")):
            if wanted.keys() >= {low, high} and holds(
                compare_versions(wanted[low], wanted[high], part), ">"
            ):
                lower, upper = (low, high) if high != "version" else (high, low)
                order = "is below" if high == "version" else "is above"
                yield (
                    (part, lower),
                    (
                        f"{wanted[lower]!r} {order} {part}.{upper}, which is {wanted[upper]!r}: no"
                        f" {part} satisfies both"
                    ),
                )


def _bad_waivers(waivers: Iterable[Mapping[str, Any]]) -> Iterator[tuple[tuple, str]]:
    for place, waiver in enumerate(waivers):
        try:
            datetime.date.fromisoformat(waiver["until"])
        except ValueError:
            yield (
                ("waivers", place, "until"),
                f"{waiver['until']!r} is no date; write it as 2026-12-31",
            )
        for number, hosts in enumerate(waiver.get("hosts", ())):
            try:
                _expand(hosts)
            except UserError as problem:
                yield ("waivers", place, "hosts", number), str(problem)


def _expand(hosts: str) -> list[str]:
    from unhang.core.nodeset import expand_limit  # roles check policies where no ClusterShell is

    return expand_limit(hosts)


def one_line(fault: tuple[tuple, str], file: str = "") -> str:
    """A fault of policy_faults as text. file: the one to correct, if it is known."""
    path, message = fault
    return (
        f"{'.'.join(str(part) for part in path) or 'unhang_policy'}{f' in {file}' if file else ''}:"
        f" {message}"
    )


def waivers_of(policy: Mapping[str, Any]) -> list[Waiver]:
    """The waivers of a policy without faults."""
    return [_waiver(row) for row in policy.get("waivers", ())]


def _waiver(row: Mapping[str, Any]) -> Waiver:
    named = [one for hosts in row.get("hosts", ()) for one in _expand(hosts)]
    return Waiver(
        row["rule"],
        frozenset(named),
        tuple(named) if len(named) < 64 else tuple(one for one in named if set("*?") & set(one)),
        row,
        tuple(row.get("parts", ())),
    )


@dataclass(frozen=True)
class PolicyFile:
    """A policy that replaces the run's own. groups: inventory group -> policy; everybody: for all
    hosts, or None."""

    everybody: Mapping[str, Any] | None
    groups: Mapping[str, Mapping[str, Any]]
    places: Mapping[str, str] = field(default_factory=dict)  # group -> file:line

    def check_groups(self, known: Collection[str]) -> None:
        """Raises UserError if no policy is for any node. known: the groups of all nodes. A file may
        be for several inventories, so some may be unknown."""
        unknown = [name for name in self.groups if name not in {"all", *known}]
        if unknown and len(unknown) == len(self.groups):
            lines = [
                f"{self.places.get(name, 'policy')}: groups.{name}: no node of the run is in this"
                f" group{nearest(name, sorted(known))}"
                for name in unknown
            ]
            raise UserError(
                "\n".join([*lines, f"groups of the run are {', '.join(sorted(known)) or 'none'}"])
            )

    def for_groups(self, groups: Iterable[str]) -> dict[str, Any]:
        """The policy of a host: the policies of its groups, merged in the order of the file."""
        if self.everybody is not None:
            return dict(self.everybody)
        merged: dict[str, Any] = {}
        for name, policy in self.groups.items():
            if name == "all" or name in groups:
                merged = laid_over(merged, policy)
        return merged


def laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Maps are merged; every other value of `upper` replaces the lower one. Neither is changed."""
    found = dict(lower)
    for key, value in upper.items():
        before = found.get(key)
        found[key] = (
            laid_over(before, value)
            if isinstance(before, dict) and isinstance(value, dict)
            else value
        )
    return found


def load_policy(path: Path, threshold_names: Iterable[str] = ()) -> PolicyFile:
    """A file with one policy, with `unhang_policy:`, or with `groups: {name: policy}`.

    Raises UserError, a line for each fault: file:line, path, found, allowed.
    """
    try:
        content, places = load_yaml(path)
    except YamlFault as problem:
        raise UserError(str(problem)) from None
    start: tuple = ()
    if isinstance(content, dict) and set(content) == {"unhang_policy"}:
        content, start = content["unhang_policy"], ("unhang_policy",)
    grouped = (
        isinstance(content, dict)
        and set(content) == {"groups"}
        and isinstance(content["groups"], dict)
    )
    policies = (
        {("groups", name): one for name, one in content["groups"].items()}
        if grouped
        else {(): content}
    )
    faults = []
    for prefix, policy in policies.items():
        for inside, message in policy_faults({} if policy is None else policy, threshold_names):
            whole = (*start, *prefix, *inside)
            line = next(
                (
                    places[whole[:end]].line
                    for end in range(len(whole), -1, -1)
                    if whole[:end] in places
                ),
                1,
            )
            faults.append((line, f"{path}:{line}: {one_line(((*prefix, *inside), message))}"))
    if faults:
        lines = [text for _, text in sorted(dict.fromkeys(faults), key=lambda fault: fault[0])]
        more = (
            [f"and {len(lines) - MOST_FAULTS_SHOWN} more"] if len(lines) > MOST_FAULTS_SHOWN else []
        )
        raise UserError("\n".join([*lines[:MOST_FAULTS_SHOWN], *more]))
    if grouped:
        lines_of = {
            str(name): f"{path}:{places[*start, 'groups', name].line}" for name in content["groups"]
        }
        return PolicyFile(
            None, {str(name): one or {} for name, one in content["groups"].items()}, lines_of
        )
    return PolicyFile(content or {}, {})
