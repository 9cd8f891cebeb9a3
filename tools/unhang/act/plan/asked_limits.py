"""Converts limits of a plan, N or N%, to numbers of nodes. Values in, values out."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping

from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, fold_hosts, shortened
from unhang.core.schemas.reading import nearest
from unhang.core.text import counted, listed, visible

_AMOUNT = re.compile(r"(\d{1,6})(%?)")
SHOWN = 6
LONGEST_LIST = 120


def amount(text: str, total: int, option: str, *, least: int = 0, round_up: bool = False) -> int:
    """A number of nodes; a share is taken of `total`. least: minimum for a share. Raises UserError
    naming the option."""
    found = _AMOUNT.fullmatch(text.strip())
    number = int(found[1]) if found else -1
    if found is None or (found[2] and number > 100):
        raise UserError(f"{option} takes a number of nodes or a share such as 10%, not {text!r}")
    if not found[2]:
        return number
    return max(least, -(-total * number // 100) if round_up else total * number // 100)


def most_unavailable(text: str, floor: str, answered: int) -> tuple[int, int]:
    """(nodes that a rollout may take out of service at once, floor). Raises UserError for a floor
    that cannot be kept. answered: number of nodes for a share."""
    kept = amount(floor, answered, "--floor", round_up=True)
    most = amount(text, answered, "--max-unavailable", least=1)
    if most < 1:
        raise UserError(
            f"--max-unavailable must be at least 1 node, and {text!r} is less: nothing could ever"
            " be repaired"
        )
    room = answered - kept
    if room < 1:
        raise UserError(
            f"--floor {floor} keeps {kept} in service, and {counted(answered, 'node')} answered: no"
            " node could ever be taken out of service"
        )
    return min(most, room), kept


def group_limits(given: Iterable[str], members: Mapping[str, Collection[str]]) -> dict[str, int]:
    """group -> number of its nodes that may be out of service at once. given: GROUP=N or GROUP=N%,
    GROUP may hold * and ?. members: group -> nodes that answered.

    Raises UserError for a group without a node, and for a limit of 0.
    """
    found: dict[str, int] = {}
    for text in given:
        pattern, sign, wanted = text.rpartition("=")
        if not sign or not pattern:
            raise UserError(f"--group-limit takes GROUP=N or GROUP=N%, not {text!r}")
        groups = sorted(
            group for group in members if members[group] and fnmatch.fnmatchcase(group, pattern)
        )
        if not groups:
            raise UserError(
                f"--group-limit {text} names no group of the inventory with nodes that"
                f" answered{_among(pattern, members)}"
            )
        for group in groups:
            limit = amount(wanted, len(members[group]), f"--group-limit {text}", least=1)
            if limit < 1:
                raise UserError(
                    f"--group-limit {text} must be at least 1 node, and {wanted!r} is less: no node"
                    f" of {group} could ever be repaired; --except leaves it out"
                )
            found[group] = min(limit, found.get(group, limit))
    return found


def named_hosts(
    given: Iterable[str],
    hosts: Collection[str],
    members: Mapping[str, Collection[str]],
    option: str,
) -> set[str]:
    """Hosts that node sets, groups and wildcards name. Raises UserError naming those without a host
    in the run."""
    found: set[str] = set()
    unknown: list[str] = []
    for text in given:
        for pattern in expand_limit(text):
            if pattern in hosts:
                named: Iterable[str] = [pattern]
            else:
                groups = [group for group in members if fnmatch.fnmatchcase(group, pattern)]
                named = {
                    *(host for group in groups for host in members[group]),
                    *fnmatch.filter(hosts, pattern),
                }
            unknown += [] if named else [pattern]
            found.update(named)
    if unknown:
        names, typed = shortened(fold_hosts(unknown), LONGEST_LIST), visible(",".join(given), 200)
        raise UserError(
            f"{option} {typed}: {names} names neither hosts nor groups of the"
            f" run{_among(unknown[0], [*members, *hosts])}"
        )
    return found


def _among(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return (
        nearest(name, names) or f"; there are {listed(names, SHOWN)}"
        if names
        else "; the run has none"
    )
