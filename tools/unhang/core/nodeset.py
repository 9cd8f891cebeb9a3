"""Reads and writes node sets in Slurm's notation. Ansible would read gpu[001-003] as an index into
a group gpu and choose other hosts."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from unhang.core.errors import UserError
from unhang.core.text import visible

MAX_HOSTS = 100_000
MAX_BRACKETS = 8  # of one node set: rack, chassis, node and more
# the notation refuses numbers of more than 100 digits
_FOLDABLE = re.compile(r"(?!.*[0-9]{51})[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_RANGE = re.compile(r"\[([^\]]*)\]")


def expand_limit(limit: str) -> list[str]:
    """The limit as Ansible patterns, with node sets expanded. Terms without a bracket (group, host,
    wildcard, a:!b) and regular expressions (~…) are not changed.

    Raises UserError for a bracket that is no node set.
    """
    patterns: list[str] = []
    for term in split_patterns(limit, ","):
        if "[" not in term or term.lstrip("!&").startswith("~"):
            patterns.append(term)
        else:
            for part in split_patterns(term, ":"):
                patterns.extend(_expand(part))
    return patterns


def expand_hosts(texts: Iterable[str]) -> list[str]:
    """Node sets to host names. Raises UserError."""
    hosts: list[str] = []
    for text in texts:
        for name in expand_limit(text):
            if name.startswith(("!", "&", "~", "@")) or any(sign in name for sign in "*?["):
                raise UserError(
                    f"--host takes host names or node sets such as gpu[01-08], not {name!r}"
                )
            hosts.append(name)
    found = list(dict.fromkeys(hosts))
    if not found:
        raise UserError(
            "--host names no hosts; it takes host names or node sets such as gpu[01-08]"
        )
    return found


def split_patterns(text: str, separator: str) -> list[str]:
    """Parts of the text, split outside brackets; empty ones dropped."""
    parts = re.findall(rf"(?:\[[^\]]*\]?|[^{separator}\[])+", text)
    return [part.strip() for part in parts if part.strip()]


def _expand(part: str) -> list[str]:
    operator, nodes = (part[0], part[1:]) if part[0] in "!&" else ("", part)
    if "[" not in nodes:
        return [part]
    if nodes.count("[") > MAX_BRACKETS or nodes.count("]") > MAX_BRACKETS:
        raise UserError(f"the node set {visible(part, 120)} has more than {MAX_BRACKETS} brackets")
    if _count(nodes) > MAX_HOSTS:
        raise UserError(
            f"the limit {visible(part, 120)!r} names {_count(nodes)} hosts, more than {MAX_HOSTS}"
        )
    try:
        hosts = list(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except (
        NodeSetException,
        AssertionError,
        ValueError,
    ) as problem:  # ClusterShell asserts that a range has less than a billion numbers
        raise UserError(
            f"{visible(part, 120)!r} is not a node set such as gpu[001-016]:"
            f" {visible(str(problem), 200)}"
        ) from None
    if operator == "&":
        # Each & narrows the result further, so the union must be one pattern.
        return ["&~^(?:" + "|".join(re.escape(host) for host in hosts) + ")$"]
    return [operator + host for host in hosts]


def _count(nodes: str) -> int:
    """An upper bound of the number of hosts in a node set, without expanding it."""
    return math.prod(
        sum(_span(part) for part in bracket.split(",")) for bracket in _RANGE.findall(nodes)
    )


def _span(part: str) -> int:
    # count the range in any case: a typing error must not make it look small
    ends = re.match(r"\s*(\d+)\s*-+\s*(\d+)", part)
    if not ends:
        return 1
    if len(ends[1]) > 12 or len(ends[2]) > 12:
        return MAX_HOSTS + 1
    return abs(int(ends[2]) - int(ends[1])) + 1


def fold_hosts(hosts: Iterable[str]) -> str:
    """`gpu[001-008],login1`. Names that the notation would misread are listed one by one,
    escaped."""
    return _fold_hosts(frozenset(hosts))


@functools.lru_cache(maxsize=256)
def _fold_hosts(hosts: frozenset[str]) -> str:
    foldable: list[str] = []
    odd: list[str] = []
    for host in hosts:
        (foldable if _FOLDABLE.match(host) else odd).append(host)
    folded = [str(NodeSet.fromlist(foldable, resolver=RESOLVER_NOGROUP))] if foldable else []
    return ",".join(folded + [visible(host, 120) for host in sorted(odd)])


def broken(text: str, width: int) -> str:
    """Text with line breaks after commas in words that are too long for a line: a person can read a
    node set over several lines, but not a number."""
    lines = []
    for whole in text.split("\n"):
        rest = whole
        while (
            len(rest) > width
            and (cut := rest.rfind(",", 0, width) + 1) > 0
            and " " not in rest[:cut]
        ):
            lines.append(rest[:cut])
            rest = rest[cut:]
        lines.append(rest)
    return "\n".join(lines)


def shortened(folded: str, longest: int) -> str:
    """A node set that is shortened at the end of a part: `gpu[001,003,…]`."""
    if len(folded) <= longest:
        return folded
    kept = folded[: folded.rfind(",", 0, longest) + 1] or folded[:longest]
    return kept + ("…]" if kept.count("[") > kept.count("]") else "…")
