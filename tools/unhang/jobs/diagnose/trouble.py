"""The conclusions about a log that shows a fault or a hang and has no known cause; the first that applies is the log's. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable

from unhang.jobs.diagnose.conclusion import (
    ASK_ONE_RANK,
    MOST_RANKS,
    SERVES,
    UNKNOWN_ERROR,
    Conclusion,
    last_answer,
    rank_of_event,
    rank_that_stopped,
    shown_line,
    slow_job,
    stacks_in_one_place,
    unknown_failure,
    with_unlike_words,
)
from unhang.jobs.diagnose.endings import name_of_exception, unfinished_traceback
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rank_names import collective_in_words, limit_in_words, named_ranks
from unhang.jobs.diagnose.rules.failures import failed_of_root, killed_first, peer_without_log, who_failed
from unhang.jobs.diagnose.rules.signs import hang_signs, own_errors, server_stands, states_of_ranks

MOST_LAST_WORDS = 3
NAMELESS = "a process raised an exception whose name and message are not in the log"
_REPORTS = ("root_cause", "failed_exit", "killed", "aborted", "shell_complaint")  # of a process's end, by others


def _refused_requests(facts: Facts) -> Conclusion | None:
    """Nothing failed but requests: the server that started answered after the last exception."""
    errors = [event for event in facts.events if event.signature.kind == "error" and not event.quoted]
    if not errors or hang_signs(facts) or any(event.signature.fact != "crash" for event in errors):
        return None
    file, last = errors[-1].file, errors[-1].line
    started = [event for event in facts.of("server_started") if not event.quoted and event.file == file and event.line < errors[0].line]
    serves = started and {event.file for event in errors} == {file} and last_answer(facts, file) > last
    return Conclusion("healthy", SERVES, started[-1]) if serves else None


def _wait_that_raised(facts: Facts) -> Conclusion | None:
    return _collective(facts) if facts.first_error is not None and _follows_from_a_timeout(facts.first_error, facts) else None


def _follows_from_a_timeout(crash: Event, facts: Facts) -> bool:
    """Whether an exception comes after the timeout of the rank that raised it, or of an engine that names no rank: its end is told by it, not its cause."""
    waits = [one for one in facts.timeouts if one.event.file == crash.file and one.event.line < crash.line]
    return crash.signature.fact == "crash" and bool(waits) and rank_of_event(crash) in {None, *(one.rank for one in waits)}


def _known_error(facts: Facts) -> Conclusion | None:
    """The first error, where a signature knows its words and no cause."""
    if (first := facts.first_error) is None:
        return None
    fact, says = first.signature.fact, first.signature.says
    if fact == "gloo_wait":
        limit = limit_in_words(int(first.fields["timeout_ms"] or 0))
        return Conclusion("failure", f"a rank waited in a collective of Gloo{limit} for another one, which came later or not at all", first)
    if first.signature.kind == "error" and fact == "crash":
        return Conclusion("failure", f"something failed that is not a known fault of the cluster: {says}", first)
    is_of_library = fact == "library_failed" and not (facts.timeouts or hang_signs(facts))
    return Conclusion("failure", f"something failed, and the log shows no cause: {says}", first) if first.signature.kind == "error" or is_of_library else None


def _traceback(facts: Facts) -> Conclusion | None:
    if not (event := unfinished_traceback(facts)):
        return None
    name, before = name_of_exception(facts, event), [one for one in own_errors(facts) if (one.file, one.line) < (event.file, event.line)]
    if before and not name:
        return Conclusion("failure", UNKNOWN_ERROR, before[0])
    return Conclusion("failure", f"a process raised {name}, which is not a known fault of the cluster" if name else NAMELESS, event)


def _server_that_stands(facts: Facts) -> Conclusion | None:
    if not (stands := server_stands(facts)):
        return None
    running, waiting = stands[-1].fields["running"], stands[-1].fields["waiting"]
    return Conclusion("no_end", f"the server stands: it makes no token, {running} requests run and {waiting} wait", stands[0])


def _watchdog(facts: Facts) -> Conclusion | None:
    return _collective(facts) if facts.timeouts and killed_first(facts) is None else None


def _collective(facts: Facts) -> Conclusion:
    """Who came to the collective that timed out, and who did not."""
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
    said = [f"; rank {rank} last printed: {shown_line(facts.words[rank])}" for rank in missing if rank in facts.words] if came else []
    return Conclusion("no_end", f"{who} {where}{absent}{''.join(said[:MOST_LAST_WORDS])}", one.event, (ASK_ONE_RANK.format(whom),))


def _reported_end(facts: Facts) -> Conclusion | None:
    """The launcher, the shell or the scheduler reports that a process ended."""
    reports = [event for name in _REPORTS for event in facts.of(name) if not event.quoted]
    if not reports:
        return None
    failed = failed_of_root(facts)
    exits = [failed.exit] if failed else facts.of("failed_exit")
    exit_code = next((f" with exit code {event.fields['code']}" for event in exits if event.fields.get("code")), "")
    own = next((event for event in facts.of("crash") if not event.quoted), None)
    before = [event for event in facts.of("error_line") if event.file == reports[0].file and event.line < reports[0].line and not event.quoted]
    told = own.signature.says if own else "and the first line before it that reports an error is this" if before else "and its own output is not in the log"
    return Conclusion("failure", f"{who_failed(facts, reports[0])} ended{exit_code}, {told}", own or (before[0] if before else reports[0]))


def _closed_connection(facts: Facts) -> Conclusion | None:
    if closed := [event for event in facts.of("local_peer_closed") if not event.quoted and not facts.timeouts]:
        return Conclusion("no_end", "a connection of the machine to itself was closed, and no line shows by whom", closed[0])
    if peer := peer_without_log(facts):
        why = f"{peer.name} closed its connection, and its own output is not in the log"
        return Conclusion("no_end", why, peer.event, (f"the job's log of the ranks on {peer.name}, and dmesg -T there",))
    return None


def _unknown_error(facts: Facts) -> Conclusion | None:
    if not (unknown := own_errors(facts)):
        return None
    why = "the job stopped or hangs; the first line that reports an error, which unhang does not know, is this"
    return with_unlike_words(Conclusion("no_end", why, unknown[0]), facts)


def _no_reason(facts: Facts) -> Conclusion:
    signs = [event for event in (*hang_signs(facts), *facts.events) if event.signature.kind == "symptom" and not event.quoted]
    return with_unlike_words(Conclusion("no_end", "the job stopped or hangs; no message that unhang knows shows why", signs[0] if signs else None), facts)


OF_TROUBLE: tuple[Callable[[Facts], Conclusion | None], ...] = (
    _refused_requests,
    _wait_that_raised,
    _known_error,
    _traceback,
    _server_that_stands,
    _watchdog,
    stacks_in_one_place,
    _reported_end,
    _closed_connection,
    rank_that_stopped,
    slow_job,
    unknown_failure,
    _unknown_error,
    _no_reason,
)
