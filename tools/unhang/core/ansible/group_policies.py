"""Which group's unhang_policy applies to a host: Ansible takes the last one whole, and does not
report those that it replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.nodeset import fold_hosts, shortened

VARIABLE = "unhang_policy"
NODES_SHOWN_CHARS = 120


@dataclass(frozen=True)
class GroupPolicy:
    """A group that defines unhang_policy. level: its depth in the inventory; priority:
    ansible_group_priority; content: its unhang_policy."""

    group: str
    level: int
    priority: int
    content: Any


def in_order(
    groups: Iterable[Any], layers_of: Callable[[Any], Mapping[str, Any]], precedence: Sequence[str]
) -> list[GroupPolicy]:
    """Every group's policies, each behind those that it replaces. groups: of Ansible's inventory.
    layers_of: {place: policy} of a group.

    precedence: Ansible's VARIABLE_PRECEDENCE, names of the form all_<place> and groups_<place>.
    """
    found = []
    for group in groups:
        for place, content in layers_of(group).items():
            name = f"{'all' if group.name == 'all' else 'groups'}_{place}"
            if name in precedence:
                found.append(
                    (
                        precedence.index(name),
                        GroupPolicy(str(group.name), group.depth, group.priority, content),
                    )
                )
    return [
        policy
        for _, policy in sorted(
            found, key=lambda one: (one[0], one[1].level, one[1].priority, one[1].group)
        )
    ]


def of_hosts(
    hosts: Iterable[Any],
    defined: Sequence[GroupPolicy],
    layers_of: Callable[[Any], Mapping[str, Any]],
) -> dict[str, list[GroupPolicy]]:
    """{host: the policies of its groups}, of hosts with several and none of their own. hosts: of
    Ansible's inventory; defined: of in_order."""
    found = {}
    for host in hosts:
        names = {group.name for group in host.get_groups()}
        policies = [one for one in defined if one.group in names]
        if len(policies) > 1 and not layers_of(host):
            found[str(host.name)] = policies
    return found


def rivals_of(policies: Sequence[GroupPolicy]) -> list[str]:
    """Groups between which the alphabet would decide; [] where one counts. policies: a host's, each
    behind those that it replaces.

    Groups of one level are never parent and child. An ansible_group_priority is somebody's own
    decision, and equal policies are no question.
    """
    if not policies:
        return []
    last = policies[-1]
    equals = {
        one.group
        for one in policies
        if one.group != last.group
        and (one.level, one.priority) == (last.level, last.priority)
        and one.content != last.content
    }
    return sorted({*equals, last.group}) if equals else []


def replaced_by_last(policies: Sequence[GroupPolicy]) -> list[str]:
    """Groups whose policy does not count for a host, because that of the last group replaces it
    whole."""
    return [
        one.group
        for one in policies[:-1]
        if one.group != policies[-1].group and one.content != policies[-1].content
    ]


def refusals(by_host: Mapping[str, Sequence[GroupPolicy]]) -> list[str]:
    """One line for each set of groups of the same level with different policies: it is undefined
    which applies."""
    found: dict[tuple[str, ...], list[str]] = {}
    for host, policies in by_host.items():
        if rivals := rivals_of(policies):
            found.setdefault(tuple(rivals), []).append(host)
    return [
        f"no one group gives {_nodes(hosts)} unhang_policy: {' and '.join(rivals)} do at one level,"
        " neither of them a child of the other: Ansible would take one whole by the alphabet. Make"
        " one the other's child, set ansible_group_priority, or give them one unhang_policy"
        for rivals, hosts in sorted(found.items())
    ]


def notices(by_host: Mapping[str, Sequence[GroupPolicy]]) -> list[str]:
    """One line for each group whose policy replaces those of others."""
    found: dict[tuple[str, ...], list[str]] = {}
    for host, policies in by_host.items():
        if replaced := replaced_by_last(policies):
            found.setdefault((policies[-1].group, *dict.fromkeys(replaced)), []).append(host)
    return [
        f"unhang_policy of group {group} replaces that of {' and '.join(replaced)} whole for"
        f" {_nodes(hosts)}, as Ansible has it: nothing in the latter counts"
        for (group, *replaced), hosts in sorted(found.items())
    ]


def _nodes(hosts: Sequence[str]) -> str:
    return shortened(fold_hosts(hosts), NODES_SHOWN_CHARS)
