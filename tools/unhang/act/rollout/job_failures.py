"""Whether jobs fail on released nodes more often than on the others, by what Slurm's accounting
says. Text in, findings out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit
from unhang.core.text import counted, listed, visible

FIELDS = "JobIDRaw,State,NodeList"  # of sacct --parsable2
MOST_CHARACTERS, MOST_NODES = 8_000_000, 20_000
# https://slurm.schedmd.com/sacct.html#SECTION_JOB-STATE-CODES
BY_THE_NODE = ("NODE_FAIL", "BOOT_FAIL")
FAILED = ("FAILED", "OUT_OF_MEMORY", *BY_THE_NODE)
# a person cancels, Slurm preempts: neither says anything about a node
ENDED = ("COMPLETED", "TIMEOUT", "DEADLINE", *FAILED)
MOST_CHANCE = 0.01  # how probable as many failed jobs may be by chance before they count
SHOWN = 3


@dataclass(frozen=True)
class EndedJob:
    """One job's allocation that has ended. nodes: by the scheduler's names."""

    id: str
    state: str
    nodes: frozenset[str]


def parse_ended_jobs(text: str) -> list[EndedJob]:
    """The jobs of sacct's lines (FIELDS). Lines that are none, and jobs that never had a node, are
    skipped."""
    return [job for line in text[:MOST_CHARACTERS].splitlines() if (job := _job(line)) is not None]


def why_unwatched(scheduler: str, answer: Mapping[str, Any]) -> str:
    """Why nobody knows which jobs have ended, "" if sacct has listed them. answer: of Ansible's
    module command."""
    if scheduler != "slurm":
        return (
            f"only Slurm's accounting lists jobs that have ended, and the scheduler is {scheduler}"
        )
    if answer.get("rc") == 0:
        return ""
    return (
        "sacct:"
        f" {visible(str(answer.get('stderr') or answer.get('msg') or 'no answer').strip(), 200)}"
    )


def _job(line: str) -> EndedJob | None:
    parts = line.split("|")
    if len(parts) != len(FIELDS.split(",")) or not parts[1].split():
        return None
    state = parts[1].split()[0]
    try:
        nodes = expand_limit(parts[2]) if state in ENDED and parts[2] else []
    except UserError:
        return None
    return EndedJob(parts[0], state, frozenset(nodes)) if 0 < len(nodes) <= MOST_NODES else None


def faults_by_jobs(jobs: Sequence[EndedJob], released: Mapping[str, str]) -> dict[str, str]:
    """{host: why} of released nodes with whose jobs something is wrong. released: {host: its name
    in the scheduler}. A job that ended because of its node is a fault. Other failed jobs are one if
    so many of the jobs on the released nodes failed, beside those on the other nodes, as chance
    gives in one case of a hundred at most (Fisher's exact test, one-sided)."""
    names = frozenset(released.values())
    ours = [job for job in jobs if job.nodes & names]
    failed = [job for job in ours if job.state in FAILED]
    others = [job for job in jobs if not job.nodes & names]
    failed_elsewhere = sum(job.state in FAILED for job in others)
    is_more = chance(len(failed), len(ours), failed_elsewhere, len(others)) < MOST_CHANCE
    beside = (
        f"{len(failed)} of {counted(len(ours), 'job')} failed on the released nodes,"
        f" {failed_elsewhere} of {len(others)} on the others"
    )
    return {
        host: f"{_listed(own)}{f'; {beside}' if is_more else ''}"
        for host, name in released.items()
        if (own := list(_counting(failed, name, is_more)))
    }


def _counting(failed: Sequence[EndedJob], name: str, is_more: bool) -> Iterator[EndedJob]:
    return (job for job in failed if name in job.nodes and (is_more or job.state in BY_THE_NODE))


def _listed(jobs: Collection[EndedJob]) -> str:
    return (
        "jobs failed on it since its release:"
        f" {listed([f'{visible(job.id, 40)} {job.state}' for job in jobs], SHOWN)}"
    )


def chance(failed: int, ended: int, failed_elsewhere: int, ended_elsewhere: int) -> float:
    """How probable at least so many failures among `ended` jobs are, if failures are spread over
    all jobs by chance. 1.0 where there is nothing to compare."""
    if not failed or not ended_elsewhere:
        return 1.0
    total, bad = ended + ended_elsewhere, failed + failed_elsewhere
    ways = sum(
        math.comb(bad, here) * math.comb(total - bad, ended - here)
        for here in range(failed, min(bad, ended) + 1)
        if ended - here <= total - bad
    )
    return ways / math.comb(total, ended)
