"""Which sources show that a job stands, and which that it works: a job is ended only where two
agree and none says otherwise. Values in, values out."""

from __future__ import annotations

from unhang.jobs.inspect.job_look import JobLook
from unhang.jobs.inspect.moves import BYTES
from unhang.jobs.inspect.rank_looks import (
    RankLook,
    computing_gpus,
    gap_s_of,
    gpus_and_pids,
    section,
)
from unhang.jobs.inspect.whose_gpus import own_gpus, shares_a_gpu
from unhang_node.base.parse.values import number_of

IDLE_LINK_KIB_S = 1024
RAS, STACKS, PROC, DRIVER = "RAS", "stacks", "/proc", "the driver"


def sources_of(job: JobLook) -> dict[str, list[str]]:
    """{stands, works}: the sources that show the one or the other; one that was not read, or does
    not tell, is in neither."""
    alive = [look for look in job.looks if not look.is_ended]
    is_broken = any(look.is_ended or look.is_stopped or look.in_kernel for look in job.looks)
    moved, rests = {look.moved for look in alive}, any(look.waited for look in alive)
    on_gpus = any(
        gpu.get("processes")
        for document in job.documents
        for gpu in own_gpus(*gpus_and_pids(document, 2))
    )
    shown = {
        RAS: job.standing.moved,
        STACKS: True in moved or (False if False in moved else None),
        PROC: False if is_broken else any(map(_works, alive)) or (False if rests else None),
        DRIVER: gpus_move(job) if on_gpus else None,
    }
    return {
        "stands": [name for name, works in shown.items() if works is False],
        "works": [name for name, works in shown.items() if works],
    }


def _works(look: RankLook) -> bool:
    return bool(look.log_grew) or any(sign in BYTES for sign in look.signs)


def gpus_move(job: JobLook) -> bool | None:
    """Whether a GPU of the job moved its memory or its links; None where none is seen to and others
    have memory on one, which then says nothing. False without GPUs, as for a job on processors."""
    for document in job.documents:
        if computing_gpus(document):
            return True
        looks = (own_gpus(*gpus_and_pids(document, number)) for number in (1, 2))
        for first, second in zip(*looks, strict=False):
            moved = [
                sum(map(number_of, values))
                if isinstance(values := gpu.get("nvlink_kib"), list)
                else 0.0
                for gpu in (first, second)
            ]
            if moved[1] - moved[0] > IDLE_LINK_KIB_S * gap_s_of(section(document, "nvml")):
                return True
    is_shared = any(shares_a_gpu(*gpus_and_pids(document, 2)) for document in job.documents)
    return None if is_shared else False
