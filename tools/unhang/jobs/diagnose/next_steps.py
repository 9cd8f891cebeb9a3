"""What to run next: one command to paste, and further steps, each with what its answer means.
Values in, values out.

A cause has its own in the catalogue (`commands` of `causes.yml`). Without one, what is seen
decides: a text of a machine is followed by a look at the machine, a job that failed by the row of
the table `error_words` for its words, its scheduler or the kernel's log, and any other job by
`unhang inspect`, because it may still run. Text of a log fills a command only where a shell
reads it as a plain word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.core.verdict.screen import FAULTS, filled, host_name
from unhang.jobs.diagnose.affected import who_is_meant
from unhang.jobs.diagnose.fitting_remedies import launchers, other_accelerator
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event, names_in
from unhang.jobs.diagnose.meaning.conclusion import (
    ASK_RAS_AGAIN,
    Conclusion,
    tells_of_a_job,
)
from unhang.jobs.diagnose.meaning.rules.stack_rules import common_place
from unhang.jobs.diagnose.meaning.signs import is_slow, own_errors
from unhang.jobs.diagnose.ranking import Cause

MOST_COMMANDS, KERNELS_LOG = 4, "the kernel's log"
Step = tuple[str, str]  # a command that can be pasted, and what its answer means
ALIVE = "alive: who is waited for and where it is; ended: dmesg -T | grep -e Xid -e oom on its node"
INSPECT = "unhang inspect"
AFTER_THE_REPAIR = "its output is among the inputs; once more after the repair: whether it helped"
IN_WORDS = ("the ", "each ")  # how steps begin that are no command
_IMPORT = "No module named "
_RAISED = re.compile(r"(?:\[[\w ]{1,20}\]: ?)?[A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt): ")
_EXIT = re.compile(r"\bexit(?:ed with)? (?:code|status)\W{0,3}\d{1,3}\W{0,2}$")
# facts that show that the output of a command is among the inputs -> beginning of the command
BETWEEN_GPUS = ("the same job with NCCL_P2P_DISABLE", "the same start with NCCL_P2P_DISABLE")
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


def next_steps(
    facts: Facts,
    conclusion: Conclusion,
    causes: Sequence[Cause],
    rows: Mapping[str, Mapping[str, Any]],
    error: Mapping[str, Any] | None,
) -> tuple[dict[str, Any] | None, list[str]]:
    """({host, command, tells}, further steps); None where nothing was read. causes: those that are
    shown, most probable first. error: the row of `error_words` for the line of a failure."""
    if conclusion.word == "nothing":
        return None, list(conclusion.first)
    events = [event for one in causes[:1] for piece in one.for_ for event in piece.events]
    host, values = _host(causes, facts), _values(events, facts)
    steps = [*_of_causes(facts, causes, rows, values)] or [
        *_of_what_was_seen(facts, conclusion.word, values, bool(host))
    ]
    if any(map(facts.said, names_in("ends"))) or _all_raised(facts):
        # what has ended cannot be looked at
        instead = next(_of_state("healthy" if conclusion.word == "healthy" else "ended"))
        steps = [instead if one[0].startswith(INSPECT) else one for one in steps]
    elif ASK_RAS_AGAIN in conclusion.first:
        run, tells = ASK_RAS_AGAIN.split("\n")
        steps = [(run, tells), *steps]
    given = tuple(commands_with_output(facts))
    fresh = [one for one in steps if not one[0].removeprefix("sudo ").startswith(given)]
    again = [(run, AFTER_THE_REPAIR) for run, _ in steps]
    command, tells = next(one for one in fresh + again if not one[0].startswith(IN_WORDS))
    further = [one for one in conclusion.first if not one.startswith(command)]
    further += ["\n".join([error["run"], *error["tells"]])] if error else []
    if conclusion.word != "healthy":
        further += ["\n".join(one) for one in fresh if one[0] != command]
    then = {"host": host or None, "command": command, "tells": tells}
    return then, further[:MOST_COMMANDS]


def _all_raised(facts: Facts) -> bool:
    """Whether a file ends with the code of a process that ended, or each with an exception."""
    ends = [lines[-1][1] for lines in facts.last.values() if lines]
    raised = len(ends) > 1 and all(map(_RAISED.match, ends))
    return raised or any(map(_EXIT.search, ends))


def _of_causes(
    facts: Facts,
    causes: Sequence[Cause],
    rows: Mapping[str, Mapping[str, Any]],
    values: Mapping[str, Sequence[str]],
) -> Iterator[Step]:
    """The commands of the first cause that can be filled; of those with one meaning the first."""
    told = set()
    if not causes or (other_accelerator(facts) and causes[0].id in table("causes_of_nvidia")):
        return
    for one in rows[causes[0].id].get("commands", ()):
        command = filled(one["run"], values)
        if command and one["tells"] not in told:
            told.add(one["tells"])
            yield command, one["tells"]


def _of_state(state: str) -> Iterator[Step]:
    """The steps of the table for what a text is of, or the state of a job."""
    for row in table("steps_of_states").values():
        if row["state"] == state:
            yield row["run"], row["tells"]


def _of_what_was_seen(
    facts: Facts, word: str, values: Mapping[str, Sequence[str]], on_one_host: bool
) -> Iterator[Step]:
    """What fits without a command of a cause. word: of the conclusion."""
    if is_kernel_log(facts) or (
        (facts.of_tools or facts.of("tool_output")) and not tells_of_a_job(facts)
    ):
        yield from _of_state("machine")
        return
    if word == "healthy":
        yield from _of_state("well")
        return
    rows = [row for row in table("steps_of_lines").values() if facts.said(row["fact"])]
    of_lines = [
        (command, str(row["tells"]))
        for row in rows
        if row["fact"] == rows[0]["fact"] and (command := filled(row["run"], values))
    ]
    if word != "failure":
        yield inspect_command(facts, values, on_one_host), ALIVE
        yield from _of_state("slow") if is_slow(facts) else of_lines
        yield next(_of_state("machine"))
        return
    if any(_IMPORT in event.text for event in facts.of("crash")):
        yield from _of_state("module")
    yield from of_lines
    explains = any(row["fact"] in names_in("explained") for row in rows)
    for row in table("steps_of_failures").values():
        fits = row["run"] == FAULTS if explains else row["launcher"] in {"", *launchers(facts)}
        if fits and (command := filled(row["run"], values)):
            yield command, row["tells"]


def explained(facts: Facts, conclusion: Conclusion) -> tuple[Event, Mapping[str, Any]] | None:
    """(line, its row) for a conclusion without a cause: of a hang the line that it shows, if that
    reports an error; of a failure that line, or the first other one that reports an error. What a
    line of its own explains needs no row."""
    if any(map(facts.of, names_in("explained"))):
        return None
    shown, errors = conclusion.event, own_errors(facts)
    lines = [shown] if conclusion.word == "failure" or shown in errors else []
    lines += [facts.first_error, *errors] if conclusion.word == "failure" else []
    return next(
        ((line, row) for line in lines if isinstance(line, Event) and (row := row_of(line.text))),
        None,
    )


@cache
def _rows() -> tuple[tuple[tuple[str, ...], str, Mapping[str, Any]], ...]:
    return tuple(
        (tuple(word.lower() for word in row["words"]), (row.get("beside") or "").lower(), row)
        for row in table("error_words").values()
    )


def row_of(text: str) -> Mapping[str, Any] | None:
    """The first row of the table one of whose words is in the text, with the text that must be
    beside it."""
    lowered = text.lower()
    return next(
        (
            row
            for words, beside, row in _rows()
            if beside in lowered and any(word in lowered for word in words)
        ),
        None,
    )


def commands_with_output(facts: Facts) -> list[str]:
    """Beginnings of commands whose output is among the inputs, or that decide nothing where all
    stacks are outside of collectives."""
    return [
        *(row["shown_by"] for fact, row in table("shown_facts").items() if facts.of(fact)),
        *(["the flight recorder's"] if facts.flights else []),
        *([] if KERNELS_LOG in not_given(facts) else ["dmesg"]),
        *([*BETWEEN_GPUS] if common_place(facts) else []),
    ]


def not_given(facts: Facts) -> list[str]:
    """The kinds of evidence that would say more and are not among the inputs."""
    kernels = any(_KERNELS.match(event.text) for event in facts.plain) or any(
        _KERNELS.match(text) for lines in facts.last.values() for _, text in lines
    )
    given = {
        "a log of the job": tells_of_a_job(facts) or bool(facts.words),
        KERNELS_LOG: kernels or bool(facts.of("xid")),
        "stacks": any(map(facts.of, ("stack_process", "stack_of_rank", "stack_dump"))),
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
    return (
        bool(lines)
        and kernels * 4 >= len(lines) * 3
        and not (tells_of_a_job(facts) or facts.counts)
    )


def _host(causes: Sequence[Cause], facts: Facts) -> str:
    """The host that the lines of the first cause name; of a log with one host that one."""
    meant = [who for one in causes[:1] for who in who_is_meant(one.for_, facts)]
    named = [who.removeprefix("host ") for who in meant if who.startswith("host ")]
    known = [*filter(host_name, named), *(facts.hosts if len(facts.hosts) == 1 else ())]
    return host_name(known[0]) if known else ""


def _values(events: Sequence[Event], facts: Facts) -> dict[str, list[str]]:
    """placeholder -> its candidates: from the lines of the cause, then the job's number from any
    line."""
    found: dict[str, list[str]] = {}
    for event in events:
        for name, value in _fields(event):
            found.setdefault(name, []).append(value)
    for event in facts.events:
        number = event.fields.get(_JOBS.get(event.fact or "", "")) or next(
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
