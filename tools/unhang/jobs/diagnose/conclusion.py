"""The conclusion about a log, one of five: a cause, a failure without a cause, a healthy end, no end, nothing readable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from unhang.base.secrets_in_text import without_secrets
from unhang.jobs.diagnose.endings import name_of_exception, started_again, unfinished_traceback
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.logs.rank_steps import RankStep, Stopped
from unhang.jobs.diagnose.logs.reading import Input
from unhang.jobs.diagnose.matching.scanning import Event, rank_of
from unhang.jobs.diagnose.rank_names import collective_in_words, limit_in_words, named_ranks
from unhang.jobs.diagnose.rules.failures import failed_of_root, killed_first, peer_without_log, who_failed
from unhang.jobs.diagnose.rules.recording_rules import common_place
from unhang.jobs.diagnose.rules.signs import (
    far_below,
    hang_signs,
    heading_of_a_failure,
    heading_of_a_hang,
    is_only_told,
    is_slow,
    near_end,
    own_errors,
    server_stands,
    states_of_ranks,
)

# A server's answer to a request, other than a failure of its own; its metrics are answered also when its workers are gone.
_ANSWERED = re.compile(r'(?<!metrics )HTTP/1\.[01]" [234]\d\d')
_NUMBERS = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?")
EXIT_CODES = {"healthy": 0, "cause": 1, "nothing": 2, "failure": 3, "no_end": 4}
ASK_IN_ONE_PLACE = (
    "the stacks of the remaining ranks, and on what {} waits, printed by each rank (a key, a file, a number of processes): differs between ranks: "
    "their seed or settings; the same: a rank that ended, or what an earlier run left (ls -la /dev/shm, lock files)"
)
ASK_ONE_RANK = "py-spy dump --pid PID of {}, and its own log: what it does while the others wait"
MOST_RANKS = 100_000
FEW_OF = 3  # ranks that print, for each one that prints nothing
MOST_LAST_WORDS, LONGEST_WORDS = 3, 160
NAMELESS = "a process raised an exception whose name and message are not in the log"
UNKNOWN_ERROR = "a program reports an error that unhang does not know"
TOLD = "the text tells of a fault; no message that unhang knows shows it"
REBOOTS = (
    "the machine restarts or goes down; no message that unhang knows shows why, and a restart without a line in the kernel log comes from power, board or PCIe"
)
SERVES = "the server started, and no later line shows that it failed or stands"
SLOW = "the job is slow and does not hang; no message that unhang knows shows why"
ALONE = "the test ended with a bus bandwidth of 0: each of its processes ran by itself, so nothing was sent"
ASK_FOR_MPI = (
    "ldd of the test's program for libmpi, and which -a mpirun: no libmpi: the test was built without MPI (make MPI=1); another MPI's mpirun, or srun "
    "without that MPI's PMI: those that the test was built with (srun --mpi=list); one GPU alone has no bandwidth either (-g N)"
)
XID = "the driver reports an Xid; unhang explain xid {} says what it means and what to do"
NO_LOG = "starts a job and is not a log; unhang lint checks it, and diagnose reads it together with the job's log"
NO_LOG_AMONG = "expected the log of a job, found only what starts one; unhang lint checks it, and diagnose reads it together with the job's log"
_OF_A_JOB = ("progress", "healthy", "symptom")
_OF_A_JOB_FACTS = ("framework", "launch_shape", "world_size", "bootstrap", "transport", "init_start", "network_used", "nccl_version")

_OF_A_MACHINE_FACTS = (
    "bandwidth_row", "fabric_manager_not_needed", "gid_row", "gpu_listed", "gpu_load", "gpu_row",
    "ib_adapter", "ib_port_up", "interface", "link_mtu", "link_up", "link_width", "memlock_unlimited", "no_xid", "nvlink_gpu", "nvlink_up",
    "peer_access", "peermem_loaded", "route", "shm", "slurm_node", "slurm_state", "test_device", "topology",
)  # fmt: skip
"""Facts from output of tools that examine a machine, which do not show how the job ended. Settings, remarks and advice are not among them."""


class Conclusion(NamedTuple):
    """word: a key of EXIT_CODES. why: one sentence. event: the line that shows it, if any. first: what to collect before
    anything else.
    """

    word: str
    why: str
    event: Event | RankStep | None = None
    first: tuple[str, ...] = ()


def conclude(facts: Facts, inputs: Sequence[Input], *, found: bool, trouble: bool) -> Conclusion:
    """The conclusion of a diagnosis. Values in, value out."""
    if found:
        return Conclusion("cause", "a cause is named below")
    if trouble:
        return _without_cause(facts)
    if place := common_place(facts):
        return _in_one_place(*place)
    own = {file.name for file in facts.job if not file.pasted}
    if all(event.file in own for event in facts.events) and not facts.is_told:
        return Conclusion("nothing", _nothing(inputs))
    ends = [event for event in (*facts.of("healthy_end"), *facts.of("average_bandwidth")) if not event.quoted]
    told = next((event for event in (*facts.of("fault_told"), *facts.of("error_told")) if not (event.quoted or event.supposed)), None)
    if ends and ends[-1].signature.fact == "average_bandwidth" and (slow := _slow_test(facts, ends[-1])):
        return slow
    if ends and (start := started_again(facts, ends[-1])):
        return Conclusion("no_end", "a job ended normally, and another one started after it, whose end is not in the log", start)
    if ends and told:
        return Conclusion("no_end", TOLD, told)
    if ends:
        return Conclusion("healthy", "the job ended normally, and no failure before its end stopped it", ends[-1])
    if (end := reported_end(facts)) and not told:
        return Conclusion("healthy", "nothing failed, and the program's last lines report its end", end)
    if started := [event for event in facts.of("server_started") if not event.quoted]:
        return _of_a_server(facts, started[-1], told)
    if inputs and all(NO_LOG in one.notes for one in inputs):
        return Conclusion("nothing", NO_LOG_AMONG)
    if facts.stopped:
        return _stopped_first(facts.stopped)
    if is_slow(facts) and not heading_of_a_failure(facts):
        return Conclusion("no_end", SLOW)
    if ended := _unknown_failure(facts):
        return ended
    if xid := next((event for event in facts.of("xid") if not event.quoted), None):
        return Conclusion("failure", XID.format(xid.fields.get("code") or "NUMBER"), xid)
    if _is_of_a_job(facts):
        why = "the log has no end of the job, and no message that unhang knows as a failure; a job that hangs without a message also shows this"
        return _with_unlike_words(Conclusion("no_end", why), facts)
    if (devices := facts.of("test_device")) and not facts.of("bandwidth_row"):
        why = "the test of collectives lists its devices and prints no result: it hangs in its first transfers, or was cut off"
        return Conclusion("no_end", why, devices[-1])
    if told:
        return Conclusion("no_end", TOLD, told)
    if any(facts.of(name) for name in _OF_A_MACHINE_FACTS):
        return Conclusion("healthy", "the output of the machine's tools shows no fault")
    return _with_unlike_words(Conclusion("no_end", "unhang knows no message in this text that tells of a failure, or of an end of the job"), facts)


def _slow_test(facts: Facts, end: Event) -> Conclusion | None:
    """The conclusion about a test of collectives that ended and was slow, by its result or by a person's words; None for any other."""
    if float(end.fields["value"] or 0) == 0:
        return Conclusion("no_end", ALONE, end, (ASK_FOR_MPI,))
    if far := far_below(facts):
        why = f"the test ended; its {far.measured:g} GB/s are far below the {far.healthy:g} that {far.gpus} such GPUs over NVLink reach"
        return Conclusion("no_end", why, end)
    return Conclusion("no_end", SLOW) if is_slow(facts) else None


