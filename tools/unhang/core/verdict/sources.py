"""Which sources show that a job hangs, and which that it works: a job is ended only where two
agree and none says otherwise. Values in, values out."""

from __future__ import annotations

from unhang.core.verdict.job import BYTES, Job, RankLook


def sources_of(job: Job) -> tuple[list[str], list[str]]:
    """The sources that show the one, and those that show the other; one that was not read, or does
    not show it, is in neither."""
    alive = [look for look in job.looks if not look.is_ended]
    is_broken = any(look.is_ended or look.is_stopped or look.in_kernel for look in job.looks)
    moved, rests = {look.moved for look in alive}, any(look.waited for look in alive)
    shown = {
        "RAS": job.standing.moved,
        "stacks": True in moved or (False if False in moved else None),
        "/proc": False if is_broken else any(map(_works, alive)) or (False if rests else None),
        "the driver": job.gpus_move if any(node.in_use for node in job.nodes) else None,
    }
    stands = [name for name, works in shown.items() if works is False]
    return stands, [name for name, works in shown.items() if works]


def _works(look: RankLook) -> bool:
    return bool(look.log_grew) or any(sign in BYTES for sign in look.signs)
