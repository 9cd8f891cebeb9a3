"""Which sources show that a job stands, and which that it works: a job is ended only where two
agree and none says otherwise. Values in, values out."""

from __future__ import annotations

from unhang.jobs.inspect.inspection import Sources
from unhang.jobs.inspect.job_look import JobLook
from unhang.jobs.inspect.moves import BYTES
from unhang.jobs.inspect.rank_looks import RankLook

RAS, STACKS, PROC, DRIVER = "RAS", "stacks", "/proc", "the driver"


def sources_of(job: JobLook) -> Sources:
    """The sources that show the one or the other; one that was not read, or does
    not tell, is in neither."""
    alive = [look for look in job.looks if not look.is_ended]
    is_broken = any(look.is_ended or look.is_stopped or look.in_kernel for look in job.looks)
    moved, rests = {look.moved for look in alive}, any(look.waited for look in alive)
    shown = {
        RAS: job.standing.moved,
        STACKS: True in moved or (False if False in moved else None),
        PROC: False if is_broken else any(map(_works, alive)) or (False if rests else None),
        DRIVER: gpus_move(job) if any(node.in_use for node in job.nodes) else None,
    }
    stands = [name for name, works in shown.items() if works is False]
    return Sources(stands, [name for name, works in shown.items() if works])


def _works(look: RankLook) -> bool:
    return bool(look.log_grew) or any(sign in BYTES for sign in look.signs)


def gpus_move(job: JobLook) -> bool | None:
    """Whether a GPU of the job moved its memory or its links; None where none is seen to and others
    have memory on one, which then says nothing. False without GPUs, as for a job on processors."""
    if any(node.moves for node in job.nodes):
        return True
    return None if any(node.is_shared for node in job.nodes) else False
