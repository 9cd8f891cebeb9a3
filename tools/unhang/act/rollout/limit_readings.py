"""Finds ranges in --limit that Slurm and Ansible read differently: gpu[001-003] is three hosts in
Slurm, members 1 to 3 of a group in Ansible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from unhang.core.nodeset import split_patterns

_RANGE = re.compile(r"\[[^\]:]*\d-\d[^\]]*\]")


def ambiguous_ranges(limit: str) -> list[str]:
    """One line for each such range; [] without any."""
    return [
        f"--limit {term} can be read in two ways, for it has a range: Slurm means hosts of these"
        " numbers, Ansible counts the members of a group from 0. List the hosts, or write a slice"
        " as GROUP[0:3]"
        for term in _terms(limit)
        if not term.lstrip("!&").startswith("~") and _RANGE.search(term)
    ]


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
