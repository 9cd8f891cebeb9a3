"""Evidence from the files of a job for a cause that its log does not decide: lint's findings and
settings, each with the line of the log that it would explain. A file alone is not evidence: without
a matching line of the log, a finding stays a finding of lint. A cause that the log decides by
itself is not changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.matching.scanning import Event, names_in
from unhang.jobs.diagnose.meaning.events import ENDS
from unhang.jobs.diagnose.meaning.evidence import (
    DECISIVE,
    HINTING,
    STRONG,
    SUPPORTING,
    Evidence,
    added_up,
)
from unhang.jobs.diagnose.meaning.rules.failures import failure_before_waits
from unhang.jobs.diagnose.meaning.signs import hang_signs, speed_falls
from unhang.jobs.job_files import Finding, JobFile, Trait

MOST_OF_A_RULE = 3
FROM_JOB = "job:"  # with the rule of lint: ids of evidence from the job's files


def job_evidence(facts: Facts, evidence: Sequence[Evidence]) -> list[Evidence]:
    """The evidence of the job's files. evidence: of the log; if it decides, only the same cause
    gets more weight."""
    found = [one for rule in JOB_RULES for one in rule(facts)]
    decided = {
        cause
        for cause in {one.cause for one in evidence}
        if added_up(one.weight for one in evidence if one.cause == cause and one.weight > 0)
        >= DECISIVE
    }
    return [one for one in found if not decided or (one.cause in decided and one.weight > 0)]


def some_ranks_wait(facts: Facts) -> Event | None:
    """A hang in which not all ranks are known to wait in the same collective, and no rank failed
    first."""
    signs = hang_signs(facts)
    if not signs or failure_before_waits(facts):
        return None
    ranks = {one.rank for one in facts.timeouts}
    alike = len({(one.group, one.op, one.seq, one.numel) for one in facts.timeouts}) == 1
    is_counted = alike and facts.is_counted
    return None if is_counted and len(ranks) >= max(2, facts.world_size or 0) else signs[0]


def some_ranks_wait_sharded(facts: Facts) -> Event | None:
    """The same, where the log or a file of the job shows that the model is sharded."""
    is_logged = any(
        word in event.text
        for event in facts.events
        for word in ("FSDP", "FullySharded", "zero_stage=3", "ZeRO-3")
    )
    return (
        some_ranks_wait(facts)
        if is_logged or any(trait.name == "sharded" for file in facts.job for trait in file.traits)
        else None
    )


def device_in_doubt(facts: Facts) -> Event | None:
    """A line that suggests ranks with wrong GPUs, memory that ran out on GPU 0, or a hang before
    the first step."""
    for event in facts.plain:
        causes = event.signature.for_
        if "rank_device_mapping" in causes or ("oom" in causes and "GPU 0" in event.text):
            return event
    return None if facts.of("training_step") else next(iter(hang_signs(facts)), None)


def no_such_device(facts: Facts) -> Event | None:
    """CUDA refused the number of a GPU."""
    return next(
        (event for event in facts.plain if "invalid device ordinal" in event.text),
        None,
    )


def did_not_meet(facts: Facts) -> Event | None:
    """Ranks or nodes that waited for each other before the first step."""
    if any(map(facts.of, ("training_step", "healthy_end", "server_started"))):
        return None
    missed = facts.said(*names_in("did_not_meet"))
    lost = [
        event
        for event in facts.plain
        if {"launch_mismatch", "dns_hostname", "firewall_ports", "port_in_use"}
        & event.signature.for_.keys()
    ]
    return next(iter([*missed, *lost]), None) or (
        None if facts.of("init_complete") else next(iter(hang_signs(facts)), None)
    )


def process_killed(facts: Facts) -> Event | None:
    """A process that was killed."""
    return next(iter(facts.said("killed")), None)


def system_call_failed(facts: Facts) -> Event | None:
    """NCCL's unhandled system error, a bus error, or a line that suggests shared memory."""
    for event in facts.plain:
        is_unhandled = event.id == "nccl-unhandled-error" and "system" in event.text.lower()
        if (
            is_unhandled
            or "shm_too_small" in event.signature.for_
            or event.fields.get("code") in ("-7", "135")
        ):
            return event
    return None


def memory_not_registered(facts: Facts) -> Event | None:
    """A line that suggests the limit of locked memory, or NCCL's unhandled system error."""
    lines = (event for event in facts.plain if "memlock_ulimit" in event.signature.for_)
    return next(lines, system_call_failed(facts))


def slow(facts: Facts) -> Event | None:
    """The job's own speed falls, and it does not hang."""
    return None if hang_signs(facts) else next(iter(speed_falls(facts)), None)


PARTS_RANKS = "rank_desync_app"


def _of_findings(facts: Facts) -> Iterator[Evidence]:
    """A finding of lint or a trait of a file, and the line of the log that it would explain.

    Decides diagnose_job_files/held_back/barrier-of-main-process,
    diagnose_job_files/held_back/launcher-without-srun,
    diagnose_job_files/held_back/pod-without-shared-memory,
    diagnose_job_files/rules/each-node-is-its-own-master,
    diagnose_job_files/rules/memory-of-the-job.
    """
    for row in table("explained_by_files").values():
        found = _findings(facts, row["rules"])
        traits = _traits(facts, row["trait"])[:1]
        event = globals()[row["explains"]](facts) if found or traits else None  # one of the above
        if event is None:
            continue
        for file, trait in traits:
            beside = _traits(facts, row["beside"] or trait.name)
            for _, other in beside[:1]:
                why = row["why"].format(other.value)
                yield _of_trait(row["cause"], row["weight"], why, file, trait, event)
        for file, one in found[:MOST_OF_A_RULE]:
            yield _evidence(row["cause"], row["weight"], file, one, event)
        if row["cause"] == PARTS_RANKS and row["weight"] >= STRONG:
            file, one = found[0]
            why = "some ranks make a call that the others do not make, so more time does not help"
            yield Evidence(
                "watchdog_timeout_too_short",
                -SUPPORTING,
                why,
                (),
                f"{FROM_JOB}{one.rule}",
                (),
                (file.place(one.line),),
            )


