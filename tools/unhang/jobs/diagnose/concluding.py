"""Concludes from a log's facts: the first conclusion that applies, of those with a line of a fault or of those without one. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unhang.jobs.diagnose.conclusion import (
    NO_LOG,
    SERVES,
    SLOW,
    Conclusion,
    last_answer,
    rank_of_event,
    rank_that_stopped,
    slow_job,
    stacks_in_one_place,
    unknown_failure,
    with_unlike_words,
)
from unhang.jobs.diagnose.endings import started_again
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.logs.reading import Input
from unhang.jobs.diagnose.matching.scanning import SETTINGS, Event, rank_of
from unhang.jobs.diagnose.rules.signs import far_below, is_slow, near_end
from unhang.jobs.diagnose.trouble import OF_TROUBLE

# At most 12 lines of 100 letters together with the answer itself (a test counts them).
BRING = (
    "while the job runs: unhang inspect --pid PID on a node, or --slurm-job ID; it says who waits for whom",
    "when it has ended: start it once more with NCCL_DEBUG=INFO, and bring these in one folder: unhang diagnose FOLDER",
    "1. what every rank prints: torchrun --log-dir LOGS --tee 3; srun --output=%x-%t.log; kubectl logs POD",
    "2. the kernel's log of every node: dmesg -T > dmesg-$(hostname).txt",
    "3. the script that starts the job, as it was run",
)
CHECK_SETTINGS = "settings that a text recommends: unhang lint FILE says which of them are wrong or hide a fault"
ALONE = "the test ended with a bus bandwidth of 0: each of its processes ran by itself, so nothing was sent"
ASK_FOR_MPI = (
    "ldd of the test's program for libmpi, and which -a mpirun: no libmpi: the test was built without MPI (make MPI=1); another MPI's mpirun, or srun "
    "without that MPI's PMI: those that the test was built with (srun --mpi=list); one GPU alone has no bandwidth either (-g N)"
)
XID = "the driver reports an Xid; unhang explain xid {} says what it means and what to do"
NO_LOG_AMONG = "expected the log of a job, found only what starts one; unhang lint checks it, and diagnose reads it together with the job's log"
_OF_A_JOB = ("progress", "healthy", "symptom")
_OF_A_JOB_FACTS = ("framework", "launch_shape", "world_size", "bootstrap", "transport", "init_start", "network_used", "nccl_version")

_OF_A_MACHINE_FACTS = (
    "bandwidth_row", "dcgm_passed", "fabric_manager_not_needed", "gid_row", "gpu_listed", "gpu_load", "gpu_row",
    "ib_adapter", "ib_port_up", "interface", "link_mtu", "link_up", "link_width", "memlock_unlimited", "no_xid", "nvlink_gpu", "nvlink_up",
    "peer_access", "peermem_loaded", "route", "shm", "slurm_node", "slurm_state", "test_device", "topology",
)  # fmt: skip
"""Facts from output of tools that examine a machine, which do not show how the job ended. Settings, remarks and advice are not among them."""


def conclude(facts: Facts, inputs: Sequence[Input], *, found: bool, trouble: bool) -> Conclusion:
    """The conclusion of a diagnosis. found: a cause is named; trouble: a line of the log shows a fault or a hang."""
    if found:
        return Conclusion("cause", "a cause is named below")
    if not trouble and (nothing := _no_log(facts, inputs)):
        return nothing
    return next(one for conclusion in (OF_TROUBLE if trouble else WITHOUT_TROUBLE) if (one := conclusion(facts)))


def _no_log(facts: Facts, inputs: Sequence[Input]) -> Conclusion | None:
    if not is_from_a_program(facts):
        return Conclusion("nothing", _nothing(inputs), first=_page(facts, inputs))
    return Conclusion("nothing", NO_LOG_AMONG) if inputs and all(NO_LOG in one.notes for one in inputs) else None


def is_from_a_program(facts: Facts) -> bool:
    """Whether a line is known from a program, or ranks are told apart by their lines. Settings and advice may be anybody's words."""
    own = {file.name for file in facts.job}
    lines = (event for event in facts.events if event.file not in own and event.signature.kind != "folklore" and event.signature.fact not in SETTINGS)
    return any(True for _ in lines) or bool(facts.stopped or facts.words or facts.flights or facts.calls)


def _nothing(inputs: Sequence[Input]) -> str:
    if _is_empty(inputs):
        notes = [note for one in inputs for note in one.notes]
        return f"expected a log, found an empty file{f' that {notes[0]}' if notes else ''}"
    return "no log is in it: no line is known from a program"


