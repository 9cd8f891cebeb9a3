"""What is likely: what a node's kernel log, driver and counters, and a rank's stack said at the time of the trouble, added to why it is suspected.

Evidence beside evidence, not proof: an Xid on the suspected node in those seconds is more likely its cause than anything that the ranks know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.smoke.suspects import Suspect

# Xid and SXid of the NVIDIA driver, the kernel's own words for memory, hung tasks and PCIe errors, and NICs that lost their link or their firmware.
_TELLING = re.compile(
    r"NVRM: Xid|SXid|NVRM: .*fail|[Oo]ut of memory|oom-kill|blocked for more than|soft lockup|segfault at|AER: .*error|PCIe Bus Error"
    r"|mlx5_core .*(?:health|error|fatal)|[Ll]ink (?:is )?(?:down|Down)|nfs: server .* not responding|I/O error"
)
_NIC_ERRORS = re.compile(r"error|crc|discard|symbol|link_downed|seq_err|ack_timeout|out_of_buffer|retry|retransmit", re.IGNORECASE)
_FRAME = re.compile(r'^  File "([^"]{1,300})", line (\d+)(?: in (\S{1,100}))?')
MOST_CLUES = 3


def with_likely(suspects: Sequence[Suspect], nodes: Sequence[Mapping[str, Any]], evidence: Sequence[Mapping[str, Any]]) -> list[Suspect]:
    """The suspects with what was seen beside. nodes, evidence: rows of the result."""
    seen = {row["host"]: clues_of(row) for row in nodes}
    stacks = {row["rank"]: where_of(row.get("stack")) for row in evidence}
    found = []
    for suspect in suspects:
        if suspect.host is None:
            clues = [f"{host}: {clue}" for host, rows in seen.items() for clue in rows]
        else:
            place = stacks.get(suspect.rank) if suspect.rank is not None else None
            clues = [*seen.get(suspect.host, []), *([f"it stands in {place}"] if place else [])]
        found.append(replace(suspect, why=f"{suspect.why}; likely: {'; '.join(clues[:MOST_CLUES])}") if clues else suspect)
    return found


def clues_of(node: Mapping[str, Any]) -> list[str]:
    """What one node's evidence says, the most telling first."""
    log = [str(line) for line in _rows(node.get("kernel_log")) if _TELLING.search(str(line))]
    clues = [f"its kernel log says {line[:200]!r}" for line in log[:2]]
    if node.get("nvml") and "hangs" in str(node["nvml"]):
        clues.append(str(node["nvml"])[:200])
    for kind, wanted in (("nvlink", re.compile("error")), ("counters", _NIC_ERRORS)):
        moved = {str(name): count for name, count in _map(node.get(kind)).items() if isinstance(count, int) and count > 0 and wanted.search(str(name))}
        if moved:
            name = max(moved, key=lambda one: moved[one])
            clues.append(f"{name} rose by {moved[name]}" + (f", and {len(moved) - 1} more error counters" if len(moved) > 1 else ""))
    warnings = _rows(node.get("nccl_warnings"))
    return clues + [f"NCCL warned {str(line).split('NCCL WARN ')[-1][:200]!r}" for line in warnings[-1:]]


def where_of(stack: Any) -> str | None:
    """The function in which the main thread of a rank stands, from faulthandler's dump (youngest call first)."""
    for part in str(stack or "").split("\n\n"):
        frames = [found for line in part.splitlines() if (found := _FRAME.match(line))]
        if any(frame[3] == "run_phase" for frame in frames):
            return f"{frames[0][3]} ({frames[0][1].rsplit('/', 1)[-1]}:{frames[0][2]})"
    return None


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