def _evidence(
    cause: str, weight: float, file: JobFile, one: Finding, event: Event | None
) -> Evidence:
    source = {"url": one.source, "says": f"unhang lint, rule {one.rule}"}
    places = (
        file.place(one.line),
        *([_explained(event)] if event else []),
    )  # the waiting rank in the log's line is not the cause, so the line is no event here
    return Evidence(cause, weight, one.why, (), f"{FROM_JOB}{one.rule}", (source,), places)


def _explained(event: Event) -> dict[str, object]:
    """The place of a log's line that a file of the job explains, with a reason of its own, because
    the file's reason is about the file."""
    return {**evidence_of(event), "says": f"the script explains this: {event.signature.says}"}


def _of_trait(
    cause: str, weight: float, why: str, file: JobFile, trait: Trait, event: Event
) -> Evidence:
    places = ({"file": file.name, "line": trait.line, "text": trait.text}, _explained(event))
    return Evidence(cause, weight, why, (), f"{FROM_JOB}{trait.name.replace(' ', '-')}", (), places)


def _findings(facts: Facts, rules: Sequence[str]) -> list[tuple[JobFile, Finding]]:
    return [(file, one) for file in facts.job for one in file.findings if one.rule in rules]


def _traits(facts: Facts, name: str) -> list[tuple[JobFile, Trait]]:
    return [(file, trait) for file in facts.job for trait in file.traits if trait.name == name]


def _of_interfaces(facts: Facts) -> Iterator[Evidence]:
    """A file of the job requests an interface that the hosts of the log do not have, and
    connections fail.

    Decides diagnose_job_files/held_back/interface-of-another-machine.
    """
    there = _interfaces(facts)
    meant = [event for event in facts.plain if "wrong_interface" in event.signature.for_]
    failed = [*facts.said(*names_in("no_connection")), *meant]
    if not there or not failed:
        return
    for file, trait in _traits(facts, "interface"):
        wanted = trait.value
        if wanted.startswith("^") or any(
            _takes(one, name) for one in wanted.split(",") for name in there
        ):
            continue
        why = (
            f"the interfaces of the log are {', '.join(sorted(there)[:6])}; {wanted} is none of"
            " them"
        )
        yield _of_trait("wrong_interface", STRONG, why, file, trait, failed[0])
        return


def _takes(pattern: str, name: str) -> bool:
    """Whether NCCL's pattern matches an interface: as a prefix, or with = the exact name."""
    return name == pattern.lstrip("=") if pattern.startswith("=") else name.startswith(pattern)


def _interfaces(facts: Facts) -> set[str]:
    events = map(facts.of, ("bootstrap", "socket_interfaces", "interface"))
    names = ("interface", "second", "name")
    found = {one.fields.get(name) for those in events for one in those for name in names}
    return {*filter(None, found)}


def _of_devices(facts: Facts) -> Iterator[Evidence]:
    """Each task sees one GPU, and the script uses the local rank as the index of its GPU.

    Decides diagnose_job_files/held_back/task-sees-one-gpu.
    """
    single = _findings(facts, ["one-gpu-per-task"])
    index, refused = _traits(facts, "local device"), no_such_device(facts)
    if single and index and refused:
        (file, one), (script, trait) = single[0], index[0]
        yield _evidence("rank_device_mapping", STRONG, file, one, refused)
        yield _of_trait(
            "rank_device_mapping",
            SUPPORTING,
            "the local rank is used as the index of a GPU, and this task sees only one GPU",
            script,
            trait,
            refused,
        )


def _of_limits(facts: Facts) -> Iterator[Evidence]:
    """The limit that ran out is set in a file and is short; ranks that wait in different
    collectives have another fault.

    Decides diagnose_job_files/held_back/limit-of-a-minute.
    """
    if not facts.timeouts or len({(one.op, one.seq, one.numel) for one in facts.timeouts}) > 1:
        return
    one = facts.timeouts[0]
    for file, trait in _traits(facts, "limit"):
        short = [found.line for found in file.findings if found.rule == "timeout-short"]
        if one.timeout_ms == 1000 * int(trait.value) and trait.line in short:
            why = (
                f"the limit that ran out is set here: {trait.value} s; saving, loading or compiling"
                " may take that long"
            )
            yield _of_trait("watchdog_timeout_too_short", STRONG, why, file, trait, one.event)
            return


def _of_silence(facts: Facts) -> Iterator[Evidence]:
    """A log that just stops: a remark.

    Decides diagnose_job_files/rules/log-that-stops-in-silence.
    """
    ended = any(map(facts.of, ENDS))
    if ended or facts.faults or hang_signs(facts):
        return
    rows = table("explained_by_files").values()
    parting = [rule for row in rows if row["cause"] == PARTS_RANKS for rule in row["rules"]]
    for file, one in _findings(facts, parting):
        if one.severity != "info":
            yield _evidence(PARTS_RANKS, HINTING, file, one, None)
            return


JOB_RULES: tuple[Callable[[Facts], Iterator[Evidence]], ...] = (
    _of_findings,
    _of_interfaces,
    _of_devices,
    _of_limits,
    _of_silence,
)
"""The rules over the files of a job; their docstrings name logs as those of `combining` do."""