def _of_a_server(facts: Facts, started: Event, told: Event | None) -> Conclusion:
    """The conclusion about a server that started: that says nothing of what came later. An error of a request does not end it: an answer follows."""
    failed = _unknown_failure(facts)
    after = failed.event.line if failed and isinstance(failed.event, Event) and failed.event.file == started.file else 0
    if failed and after > max(started.line, _last_answer(facts, started.file)):
        return failed
    return Conclusion("no_end", TOLD, told) if told else Conclusion("healthy", SERVES, started)


def _last_answer(facts: Facts, file: str) -> int:
    """The line of the last answer to a request among the last lines of a file; 0 without one."""
    return max((number for number, text in facts.last.get(file, ()) if _ANSWERED.search(text)), default=0)


def _answers_after_its_exceptions(facts: Facts) -> Event | None:
    """The start of a server in whose log nothing failed but requests: it answered after the last exception."""
    errors = [event for event in facts.events if event.signature.kind == "error" and not event.quoted]
    if not errors or hang_signs(facts) or any(event.signature.fact != "crash" for event in errors):
        return None
    file, last = errors[-1].file, errors[-1].line
    started = [event for event in facts.of("server_started") if not event.quoted and event.file == file and event.line < errors[0].line]
    return started[-1] if started and {event.file for event in errors} == {file} and _last_answer(facts, file) > last else None


