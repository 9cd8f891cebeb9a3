"""Limits of a plan as people write them, N or N%, made into numbers of nodes. Values in, values out."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from unhang.errors import UserError
from unhang.nodeset import expand_limit
from unhang.schemas.shapes import nearest

_AMOUNT = re.compile(r"(\d{1,6})(%?)")
SHOWN = 6


def amount(text: str, total: int, option: str, *, least: int = 0, round_up: bool = False) -> int:
    """A number of nodes, of `total` where it is a share. least: what a share gives at least. Raises UserError naming the option."""
    found = _AMOUNT.fullmatch(text.strip())
    number = int(found[1]) if found else -1
    if found is None or (found[2] and number > 100):
        raise UserError(f"{option}: expected a number of nodes or a share such as 10%, found {text!r}")
    if not found[2]:
        return number
    return max(least, -(-total * number // 100) if round_up else total * number // 100)


def most_unavailable(text: str, floor: str, in_service: int) -> tuple[int, int]:
    """(nodes that may be out of service at once, floor). Raises UserError for a floor that cannot be kept."""
    kept = amount(floor, in_service, "--floor", round_up=True)
    most = amount(text, in_service, "--max-unavailable", least=1)
    if most < 1:
        raise UserError(f"--max-unavailable: expected at least 1 node, found {text!r}: nothing could ever be repaired")
    if in_service - kept < 1:
        raise UserError(
            f"--floor {floor}: expected a floor below the {in_service} nodes that answered, found {kept}: no node could ever be taken out of service"
        )
    return min(most, in_service - kept), kept


def group_limits(given: Iterable[str], members: Mapping[str, Collection[str]]) -> dict[str, int]:
    """group -> nodes of it that may be out of service at once. given: GROUP=N or GROUP=N%, GROUP may hold * and ?. members: group -> nodes that answered.

    Raises UserError for a group that covers no node, and for a limit of none.
    """
    found: dict[str, int] = {}
    for text in given:
        pattern, sign, wanted = text.rpartition("=")
        if not sign or not pattern:
            raise UserError(f"--group-limit: expected GROUP=N or GROUP=N%, found {text!r}")
        groups = sorted(group for group in members if members[group] and fnmatch.fnmatchcase(group, pattern))
        if not groups:
            raise UserError(f"--group-limit {text}: expected a group of the inventory with nodes that answered, found none{_among(pattern, members)}")
        for group in groups:
            limit = amount(wanted, len(members[group]), f"--group-limit {text}", least=1)
            if limit < 1:
                raise UserError(
                    f"--group-limit {text}: expected at least 1 node, found {wanted!r}: no node of {group} could ever be repaired; --except leaves it out"
                )
            found[group] = min(limit, found.get(group, limit))
    return found


def named_hosts(given: Iterable[str], hosts: Collection[str], members: Mapping[str, Collection[str]], option: str) -> set[str]:
    """Hosts that node sets, groups and wildcards name. Raises UserError for one that names no host of the run."""
    found: set[str] = set()
    for text in given:
        for pattern in expand_limit(text):
            if pattern in hosts:
                named: Iterable[str] = [pattern]
            else:
                groups = [group for group in members if fnmatch.fnmatchcase(group, pattern)]
                named = {*(host for group in groups for host in members[group]), *fnmatch.filter(hosts, pattern)}
            if not named:
                raise UserError(f"{option} {text}: expected hosts or groups of the run, found none that {pattern} names{_among(pattern, [*members, *hosts])}")
            found.update(named)
    return found


def known_rules(given: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Ids of rules, sorted. Raises UserError for one that no rule has."""
    names = sorted({name.strip() for text in given for name in text.split(",") if name.strip()})
    for name in names:
        if name not in known:
            raise UserError(f"--only: expected the id of a rule, found {name!r}{nearest(name, known)}; unhang catalogue lists them")
    return tuple(names)


def _among(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return nearest(name, names) or f"; there are {', '.join(names[:SHOWN])}{more}" if names else "; the run has none"
