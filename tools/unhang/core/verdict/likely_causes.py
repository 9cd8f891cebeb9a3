"""Likely causes of a suspect: what the node's kernel log, driver and counters and the rank's stack
showed at the time of the failure.

This is further evidence, not proof: an Xid on the suspected node in those seconds is more likely
its cause than anything that the ranks know. Of counters only those that stand out from what is
normal (`counter_rates`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.verdict.counter_rates import Rise
from unhang.core.verdict.suspect import Suspect
from unhang_node.base.parse.values import as_list

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
_FRAME = re.compile(r'^  File "([^"]{1,300})", line (\d+)(?: in (\S{1,100}))?')
MOST_CLUES = 3


def with_likely(
    suspects: Sequence[Suspect],
    nodes: Sequence[Mapping[str, Any]],
    evidence: Sequence[Mapping[str, Any]],
    rises: Sequence[Rise] = (),
) -> list[Suspect]:
    """The suspects with their likely causes added. nodes, evidence: rows of the result; rises:
    counters that stand out, the worst first."""
    seen = {
        row["host"]: clues_of(row, [rise for rise in rises if rise.host == row["host"]])
        for row in nodes
    }
    stacks = {row["rank"]: where_of(row.get("stack")) for row in evidence}
    found = []
    for suspect in suspects:
        if suspect.host is None:
            clues = [f"{host}: {clue}" for host, rows in seen.items() for clue in rows]
        else:
            place = stacks.get(suspect.rank) if suspect.rank is not None else None
            clues = [*seen.get(suspect.host, []), *([f"it stands in {place}"] if place else [])]
        found.append(
            replace(suspect, why=f"{suspect.why}; likely: {'; '.join(clues[:MOST_CLUES])}")
            if clues
            else suspect
        )
    return found


def clues_of(node: Mapping[str, Any], rises: Sequence[Rise] = ()) -> list[str]:
    """Clues from one node's evidence, the strongest first. rises: its own counters that rose
    unusually."""
    clues = [str(one)[:300] for one in as_list(node.get("gpus"))[:1]]
    clues += [f"its kernel log says {line[:200]!r}" for line in kernel_clues(node)[:2]]
    if node.get("nvml") and "hangs" in str(node["nvml"]):
        clues.append(str(node["nvml"])[:200])
    if rises:
        clues.append(
            rises[0].text + (f", and {len(rises) - 1} more such counters" if len(rises) > 1 else "")
        )
    warnings = as_list(node.get("nccl_warnings"))
    return clues + [
        f"NCCL warned {str(line).split('NCCL WARN ')[-1][:200]!r}" for line in warnings[-1:]
    ]


def kernel_clues(node: Mapping[str, Any]) -> list[str]:
    """The lines of a node's kernel log that tell of a fault."""
    return [
        str(line)
        for line in as_list(node.get("kernel_log"))
        if _SUSPICIOUS.search(str(line)) and not _USUAL.search(str(line))
    ]


def where_of(stack: Any) -> str | None:
    """The function in which the main thread of a rank is, from faulthandler's dump (youngest call
    first)."""
    for part in str(stack or "").split("\n\n"):
        frames = [found for line in part.splitlines() if (found := _FRAME.match(line))]
        if any(frame[3] == "run_phase" for frame in frames):
            return f"{frames[0][3]} ({frames[0][1].rsplit('/', 1)[-1]}:{frames[0][2]})"
    return None