def reported_end(facts: Facts) -> Event | None:
    """The last line in which a program reports its own end, if it is at the end of the log; every rank with output must have reported its end."""
    reports = [event for event in facts.of("end_told") if not event.quoted and near_end(facts, event)]
    ended = {_rank(event) for event in facts.of("end_told")} - {None}
    heard = {rank_of(event) for event in facts.events} - {None} if ended else set()
    return reports[-1] if reports and heard <= ended else None


def _follows_from_a_timeout(crash: Event, facts: Facts) -> bool:
    """Whether an exception comes after the timeout of the rank that raised it, or of an engine that names no rank: its end is told by it, not its cause."""
    waits = [one for one in facts.timeouts if one.event.file == crash.file and one.event.line < crash.line]
    return crash.signature.fact == "crash" and bool(waits) and _rank(crash) in {None, *(one.rank for one in waits)}


def _rank(event: Event) -> int | None:
    named = event.fields.get("rank")
    return int(named) if named else rank_of(event)


def _without_cause(facts: Facts) -> Conclusion:
    first = facts.first_error
    if serves := _answers_after_its_exceptions(facts):
        return Conclusion("healthy", SERVES, serves)
    if first is not None and _follows_from_a_timeout(first, facts):
        return _hang_in_a_collective(facts)
    if first is not None and first.signature.fact == "gloo_wait":
        limit = limit_in_words(int(first.fields["timeout_ms"] or 0))
        return Conclusion("failure", f"a rank waited in a collective of Gloo{limit} for another one, which came later or not at all", first)
    if first is not None and first.signature.kind == "error":
        why = "something failed that is not a known fault of the cluster" if first.signature.fact == "crash" else "something failed, and the log shows no cause"
        return Conclusion("failure", f"{why}: {first.signature.says}", first)
    if first is not None and first.signature.fact == "library_failed" and not (facts.timeouts or hang_signs(facts)):
        return Conclusion("failure", f"something failed, and the log shows no cause: {first.signature.says}", first)
    if event := unfinished_traceback(facts):
        name, before = name_of_exception(facts, event), [one for one in own_errors(facts) if (one.file, one.line) < (event.file, event.line)]
        if before and not name:
            return Conclusion("failure", UNKNOWN_ERROR, before[0])
        why = f"a process raised {name}, which is not a known fault of the cluster" if name else NAMELESS
        return Conclusion("failure", why, event)
    if stands := server_stands(facts):
        count = stands[-1].fields["running"]
        return Conclusion("no_end", f"the server stands: it makes no token, {count} requests run and {stands[-1].fields['waiting']} wait", stands[0])
    if facts.timeouts and killed_first(facts) is None:
        return _hang_in_a_collective(facts)
    if place := common_place(facts):
        return _in_one_place(*place)
    reports = [event for name in ("root_cause", "failed_exit", "killed", "aborted", "shell_complaint") for event in facts.of(name) if not event.quoted]
    if reports:
        failed = failed_of_root(facts)
        exits = [failed.exit] if failed else facts.of("failed_exit")
        exit_code = next((f" with exit code {event.fields['code']}" for event in exits if event.fields.get("code")), "")
        own = next((event for event in facts.of("crash") if not event.quoted), None)
        before = [event for event in facts.of("error_line") if event.file == reports[0].file and event.line < reports[0].line and not event.quoted]
        told = own.signature.says if own else "and the first line before it that reports an error is this" if before else "and its own output is not in the log"
        return Conclusion("failure", f"{who_failed(facts, reports[0])} ended{exit_code}, {told}", own or (before[0] if before else reports[0]))
    if closed := [event for event in facts.of("local_peer_closed") if not event.quoted and not facts.timeouts]:
        return Conclusion("no_end", "a connection of the machine to itself was closed, and no line shows by whom", closed[0])
    if peer := peer_without_log(facts):
        why = f"{peer.name} closed its connection, and its own output is not in the log"
        return Conclusion("no_end", why, peer.event, (f"the job's log of the ranks on {peer.name}, and dmesg -T there",))
    if facts.stopped:
        return _stopped_first(facts.stopped)
    if is_slow(facts) and not heading_of_a_failure(facts):
        return Conclusion("no_end", SLOW)
    if reboots := [event for event in facts.of("reboots_told") if not event.quoted]:
        return Conclusion("no_end", REBOOTS, reboots[0])
    if ended := _unknown_failure(facts):
        return ended
    if unknown := own_errors(facts):
        why = "the job stopped or hangs; the first line that reports an error, which unhang does not know, is this"
        return _with_unlike_words(Conclusion("no_end", why, unknown[0]), facts)
    signs = [event for event in (*hang_signs(facts), *facts.events) if event.signature.kind == "symptom" and not event.quoted]
    return _with_unlike_words(Conclusion("no_end", "the job stopped or hangs; no message that unhang knows shows why", signs[0] if signs else None), facts)


