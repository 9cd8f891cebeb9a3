"""What one node prints otherwise than all others, in lines that no rule knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from unhang.core.text import visible
from unhang.core.verdict.odd_one_out import AT_LEAST
from unhang.jobs.diagnose.logs.rank_hosts import hosts_of_lines
from unhang.jobs.diagnose.looked import PrintedFault

_DIGITS = {ord(digit): None for digit in "0123456789."}


def lines_apart(files: Mapping[str, Sequence[str]]) -> Iterator[PrintedFault]:
    """A line that all nodes of a file print but one, which prints another instead: one that begins
    with the same name; or the only one that it lacks, if they differ in more than a number. What
    is measured is seldom the same on all others."""
    for file, lines in files.items():
        at: dict[str, dict[str, int]] = {}  # line -> host -> its index
        for index, (host, line) in enumerate(hosts_of_lines(lines, file)):
            if host and line.strip():
                at.setdefault(" ".join(line.split()), {})[host] = index
        hosts = {host for those in at.values() for host in those}
        lacks = {line: hosts - those.keys() for line, those in at.items()}
        for usual, odd in lacks.items() if len(hosts) > AT_LEAST else ():
            if len(odd) != 1 or usual.split()[-1] == "0":
                continue
            own = [line for line, those in at.items() if those.keys() == odd]
            key, _, value = usual.partition(" ")
            is_name = value and any(map(str.isalpha, key))
            named = [one for one in own if is_name and one.split()[0] == key]
            only = [*lacks.values()].count(odd) == len(own) == 1
            if only and usual.translate(_DIGITS) != own[0].translate(_DIGITS):
                named = named or own
            for one in named[:1]:
                host = min(odd)
                yield PrintedFault(
                    "one-node-prints-another-line", "warning", "One node differs from the others",
                    f"{host}: {visible(one, 120)}; all others: {visible(usual, 120)}",
                    "give it what the others have, or find why it has another value", "sre",
                    ((host, file, at[one][host]),), (f"host {host}",), (),
                )  # fmt: skip
