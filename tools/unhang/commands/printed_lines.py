"""What one node prints otherwise than all others, in lines that no rule knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from unhang.core.text import visible
from unhang.core.verdict.odd_one_out import AT_LEAST
from unhang.jobs.diagnose.logs.rank_hosts import hosts_of_lines
from unhang.jobs.diagnose.looked import PrintedFault

# temperatures, shares, counts: nodes have them as it happens
_MEASURED = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?%?,?")


def lines_apart(files: Mapping[str, Sequence[str]]) -> Iterator[PrintedFault]:
    """A line that all nodes of a file print once but one, which prints another that begins with
    the same words; or the only line that it lacks, if it prints one other instead."""
    for file, lines in files.items():
        at: dict[tuple[str, ...], dict[str, int]] = {}  # words of a line -> host -> its index
        of_host: dict[str, list[tuple[str, ...]]] = {}
        for index, (host, line) in enumerate(hosts_of_lines(lines, file)):
            if host and (words := tuple(line.split())):
                at.setdefault(words, {})[host] = index
                of_host.setdefault(host, []).append(words)
        lacks = {words: {*of_host} - those.keys() for words, those in at.items()}
        for usual, odd in lacks.items() if len(of_host) > AT_LEAST else ():
            if len(odd) != 1:
                continue
            host = min(odd)
            own = [one for one in at if at[one].keys() == odd]
            only = [*lacks.values()].count(odd) == len(own) == 1
            for one in own:
                pairs = takewhile(lambda pair: pair[0] == pair[1], zip(usual, one, strict=False))
                same = tuple(word for word, _ in pairs)
                begins = Counter(
                    name
                    for name, rows in of_host.items()
                    for row in rows
                    if row[: len(same)] == same
                )
                if (only if not same else {*begins.values()} == {1}) and _is_set(usual, one):
                    text, others = (visible(" ".join(row), 120) for row in (one, usual))
                    yield PrintedFault(
                        "one-node-prints-another-line", "warning",
                        "One node differs from the others", f"{host}: {text}; all others: {others}",
                        "give it what the others have, or find why it has another value", "sre",
                        ((host, file, at[one][host]),), (f"host {host}",), (),
                    )  # fmt: skip
                    break


def _is_set(usual: Sequence[str], own: Sequence[str]) -> bool:
    """Whether they differ in words or numbers that are set, and in none that is measured."""
    apart = [pair for pair in zip(usual, own, strict=False) if pair[0] != pair[1]]
    return not any(all(map(_MEASURED.fullmatch, pair)) for pair in apart)
