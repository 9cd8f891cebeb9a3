"""What could not be read of a job, and what would let it be read. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.core.verdict.job import RankLook
from unhang.jobs.inspect.evidence import NodeEvidence
from unhang.jobs.inspect.inspection import Unread

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
    nodes: Sequence[NodeEvidence], looks: Sequence[RankLook], answers: bool
) -> list[Unread]:
    """Equal reasons of several hosts once. answers: whether
    RAS of one node did, which answers for all."""
    found: dict[tuple[str, str, str], list[NodeEvidence]] = {}
    for node in nodes:
        for what in MATTERS:
            for status, why in _reasons(node, what):
                if (what == "ras" and answers) or (
                    what in ("nvml", "ras")
                    and status == "absent"
                    and not answers
                    and _on_processors(node, looks)
                ):
                    continue
                found.setdefault((what, status, why), []).append(node)
    return [
        Unread([node.host for node in rows], what, status, why, _helps(rows[-1], what, status))
        for (what, status, why), rows in [*found.items()][:64]
    ]


def _helps(node: NodeEvidence, what: str, status: str) -> str | None:
    if status == "invalid" or status not in HELPED.get(what, (status,)):
        return None
    if node.as_root and (what in AS_ROOT or status == "denied"):
        return AS_ROOT.get(what) if status != "denied" else None
    return HELPS[what].format(host=node.host) if what in HELPS else None


def _on_processors(node: NodeEvidence, looks: Sequence[RankLook]) -> bool:
    """Whether the job has no GPU, and so neither driver nor NCCL."""
    return not any(look.gpu for look in looks) and "absent" in dict(_reasons(node, "nvml"))


def _reasons(node: NodeEvidence, what: str) -> list[tuple[str, str]]:
    probe = node.probes.get(what)
    if probe is None or probe.error == "not asked for":
        return []
    if probe.status != "ok":
        return [(probe.status, str(probe.error)[:FOLDED_REASON])]
    return [
        *dict.fromkeys(
            (row["status"], row["reason"][:FOLDED_REASON])
            for row in probe.unread
            if what in ("ranks", "stacks", "ras", "pace") or row["status"] == "invalid"
        )
    ][:4]
