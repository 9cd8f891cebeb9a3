"""The one command to paste next, with what its answer means. Values in, value out.

A cause has its own in the catalogue. Without one, what is seen decides: a text of a machine is
followed by a look at the machine, a job that failed by its scheduler or the kernel's log, and any
other job by `unhang inspect`, because it may still run. What stands in a log fills a command only
where a shell reads it as a plain word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from unhang.core.verdict.screen import filled, host_name
from unhang.jobs.diagnose.fitting_remedies import OF_NVIDIA, other_accelerator
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.conclusion import OF_A_JOB, OF_A_JOB_FACTS, OF_A_MACHINE_FACTS
from unhang.jobs.diagnose.ranking import Cause

FAULTS = "dmesg -T | grep -e Xid -e NVRM -e AER -e 'Killed process' -e oom | tail -40"
ALIVE = (
    "alive: who is waited for and where it stands; gone: dmesg -T | grep -e Xid -e oom on its node"
)
# circumstance of a failure -> what shows more of it; the first that fits and can be filled
FAILED: tuple[tuple[str, str, str], ...] = (
    ("image-refused", "kubectl describe pod {pod} | tail -20", "its events name what was refused"),
    ("launch-failed", "srun --mpi=list", "the plugin that the line names is not there: this"),
    ("import-failed", "which -a python; python -c 'import sys; print(sys.executable, sys.path)'",
     "another python than in your shell: PATH or the image; the same: install the module there"),
    ("killed", "sacct -j {job} -o JobID,State%30,ExitCode,MaxRSS,ReqMem,Elapsed",
     "OUT_OF_MEMORY or a MaxRSS near ReqMem: memory; TIMEOUT or CANCELLED: it was ended"),
    ("killed", FAULTS, "a killed process or an Xid at that time: this; none: the scheduler's log"),
    ("kubernetes", "kubectl get events --sort-by .lastTimestamp | tail -30",
     "why a pod was ended or could not start"),
    ("slurm", "sacct -j {job} -o JobID,State%30,ExitCode,MaxRSS,Elapsed,NodeList",
     "the step that failed first, its exit code and its node"),
    ("failed", FAULTS, "a line at that time: the machine; none: the program's own traceback"),
)  # fmt: skip
OF_A_MACHINE = (
    "an Xid, a killed process or a bus error names what failed; unhang audit reads the whole"
    " machine"
)
# what to collect beside a log of the kernel: command, then its outcomes
STEPS_OF_A_MACHINE = (
    f"{FAULTS}\nan Xid: unhang explain xid NUMBER\na killed process: memory of the node, or of its"
    " container\nAER, or fallen off the bus: the card, its slot or cable",
    "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT,PERFORMANCE\nerrors, a pending remapping, or"
    " no answer: that GPU",
    "unhang audit\nwhat it finds on this machine, each with what to do",
)
# as the kernel, syslog and the journal begin a line
_KERNELS = re.compile(
    r"\s*(?:<\d+>)?\[\s*\d+\.\d+\]"
    r"|\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\]"
    r"|(?:\w{3} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+) \S+ [\w./-]{1,40}(?:\[\d+\])?: "
)
_SCRIPT = re.compile(
    r"(?:torchrun|python3?|accelerate launch|deepspeed|mpirun|srun)\b[^|;&\n]{0,300}?\s"
    r"(?:\S{0,200}/)?([A-Za-z0-9_][\w-]{0,60}\.py)\b"
    r"|(?:^|[\s/])([A-Za-z0-9_][\w-]{0,60}\.py) FAILED"
)
_PEER = re.compile(r"([0-9a-fA-F.:]+?)(?:<(\d+)>)?")
# fact -> its field, of jobs of Slurm
_JOBS = {"slurm_job": "value", "slurm_ended": "job", "killed": "job"}
_JOB = re.compile(r"(?:\bjob |JobId=|SLURM_JOB_ID[=:] ?|StepId=|JOB )(\d{2,12})\b")


def next_command(
    facts: Facts,
    word: str,
    causes: Sequence[Cause],
    rows: Mapping[str, Mapping[str, Any]],
    told: Collection[str],
) -> dict[str, Any] | None:
    """{host, command, tells}; None where nothing was read. word: of the conclusion. causes: those
    that are shown, most probable first. told: the circumstances."""
    if word == "nothing":
        return None
    events = [event for one in causes[:1] for piece in one.for_ for event in piece.events]
    host = _host(events, facts)
    values = _values(events, facts)
    if causes and not (other_accelerator(facts) and causes[0].id in OF_NVIDIA):
        for one in rows[causes[0].id].get("commands", ()):
            if command := filled(one["run"], values):
                return _row(host, command, one["tells"])
    of_tools = any(map(facts.of, OF_A_MACHINE_FACTS)) and not (
        _has_a_job(facts) or any(map(facts.of, OF_A_JOB_FACTS))
    )
    if is_kernel_log(facts) or (of_tools and word == "healthy"):
        return _row(host, FAULTS, OF_A_MACHINE)
    if word == "healthy":
        return _row(
            host, "unhang inspect", "if it still seems to hang: whether it moves, and where"
        )
    if word == "failure":
        for circumstance, run, tells in FAILED:
            if circumstance in told and (command := filled(run, values)):
                return _row(host, command, tells)
    return _row(host, inspect_command(facts, values, bool(host)), ALIVE)


def not_given(facts: Facts) -> list[str]:
    """The kinds of evidence that would say more and are not among the inputs."""
    events = [event for event in facts.events if not event.quoted]
    kernels = any(_KERNELS.match(event.text) for event in events) or any(
        _KERNELS.match(text) for lines in facts.last.values() for _, text in lines
    )
    given = {
        "a log of the job": any(event.signature.kind in OF_A_JOB for event in events)
        or any(facts.of(name) for name in OF_A_JOB_FACTS)
        or bool(facts.timeouts or facts.words),
        "the kernel's log": kernels or bool(facts.of("xid")),
        "stacks": any(facts.of(name) for name in ("stack_process", "stack_of_rank", "stack_dump")),
        "a flight recorder's dump": bool(facts.flights),
    }
    return [name for name, is_there in given.items() if not is_there]


def inspect_command(facts: Facts, values: Mapping[str, Sequence[str]], on_one_host: bool) -> str:
    """`unhang inspect` for the job of the log: by its number in Slurm where several nodes are
    meant, by its script, else for the only job of the machine."""
    if not on_one_host and (command := filled("unhang inspect --slurm-job {job}", values)):
        return command
    scripts = {
        found[1] or found[2] for event in facts.events for found in _SCRIPT.finditer(event.text)
    }
    if len(scripts) == 1:
        return f'unhang inspect --pid "$(pgrep -of {scripts.pop()})"'
    return "unhang inspect"


def is_kernel_log(facts: Facts) -> bool:
    """Whether the texts are the kernel's or the system's log, without a line of a job."""
    lines = [text for those in facts.last.values() for _, text in those]
    kernels = sum(bool(_KERNELS.match(one)) for one in lines)
    return bool(lines) and kernels * 4 >= len(lines) * 3 and not _has_a_job(facts)


def _has_a_job(facts: Facts) -> bool:
    """Whether a line tells of a job's progress, end or wait."""
    return bool(facts.timeouts) or any(
        event.signature.kind in OF_A_JOB and not event.quoted for event in facts.events
    )


