"""Which sources show that a job stands, and which that it works: a job is ended only where two
agree and none says otherwise. Values in, values out."""

from __future__ import annotations

from unhang.jobs.inspect.job_look import JobLook
from unhang.jobs.inspect.moves import BYTES
from unhang.jobs.inspect.rank_looks import RankLook, computing_gpus, own_gpus, section
from unhang_node.base.parse.values import number_of

IDLE_LINK_KIB_S = 1024
RAS, STACKS, PROC, DRIVER = "RAS", "stacks", "/proc", "the driver"


def sources_of(job: JobLook) -> dict[str, list[str]]:
    """{stands, works}: the sources that show the one or the other; one that was not read, or does
    not tell, is in neither."""
    standing = job.standing
    alive = [look for look in job.looks if not look.is_ended]
    is_broken = any(look.is_ended or look.is_stopped or look.in_kernel for look in job.looks)
    on_gpus = any(
        gpu.get("processes") for document in job.documents for gpu in own_gpus(document, 2)
    )
    shown = {
        RAS: standing.moved if standing else None,
        STACKS: any(look.moved for look in alive)
        if any(look.moved is not None for look in alive)
        else None,
        PROC: False
        if is_broken
        else True
        if any(map(_works, alive))
        else False
        if alive and any(look.waited for look in alive)
        else None,
        DRIVER: not gpus_idle(job) if on_gpus else None,
    }
    return {
        "stands": [name for name, works in shown.items() if works is False],
        "works": [name for name, works in shown.items() if works],
    }


def _works(look: RankLook) -> bool:
    return bool(look.log_grew) or any(sign in BYTES for sign in look.signs)


def gpus_idle(job: JobLook) -> bool:
    """No GPU of the job moved its memory or its links; True without GPUs, as for a job on
    processors."""
    for document in job.documents:
        nvml = section(document, "nvml")
        if computing_gpus(document):
            return False
        seconds = (
            max(0.1, number_of(nvml["at_2_s"]) - number_of(nvml.get("at_1_s")))
            if nvml.get("at_2_s")
            else 1.0
        )
        for first, second in zip(own_gpus(document, 1), own_gpus(document, 2), strict=False):
            moved = [
                sum(map(number_of, values))
                if isinstance(values := gpu.get("nvlink_kib"), list)
                else 0.0
                for gpu in (first, second)
            ]
            if moved[1] - moved[0] > IDLE_LINK_KIB_S * seconds:
                return False
    return True