def _is_empty(inputs: Sequence[Input]) -> bool:
    return all(one.kind == "empty" for one in inputs if one.kind != "job")


def _page(facts: Facts, inputs: Sequence[Input]) -> tuple[str, ...]:
    """What to bring instead of a text without a log; () where a log was expected and is empty."""
    if _is_empty(inputs):
        return ()
    return (*BRING, *([CHECK_SETTINGS] if any(event.signature.fact in SETTINGS or event.signature.kind == "folklore" for event in facts.events) else ()))


def _ended(facts: Facts) -> Conclusion | None:
    ends = [event for event in (*facts.of("healthy_end"), *facts.of("average_bandwidth")) if not event.quoted]
    if not ends:
        return None
    if ends[-1].signature.fact == "average_bandwidth" and (slow := _slow_test(facts, ends[-1])):
        return slow
    if start := started_again(facts, ends[-1]):
        return Conclusion("no_end", "a job ended normally, and another one started after it, whose end is not in the log", start)
    return Conclusion("healthy", "the job ended normally, and no failure before its end stopped it", ends[-1])


def _slow_test(facts: Facts, end: Event) -> Conclusion | None:
    """The conclusion about a test of collectives that ended and was slow, by its result; None for any other."""
    if float(end.fields["value"] or 0) == 0:
        return Conclusion("no_end", ALONE, end, (ASK_FOR_MPI,))
    if far := far_below(facts):
        why = f"the test ended; its {far.measured:g} GB/s are far below the {far.healthy:g} that {far.gpus} such GPUs over NVLink reach"
        return Conclusion("no_end", why, end)
    return Conclusion("no_end", SLOW) if is_slow(facts) else None


def _end_reported(facts: Facts) -> Conclusion | None:
    end = reported_end(facts)
    return Conclusion("healthy", "nothing failed, and the program's last lines report its end", end) if end else None


def reported_end(facts: Facts) -> Event | None:
    """The last line in which a program reports its own end, if it is at the end of the log; every rank with output must have reported its end."""
    reports = [event for event in facts.of("end_told") if not event.quoted and near_end(facts, event)]
    ended = {rank_of_event(event) for event in facts.of("end_told")} - {None}
    heard = {rank_of(event) for event in facts.events} - {None} if ended else set()
    return reports[-1] if reports and heard <= ended else None


def _server(facts: Facts) -> Conclusion | None:
    """That a server started says nothing of what came later. An error of a request does not end it: an answer follows."""
    if not (starts := [event for event in facts.of("server_started") if not event.quoted]):
        return None
    started, failed = starts[-1], unknown_failure(facts)
    after = failed.event.line if failed and isinstance(failed.event, Event) and failed.event.file == started.file else 0
    return failed if failed and after > max(started.line, last_answer(facts, started.file)) else Conclusion("healthy", SERVES, started)


def _xid(facts: Facts) -> Conclusion | None:
    xid = next((event for event in facts.of("xid") if not event.quoted), None)
    return Conclusion("failure", XID.format(xid.fields.get("code") or "NUMBER"), xid) if xid else None


def _job_without_end(facts: Facts) -> Conclusion | None:
    if not (any(event.signature.kind in _OF_A_JOB for event in facts.events) or any(facts.of(name) for name in _OF_A_JOB_FACTS)):
        return None
    why = "the log has no end of the job, and no message that unhang knows as a failure; a job that hangs without a message also shows this"
    return with_unlike_words(Conclusion("no_end", why), facts)


def _test_without_result(facts: Facts) -> Conclusion | None:
    devices = () if facts.of("bandwidth_row") else facts.of("test_device")
    why = "the test of collectives lists its devices and prints no result: it hangs in its first transfers, or was cut off"
    return Conclusion("no_end", why, devices[-1]) if devices else None


def _machine(facts: Facts) -> Conclusion | None:
    return Conclusion("healthy", "the output of the machine's tools shows no fault") if any(facts.of(name) for name in _OF_A_MACHINE_FACTS) else None


def _unknown(facts: Facts) -> Conclusion:
    return with_unlike_words(Conclusion("no_end", "unhang knows no message in this text that tells of a failure, or of an end of the job"), facts)


WITHOUT_TROUBLE: tuple[Callable[[Facts], Conclusion | None], ...] = (
    stacks_in_one_place,
    _ended,
    _end_reported,
    _server,
    rank_that_stopped,
    slow_job,
    unknown_failure,
    _xid,
    _job_without_end,
    _test_without_result,
    _machine,
    _unknown,
)
