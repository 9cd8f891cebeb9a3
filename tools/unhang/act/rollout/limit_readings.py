"""Finds ranges in --limit that Slurm and Ansible read differently: gpu[001-003] is three hosts in
Slurm, members 1 to 3 of a group in Ansible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, split_patterns
from unhang.core.text import listed

_RANGE = re.compile(r"^(?P<name>[^\[\]]*)\[(?P<first>\d+)-(?P<last>\d+)\]$")
_BRACKET_RANGE = re.compile(r"\[[^\]:]*\d-\d[^\]]*\]")
SHOWN = 8


def ambiguous_ranges(
    limit: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]
) -> list[str]:
    """One line for each such range, with the hosts of both readings; [] without any. groups: {name:
    hosts in the inventory's order}."""
    found = []
    for term in _terms(limit):
        pattern = term.lstrip("!&")
        if pattern.startswith("~") or not _BRACKET_RANGE.search(pattern):
            continue
        found.append(
            f"--limit {term} can be read in two ways, for it has a range. Ansible takes"
            f" {_shown(_as_ansible(pattern, groups, hosts))}; Slurm means"
            f" {_shown(_as_slurm(pattern))}. List the hosts, or write a slice as {_slice(pattern)}"
        )
    return found


def _terms(limit: str) -> Iterator[str]:
    for outer in split_patterns(limit, ","):
        for term in split_patterns(outer, ":"):
            if term.startswith("@"):
                yield from _terms_of_file(Path(term[1:]))
            else:
                yield term


def _terms_of_file(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # Ansible itself reports it
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield from _terms(line.strip())


def _as_ansible(
    pattern: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]
) -> list[str]:
    parts = _RANGE.match(pattern)
    if parts is None:
        return []
    members = groups.get(parts["name"], [host for host in hosts if host == parts["name"]])
    return list(members[int(parts["first"]) : int(parts["last"]) + 1])


def _as_slurm(pattern: str) -> list[str]:
    try:
        return expand_limit(pattern)
    except UserError:
        return []


def _slice(pattern: str) -> str:
    parts = _RANGE.match(pattern)
    return f"{parts['name']}[{int(parts['first'])}:{int(parts['last'])}]" if parts else "GROUP[0:3]"


def _shown(hosts: Sequence[str]) -> str:
    return listed(hosts, SHOWN) or "none"
