"""Likely causes of a suspect: what the node's kernel log, driver and counters and the rank's stack
showed at the time of the failure.

This is further evidence, not proof: an Xid on the suspected node in those seconds is more likely
its cause than anything that the ranks know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from unhang.core.verdict.suspect import Suspect

# Xid and SXid of the NVIDIA driver, the kernel's own words for memory, hung tasks and PCIe errors,
# and NICs that lost their link or their firmware. Not: PCIe errors that were corrected, which
# healthy links have too, and Xid 45, the driver's cleaning up after a process that ended.
_SUSPICIOUS = re.compile(
    r"NVRM: Xid|SXid|NVRM: .*fail|[Oo]ut of memory|oom-kill|blocked for more than|soft"
    r" lockup|segfault at|AER: .*error|PCIe Bus Error"
    r"|mlx5_core .*(?:health|error|fatal)|[Ll]ink (?:is )?(?:down|Down)|nfs: server .* not"
    r" responding|I/O error"
)
_USUAL = re.compile(
    r"severity=Corrected|AER: (?:Multiple )?Corrected error|Xid \([^)]{1,40}\): 45\b(?!.*caused by"
    r" previous Xid)"
)
MOST_CLUES = 3


def with_likely(
    suspects: Sequence[Suspect],
    clues: Mapping[str, Sequence[str]],
    places: Mapping[int | None, str | None],
) -> list[Suspect]:
    """The suspects with their likely causes added. clues: of each host, the strongest first;
    places: where ranks are."""
    found = []
    for suspect in suspects:
        if suspect.host is None:
            own = [f"{host}: {clue}" for host, rows in clues.items() for clue in rows]
        else:
            place = places.get(suspect.rank)
            own = [*clues.get(suspect.host, ()), *([f"it is in {place}"] if place else [])]
        found.append(
            replace(suspect, why=f"{suspect.why}; likely: {'; '.join(own[:MOST_CLUES])}")
            if own
            else suspect
        )
    return found


def kernel_clues(lines: Iterable[object]) -> list[str]:
    """The first lines of a node's kernel log that report a fault, as clues."""
    return [f"its kernel log says {line[:200]!r}" for line in kernel_faults(lines)[:2]]


def kernel_faults(lines: Iterable[object]) -> list[str]:
    """The lines of a node's kernel log that report a fault."""
    return [
        line for line in map(str, lines) if _SUSPICIOUS.search(line) and not _USUAL.search(line)
    ]