def _unknown_failure(facts: Facts) -> Conclusion | None:
    """The finding of a log in which something failed, though no signature knows the message; None where anything tells of a hang. In a text that begins with
    a person's words any word of a failure counts, if there is none of a hang: what ends with an error and is taken for a hang gets the wrong advice.
    """
    if hang_signs(facts) or facts.timeouts:
        return None
    names = ("failure_told", "killed_told", "error_told", *(("failing_word",) if is_only_told(facts) and not facts.of("hanging_word") else ()))
    told = next((event for name in names for event in facts.of(name) if not (event.quoted or event.supposed)), None) or heading_of_a_failure(facts)
    told = None if heading_of_a_hang(facts) else told
    lines = [event for event in own_errors(facts) if told or near_end(facts, event)]
    if first := facts.first_error if told or lines else None:
        return Conclusion("failure", f"something failed, and the log shows no cause: {first.signature.says}", first)
    if lines:
        return Conclusion("failure", UNKNOWN_ERROR, lines[0])
    return Conclusion("failure", TOLD, told) if told else None


def _with_unlike_words(conclusion: Conclusion, facts: Facts) -> Conclusion:
    """The conclusion with what ranks printed last, if one rank's last line is unlike those of all others; numbers in the lines do not count."""
    alike: dict[str, list[int]] = {}
    for rank, said in sorted(facts.words.items()):
        alike.setdefault(_NUMBERS.sub("#", said.text), []).append(rank)
    groups = sorted(alike.values(), key=len)
    if silent := _silent_ranks(facts) if len(groups) == 1 else []:
        told = f"{named_ranks(silent)} printed nothing; {named_ranks(groups[0])} last printed: {_shown(facts.words[groups[0][0]])}"
        return conclusion._replace(why=f"{conclusion.why}; {told}", first=(ASK_ONE_RANK.format(named_ranks(silent)),))
    if len(groups) != 2 or len(groups[0]) != 1:
        return conclusion
    told = "; ".join(f"{named_ranks(ranks)} last printed: {_shown(facts.words[ranks[0]])}" for ranks in groups)
    first = (ASK_ONE_RANK.format(named_ranks(groups[0])),) if len(groups[1]) > 1 else ()
    return conclusion._replace(why=f"{conclusion.why}; {told}", first=first)


