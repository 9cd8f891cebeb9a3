"""The samples of a job of Slurm: one sampler on each of its nodes, in one step beside the job's
own, as its owner; their lines are those of one job here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unhang.core.errors import UserError
from unhang.core.text import visible
from unhang.jobs.inspect.ways import (
    MOST_MASKED_BYTES,
    NODE,
    end_of,
    lines_of_tasks,
    named_by_task,
    nodes_of,
    program_bytes,
    read_slurm_job,
    run_of_slurm,
    step_of,
)
from unhang.jobs.watch.live import SILENT_S, raw_lines
from unhang.jobs.watch.plain_samples import plain_sample
from unhang.jobs.watch.record import FAILED, UNSEEN, WELL

STARTING_S = 120.0  # of srun on many nodes, until the first sample
MOST_COMMENT = 400  # characters, of a job's AdminComment
MOST_IN_A_MOMENT = 4096  # samples of a node
# moments after which the last sample of a node that fell silent says nothing any more
MOST_MISSED = 3
# Takes the program from standard input into memory, because a step that is ended removes no file,
# and runs it. Its lines go on in short pieces with the node's name, because srun mixes long lines
# of its tasks.
LOADER = (
    "import json,os,subprocess,sys\n"
    "f=os.memfd_create('unhang-inspect')\n"
    "open(f,'wb',closefd=False).write(sys.stdin.buffer.read())\n"
    "c=subprocess.Popen([sys.executable,'-I','/proc/self/fd/%d'%f]+sys.argv[1:],stdout=subprocess.PIPE,stdin=subprocess.DEVNULL,pass_fds=[f])\n"
    "n=os.environ.get('SLURMD_NODENAME','?')\n"
    "for out in c.stdout:\n"
    "    out=out.strip().replace(b'{',('{\"asked_as\":'+json.dumps(n)+',').encode(),1)\n"
    "    s=[out[i:i+900] for i in range(0,len(out),900)]\n"
    "    for i,x in enumerate(s):sys.stdout.buffer.write(('~%s %d/%d '%(n,i+1,len(s))).encode()+x+b'\\n')\n"  # noqa: E501
    "    sys.stdout.buffer.flush()\n"
)


def slurm_samples(job: str, every_s: float) -> Iterator[Mapping[str, Any]]:
    """The trace of a job until it ends. Raises UserError when it does not run, and when the step
    ends before the job."""
    count = nodes_of(job)
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as errors:
        stdin.write(program_bytes())
        stdin.seek(0)
        argv = [
            *step_of(job, count),
            "python3",
            "-I",
            "-c",
            LOADER,
            "--slurm-job",
            job,
            "--sample",
            str(every_s),
        ]
        child = subprocess.Popen(
            argv, stdin=stdin, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        try:
            yield from merged(
                parsed(lines_of_tasks(raw_lines(child, STARTING_S + SILENT_S + every_s))), count
            )
        finally:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()
        if is_running(job):
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - MOST_MASKED_BYTES))
            raise UserError(
                f"--slurm-job {job}: the step of the watcher ended before the job:"
                f" {end_of(errors.read(MOST_MASKED_BYTES), 300)}"
            )


def is_running(job: str) -> bool:
    """Whether Slurm still runs the job."""
    try:
        return nodes_of(job) > 0
    except UserError:
        return False


def write_admin_comment(name: str, text: str) -> None:
    """Writes the AdminComment of a job, which root and operators may. Raises UserError."""
    line = visible(text, MOST_COMMENT).replace('"', "'")
    _ask(["scontrol", "update", f"JobId={name}", f"AdminComment={line}"])


def how_it_ended(job: str) -> str:
    """FAILED, WELL, or UNSEEN for one that runs or that Slurm says nothing about. In its epilog a
    job is completing: then its exit code decides."""
    try:
        found = read_slurm_job(job)
    except UserError:
        return UNSEEN
    if found.state in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"):
        return UNSEEN
    is_well = found.state in ("COMPLETED", "COMPLETING") and not found.exit_status
    return WELL if is_well else FAILED


def cancel(job: str) -> None:
    """Ends this job alone, as Slurm does: SIGTERM, and after its KillWait SIGKILL. Raises
    UserError."""
    _ask(["scancel", job])


def _ask(argv: list[str]) -> None:
    """Raises UserError."""
    if (done := run_of_slurm(argv)).returncode:
        raise UserError(f"{' '.join(argv[:3])}: {end_of(done.stderr, 200)}")


def parsed(lines: Iterable[tuple[bytes, bytes]]) -> Iterator[Mapping[str, Any]]:
    """The samples of (task, line). What is no sample of a node is passed over."""
    found = ((task, plain_sample(line)) for task, line in lines)
    return named_by_task(
        (task, sample) for task, sample in found if sample is not None and NODE in sample
    )


def merged(lines: Iterable[Mapping[str, Any]], count: int) -> Iterator[Mapping[str, Any]]:
    """The samples of `count` nodes, of clocks of their own, as moments of one job: a moment is over
    when each node had one, or one of them its second. Of a node that is late the last samples stay
    for MOST_MISSED moments."""
    open_now: dict[str, tuple[float, list[Mapping[str, Any]]]] = {}
    last: dict[str, list[Mapping[str, Any]]] = {}
    missed: dict[str, int] = {}
    t, ready = 0.0, set[str]()
    for line in lines:
        node, at = line[NODE], line.get("t")
        if not isinstance(at, (int, float)):
            yield line
            continue
        if node not in open_now and len(open_now) >= count:
            continue  # a node that nobody asked
        began, group = open_now.get(node, (float(at), []))
        if began == at:
            if len(group) < MOST_IN_A_MOMENT:
                group.append(line)
            open_now[node] = (began, group)
            continue
        if node in ready:
            yield from _moment(last, t)
            missed = {one: 0 if one in ready else missed.get(one, 0) + 1 for one in last}
            last = {one: group for one, group in last.items() if missed[one] < MOST_MISSED}
            ready = set()
        last[node], open_now[node] = group, (float(at), [line])
        t = max(t + 0.001, began)
        ready.add(node)
        if len(ready) >= count:
            yield from _moment(last, t)
            missed, ready = dict.fromkeys(last, 0), set()


def _moment(groups: Mapping[str, list[Mapping[str, Any]]], t: float) -> Iterator[Mapping[str, Any]]:
    """RAS of one node answers for the whole job: the first answer that is one counts."""
    samples = [line for group in groups.values() for line in group if "waiting" not in line]
    counted = [line for line in samples if "ras" in line]
    yield from (
        {**line, "t": t} for line in sorted(counted, key=lambda line: line["ras"] is None)[:1]
    )
    yield from ({**line, "t": t} for line in samples if "ras" not in line)