def _row(host: str, command: str, tells: str) -> dict[str, Any]:
    return {"host": host or None, "command": command, "tells": tells}


def _host(events: Sequence[Event], facts: Facts) -> str:
    """The host that the lines of the cause name; of a log with one host that one."""
    named = [event.fields.get("host") or event.prefix.host for event in events]
    hosts = [one for one in map(host_name, named) if one]
    return hosts[0] if hosts else host_name(facts.hosts[0]) if len(facts.hosts) == 1 else ""


def _values(events: Sequence[Event], facts: Facts) -> dict[str, list[str]]:
    """placeholder -> its candidates: from the lines of the cause, then the job's number from any
    line."""
    found: dict[str, list[str]] = {}
    for event in events:
        for name, value in _fields(event):
            found.setdefault(name, []).append(value)
    for event in facts.events:
        number = event.fields.get(_JOBS.get(event.signature.fact or "", "")) or next(
            (
                one[1]
                for one in [_JOB.search(event.text)]
                if one and "lurm" in event.signature.program
            ),
            None,
        )
        found.setdefault("job", []).extend([number] if number else [])
    return found


def _fields(event: Event) -> Iterator[tuple[str, str]]:
    for name, value in event.fields.items():
        text = (value or "").strip(" .,;:'\"")
        if name == "pci" and text:
            yield name, text if "." in text else f"{text}.0"
        elif name in ("peer", "address") and (peer := _PEER.fullmatch(text)):
            yield "address", peer[1]
            if peer[2]:
                yield "port", peer[2]
        elif name in ("own", "what", "peer", "second") or not text:
            continue
        else:
            yield name, text
