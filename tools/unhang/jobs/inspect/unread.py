"""What could not be read of a job, and what would let it be read. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.verdict.job import RankLook
from unhang.jobs.inspect.inspection import Unread
from unhang.jobs.inspect.rank_looks import host_of, section
from unhang_node.base.parse.values import as_maps

HELPS = {
    "ras": (
        "NCCL 2.24 or later with NCCL_RAS_ENABLE=1 (the default); a job with an address of its own:"
        " NCCL_RAS_ADDR"
    ),
    "stacks": (
        "sudo $(command -v unhang) inspect; or, as the job's user, sysctl"
        " kernel.yama.ptrace_scope=0"
    ),
    "nvml": (
        "the driver answers nvidia-smi; where it hangs, that is the finding: unhang audit --host"
        " {host}"
    ),
    "log_tail": "the owner adds: unhang diagnose BUNDLE LOG (torchrun --log-dir, sbatch --output)",
    "kernel_log": "root adds: dmesg -T > dmesg.txt; then unhang diagnose BUNDLE dmesg.txt",
    "ranks": "sudo $(command -v unhang) inspect, or as the job's user; name one with --pid",
}
AS_ROOT = {"stacks": None, "ranks": "name one with --pid"}  # for who is root already
# of these only where it is the reason
HELPED = {"kernel_log": ("denied",), "stacks": ("denied", "absent")}
MATTERS = ("ranks", "ras", "stacks", "nvml", "proc", "log_tail", "kernel_log", "pace")
FOLDED_REASON = 200


def unread_rows(
    documents: Sequence[Mapping[str, Any]], looks: Sequence[RankLook], answers: bool
) -> list[Unread]:
    """Equal reasons of several hosts once. answers: whether
    RAS of one node did, which answers for all."""
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for document in documents:
        for what in MATTERS:
            for status, why in _reasons(document, what):
                if what == "ras" and answers:
                    continue
                if (
                    what in ("nvml", "ras")
                    and status == "absent"
                    and not answers
                    and _on_processors(document, looks)
                ):
                    continue
                found.setdefault((what, status, why), []).append(document)
    return [
        Unread([*map(host_of, rows)], what, status, why, _helps(rows[-1], what, status))
        for (what, status, why), rows in [*found.items()][:64]
    ]


def _helps(document: Mapping[str, Any], what: str, status: str) -> str | None:
    if status not in HELPED.get(what, (status,)):
        return None
    if document["collector"].get("as_root") and (what in AS_ROOT or status == "denied"):
        return AS_ROOT.get(what) if status != "denied" else None
    return HELPS[what].format(host=host_of(document)) if what in HELPS else None


def _on_processors(document: Mapping[str, Any], looks: Sequence[RankLook]) -> bool:
    """Whether the job has no GPU, and so neither driver nor NCCL."""
    return not any(look.gpu for look in looks) and any(
        status == "absent" for status, _ in _reasons(document, "nvml")
    )


def _reasons(document: Mapping[str, Any], what: str) -> list[tuple[str, str]]:
    probe = section(document, what).get("probe")
    if not isinstance(probe, Mapping) or probe.get("error") == "not asked for":
        return []
    if probe.get("status") != "ok":
        return [(str(probe.get("status")), str(probe.get("error"))[:FOLDED_REASON])]
    rows = as_maps(probe.get("unread")) if what in ("ranks", "stacks", "ras", "pace") else []
    return list(
        dict.fromkeys(
            (str(row.get("status")), str(row.get("reason"))[:FOLDED_REASON]) for row in rows
        )
    )[:4]
