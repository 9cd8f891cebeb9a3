"""What one node prints otherwise than all others, in lines that no rule knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, takewhile

from unhang.core.text import visible
from unhang.core.verdict.odd_one_out import AT_LEAST
from unhang.jobs.diagnose.logs.rank_hosts import hosts_of_lines
from unhang.jobs.diagnose.looked import PrintedFault

Words = tuple[str, ...]
MOST_ROWS = 16  # of a node; our own limit, as are the three digits
# temperatures, shares, counts: nodes have them as it happens
_MEASURED = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?%?,?")


def lines_apart(files: Mapping[str, Sequence[str]]) -> Iterator[PrintedFault]:
    """A line that all nodes of a file print once but one, which prints another that begins with
    the same words; or the only line that it lacks, if it prints one other instead."""
    for file, lines in files.items():
        at: dict[Words, dict[str, int]] = {}  # line -> host -> its index
        rows: list[tuple[str, Words]] = []
        for index, (host, line) in enumerate(hosts_of_lines(lines, file)):
            if host and (words := tuple(line.split())):
                at.setdefault(words, {})[host] = index
                rows.append((host, words))
        hosts = {host for host, _ in rows}
        lacks: dict[str, list[Words]] = {}
        own: dict[str, list[Words]] = {}
        for words, those in at.items():
            if AT_LEAST <= len(those) == len(hosts) - 1:
                lacks.setdefault(min(hosts - those.keys()), []).append(words)
            elif len(those) == 1:
                own.setdefault(min(those), []).append(words)
        pairs = [
            (host, one, usual, _same(one, usual))
            for host in lacks
            for one, usual in product(own.get(host, [])[:MOST_ROWS], lacks[host][:MOST_ROWS])
            if _is_set(usual, one)
        ]
        begins = {same: Counter[str]() for *_, same in pairs}
        for end in {len(words) for words in begins}:
            for host, words in rows:
                if words[:end] in begins:
                    begins[words[:end]][host] += 1
        for host, one, usual, same in pairs:
            is_name = same and begins[same] == dict.fromkeys(hosts, 1)
            if is_name or len(lacks[host]) == len(own[host]) == 1:
                text, others = (visible(" ".join(words), 120) for words in (one, usual))
                yield PrintedFault(
                    "one-node-prints-another-line", "warning", "One node differs from the others",
                    f"{host}: {text}; all others: {others}",
                    "give it what the others have, or find why it has another value", "sre",
                    ((host, file, at[one][host]),), (f"host {host}",), (),
                )  # fmt: skip


def _same(one: Words, other: Words) -> Words:
    """The words with which both begin."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(word for word, _ in pairs)


def _is_set(usual: Words, own: Words) -> bool:
    """Whether they differ in words or numbers that are set, and in none that is measured."""
    apart = [pair for pair in zip(usual, own, strict=False) if pair[0] != pair[1]]
    return not any(all(map(_MEASURED.fullmatch, pair)) for pair in apart)