def _silent_ranks(facts: Facts) -> list[int]:
    """The few ranks below the highest one that printed no line, where several others did."""
    silent = sorted({*range(max(facts.words))} - facts.words.keys()) if facts.words and max(facts.words) < MOST_RANKS else []
    return silent if 0 in facts.words and len(silent) * FEW_OF <= len(facts.words) else []  # without a rank 0 they are counted from 1, or are not all here


def _in_one_place(ranks: Sequence[int], frame: Event) -> Conclusion:
    """The finding of stacks that all stand in one call outside of collectives."""
    call = f"{frame.fields['call']} ({frame.fields['module']})"
    why = f"the stacks of {named_ranks(ranks)} stand in {call}: each waits there for others that do not come, or wait for something else"
    return Conclusion("no_end", why, frame, (ASK_IN_ONE_PLACE.format(call),))


def _stopped_first(stopped: Stopped) -> Conclusion:
    """The finding of a log in which only the program's own lines show the ranks."""
    why = f"the log just stops, and rank {stopped.rank} stopped first: its last step is {stopped.own}, the others came to {stopped.others}"
    return Conclusion("no_end", why, stopped.event, (ASK_ONE_RANK.format(f"rank {stopped.rank}"),))


def _hang_in_a_collective(facts: Facts) -> Conclusion:
    """The finding of a lone watchdog: who came to the collective, and who did not."""
    one = facts.timeouts[0]
    came = sorted({timeout.rank for timeout in facts.timeouts if timeout.rank is not None} | states_of_ranks(facts).keys())
    missing = sorted({*range(min(facts.world_size or 0, MOST_RANKS))} - set(came))
    who = named_ranks(came) if came else "a rank"
    where = f"waited in {collective_in_words(one.op, one.seq, one.numel)}{limit_in_words(one.timeout_ms)}"
    if came and facts.world_size is not None and 1 < facts.world_size <= MOST_RANKS and not missing:
        return Conclusion(
            "no_end", f"all {len(came)} ranks {where} and none left it: nothing arrives between them, or work on a GPU before it does not end", one.event
        )
    absent = f"; nothing shows that {named_ranks(missing)} came to it" if came and missing else "; the log has no line of the other ranks"
    whom = named_ranks(missing) if came and missing else "every other rank"
    said = [f"; rank {rank} last printed: {_shown(facts.words[rank])}" for rank in missing if rank in facts.words] if came else []
    return Conclusion("no_end", f"{who} {where}{absent}{''.join(said[:MOST_LAST_WORDS])}", one.event, (ASK_ONE_RANK.format(whom),))


def _shown(said: RankLine) -> str:
    """A rank's line, with its place."""
    return f"{without_secrets(said.text)[:LONGEST_WORDS]} [line {said.line}]"


def _nothing(inputs: Sequence[Input]) -> str:
    if all(one.kind == "empty" for one in inputs if one.kind != "job"):
        notes = [note for one in inputs for note in one.notes]
        return f"expected a log, found an empty file{f' that {notes[0]}' if notes else ''}"
    return "no line is from a known program; is this the log of the job?"


def _is_of_a_job(facts: Facts) -> bool:
    return any(event.signature.kind in _OF_A_JOB for event in facts.events) or any(facts.of(name) for name in _OF_A_JOB_FACTS)


def describe_conclusion(conclusion: Conclusion) -> dict[str, Any]:
    """The `outcome` of a diagnosis document."""
    return {"word": conclusion.word, "why": conclusion.why, "line": evidence_of(conclusion.event) if conclusion.event else None}
