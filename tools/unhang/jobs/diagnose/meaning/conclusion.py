"""The conclusion about a log, one of five: a cause, a failure without a cause, a healthy end, no
end, nothing readable. It is the first that applies, of those with a line of a fault or of those
without one. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from unhang.core.quotes import leading_words
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import listed
from unhang.core.verdict.activities import SERVING, STARTING
from unhang.core.verdict.by_stacks import LOCK, WORK
from unhang.core.verdict.waited_rows import waited_words
from unhang.core.verdict.waiting import are_few
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.logs.reading import Input
from unhang.jobs.diagnose.matching.scanning import (
    SETTINGS,
    Event,
    is_of_a_program,
    names_in,
    rank_of,
)
from unhang.jobs.diagnose.meaning.rules.failures import (
    failed_of_root,
    killed_first,
    who_failed,
)
from unhang.jobs.diagnose.meaning.rules.stack_rules import (
    AT_WORK,
    common_place,
    rank_stands_elsewhere,
)
from unhang.jobs.diagnose.meaning.signs import (
    far_below,
    hang_signs,
    is_slow,
    name_of_exception,
    near_end,
    own_errors,
    server_stands,
    started_again,
    unfinished_traceback,
)
from unhang.jobs.diagnose.rank_names import (
    collective_in_words,
    limit_in_words,
    named_ranks,
)
from unhang.jobs.diagnose.ras_standing import kind_and_words, named_roots

# A server's answer to a request, other than a failure of its own; its metrics are answered also
# when its workers are gone.
_ANSWERED = re.compile(r'(?<!metrics )HTTP/1\.[01]" [234]\d\d')
_NUMBERS = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?")
EXIT_CODES = {"healthy": 0, "cause": 1, "nothing": 2, "failure": 3, "no_end": 3}
ASK_ONE_RANK = "py-spy dump --pid PID of {}, and its own log: what it does while the others wait"
MOST_RANKS = 100_000
LONGEST_WORDS, MOST_FILES = 160, 3
UNKNOWN_ERROR = "a program reports an error that unhang does not know"
ASK_RAS_AGAIN = (
    "ncclras -v > ras-1; sleep 10; ncclras -v > ras-2; unhang diagnose ras-1 ras-2\n"
    "counts that rise show a job that runs; others show which rank is waited for"
)
SERVES = "the server started, and no later line shows that it failed or hangs"
NO_LOG = "starts a job; unhang lint checks it, and diagnose reads it together with the job's log"
MOST_LAST_WORDS = 3


class Conclusion(NamedTuple):
    """word: a key of EXIT_CODES. why: one sentence. event: the line that shows it, if any. first:
    what to collect before anything else."""

    word: str
    why: str
    event: Event | RankLine | None = None
    first: tuple[str, ...] = ()


def describe_conclusion(conclusion: Conclusion) -> dict[str, Any]:
    """The `outcome` of a diagnosis document."""
    return {
        "word": conclusion.word,
        "why": conclusion.why,
        "line": evidence_of(conclusion.event) if conclusion.event else None,
    }


def stacks_that_moved(facts: Facts) -> Conclusion | None:
    """Two looks at the stacks show that the job goes on."""
    return (
        Conclusion(
            "healthy",
            "ranks are elsewhere than in the look before, so the job went on between the two;"
            " whether one of them is slow, unhang inspect --slow shows",
        )
        if facts.seen.goes_on and not facts.faults
        else None
    )


def stacks_in_one_place(facts: Facts) -> Conclusion | None:
    """The stacks of all ranks are in one call outside of collectives."""
    if not (place := common_place(facts)):
        return None
    why = (
        f"the stacks of {named_ranks(place.ranks)} are in {place.call}: each waits there for"
        " others that do not come, or wait for something else"
    )
    return Conclusion(
        "no_end",
        why,
        place.line,
        (
            f"the stacks of the remaining ranks, and on what {place.call} waits, printed by each"
            " (a key, a file, a number of processes): differs: their seed or settings; the same:"
            " a rank that ended, or what an earlier run left (ls -la /dev/shm, lock files)",
        ),
    )


def all_at_one_work(facts: Facts) -> Conclusion | None:
    """All ranks compile, load or save, as those of a healthy job do, or start, as before their
    first communicator."""
    ranks = facts.standings.values()
    does = {one.activity.name: one for one in ranks if one.activity.name != LOCK}
    if len(ranks) < 2 or len(does) != 1 or not does.keys() <= {*WORK, STARTING}:
        return None
    (one,) = does.values()
    if SERVING in does:
        return Conclusion(
            "healthy" if facts.said("server_started") else "no_end",
            f"all {len(ranks)} ranks are idle: they wait for requests ({one.activity.where})",
        )
    why = f"all {len(ranks)} ranks are {one.activity.name} ({one.activity.where}) " + (
        "and none has a communicator yet: is one not there, or at another address or port?"
        if STARTING in does
        else "or wait for one that is, as in a healthy job; whether it ends, a second dump shows"
    )
    line = RankLine(one.stack.file, one.stack.frames[0].line, one.stack.frames[0].shown)
    return Conclusion("no_end", why, line, (ASK_ONE_RANK.format("every rank"),))


def rank_that_works(facts: Facts) -> Conclusion | None:
    """One rank saves, compiles or is in the middle of a step, and the others wait for it."""
    for one in rank_stands_elsewhere(facts):
        if one.id == AT_WORK:
            goes_on = any(facts.standings[name].stack.moved for name in one.who)
            shows = "whether it is late or hangs, a second dump shows"
            why = f"{one.why}; {'it went on since the look before' if goes_on else shows}"
            ask = (ASK_ONE_RANK.format(*one.who),)
            return Conclusion("no_end", why, RankLine(**one.places[0]), ask)
    return None


def rank_that_stopped(facts: Facts) -> Conclusion | None:
    """Only the program's own lines show the ranks, and one came less far than the others."""
    ranked = sorted(facts.steps.items(), key=lambda one: one[1].step)
    if len(ranked) < 2 or ranked[0][1].step == ranked[1][1].step:
        return None
    (rank, line), (_, farthest) = ranked[0], ranked[-1]
    after = (one.line < line.line for _, one in ranked if one.file == line.file)
    # it prints steps after another's last one, or none of a loop
    if any(after) if line.printed > 1 else farthest.printed > 2:
        return None
    why = (
        f"the log just stops, and rank {rank} stopped first: its last step is {line.step}, the"
        f" others came to {farthest.step}"
    )
    return Conclusion("no_end", why, line, (ASK_ONE_RANK.format(f"rank {rank}"),))


def slow_job(facts: Facts) -> Conclusion | None:
    """The job's own numbers show that it is slow."""
    return (
        Conclusion(
            "no_end", "the job is slow and does not hang; no message that unhang knows shows why"
        )
        if is_slow(facts)
        else None
    )


def unknown_failure(facts: Facts) -> Conclusion | None:
    """Something failed at the end of a log, though no signature knows the message; None where
    anything shows a hang."""
    if hang_signs(facts) or facts.timeouts:
        return None
    lines = [event for event in own_errors(facts) if near_end(facts, event)]
    if first := facts.first_error if lines else None:
        return Conclusion(
            "failure",
            f"something failed, and the log shows no cause: {first.signature.says}",
            first,
        )
    return Conclusion("failure", UNKNOWN_ERROR, lines[0]) if lines else None


def with_unlike_words(conclusion: Conclusion, facts: Facts) -> Conclusion:
    """The conclusion with what ranks printed last, if one rank's last line is unlike those of all
    others; numbers in the lines do not count."""
    alike: dict[str, list[int]] = {}
    for rank, said in sorted(facts.words.items()):
        alike.setdefault(_NUMBERS.sub("#", said.text), []).append(rank)
    groups = sorted(alike.values(), key=len)
    if silent := _silent_ranks(facts) if len(groups) == 1 else []:
        told = (
            f"{named_ranks(silent)} printed nothing; {named_ranks(groups[0])} last printed:"
            f" {shown_line(facts.words[groups[0][0]])}"
        )
        return conclusion._replace(
            why=f"{conclusion.why}; {told}", first=(ASK_ONE_RANK.format(named_ranks(silent)),)
        )
    if len(groups) != 2 or len(groups[0]) != 1:
        return conclusion
    told = "; ".join(
        f"{named_ranks(ranks)} last printed: {shown_line(facts.words[ranks[0]])}"
        for ranks in groups
    )
    first = (ASK_ONE_RANK.format(named_ranks(groups[0])),) if len(groups[1]) > 1 else ()
    return conclusion._replace(why=f"{conclusion.why}; {told}", first=first)


def _silent_ranks(facts: Facts) -> list[int]:
    """The few ranks below the highest one that printed no line, where several others did."""
    # without a rank 0 they are counted from 1, or are not all here
    if 0 not in facts.words or max(facts.words) >= MOST_RANKS:
        return []
    silent = sorted({*range(max(facts.words))} - facts.words.keys())
    return silent if are_few(silent, facts.words) else []


def shown_line(said: RankLine) -> str:
    """A rank's line, with its place."""
    return f"{leading_words(without_secrets(said.text), LONGEST_WORDS)} [line {said.line}]"


def rank_of_event(event: Event) -> int | None:
    """The rank that an event names, or that printed it."""
    named = event.fields.get("rank")
    return int(named) if named else rank_of(event)


def last_answer(facts: Facts, file: str) -> int:
    """The line of the last answer to a request among the last lines of a file; 0 without one."""
    return max(
        (number for number, text in facts.last.get(file, ()) if _ANSWERED.search(text)), default=0
    )


def _refused_requests(facts: Facts) -> Conclusion | None:
    """Nothing failed but requests: the server that started answered after the last exception."""
    errors = [event for event in facts.faults if event.kind == "error"]
    if not errors or hang_signs(facts) or any(event.fact != "crash" for event in errors):
        return None
    file, last = errors[-1].file, errors[-1].line
    started = [
        event
        for event in facts.said("server_started")
        if event.file == file and event.line < errors[0].line
    ]
    serves = (
        started and {event.file for event in errors} == {file} and last_answer(facts, file) > last
    )
    return Conclusion("healthy", SERVES, started[-1]) if serves else None


def _wait_that_raised(facts: Facts) -> Conclusion | None:
    """An exception after the timeout of the rank that raised it, or of an engine without a rank:
    it shows how the rank ended, not why."""
    if (crash := facts.first_error) is None or crash.fact != "crash":
        return None
    ranks = [one.rank for one in facts.timeouts if crash.follows(one.event)]
    return _collective(facts) if ranks and rank_of_event(crash) in (None, *ranks) else None


def _known_error(facts: Facts) -> Conclusion | None:
    """The first error, where a signature knows its words and no cause."""
    if (first := facts.first_error) is None:
        return None
    fact, says = first.fact, first.signature.says
    if fact == "gloo_wait":
        limit = limit_in_words(first.number("timeout_ms"))
        return Conclusion(
            "failure",
            f"a rank waited in a collective of Gloo{limit} for another one, which came later or not"
            " at all",
            first,
        )
    is_of_library = fact == "library_failed" and not (facts.timeouts or hang_signs(facts))
    if first.kind != "error" and not is_of_library:
        return None
    how = (
        " that is not a known fault of the cluster"
        if fact == "crash"
        else ", and the log shows no cause"
    )
    return Conclusion("failure", f"something failed{how}: {says}", first)


def _traceback(facts: Facts) -> Conclusion | None:
    if not (event := unfinished_traceback(facts)):
        return None
    name, before = (
        name_of_exception(facts, event),
        [one for one in own_errors(facts) if one.place < event.place],
    )
    if before and not name:
        return Conclusion("failure", UNKNOWN_ERROR, before[0])
    return Conclusion(
        "failure",
        f"a process raised {name}, which is not a known fault of the cluster"
        if name
        else "a process raised an exception whose name and message are not in the log",
        event,
    )


def _server_that_stands(facts: Facts) -> Conclusion | None:
    if not (stands := server_stands(facts)):
        return None
    said = stands[-1].fields
    return Conclusion(
        "no_end",
        f"the server hangs: it makes no token, {said['running']} requests run and"
        f" {said['waiting']} wait",
        stands[0],
    )


def _watchdog(facts: Facts) -> Conclusion | None:
    return _collective(facts) if facts.timeouts and killed_first(facts) is None else None


def _collective(facts: Facts) -> Conclusion:
    """Who came to the collective that timed out, and who did not."""
    if facts.waits_in_groups() or facts.answer.against:
        return _groups_wait(facts)
    one = facts.timeouts[0]
    came = facts.gave_up | facts.logged.waiting
    others = {*range(min(facts.world_size or 0, MOST_RANKS))} - came
    silent = others - facts.words.keys()
    if not (facts.is_counted or are_few(silent, came)):
        others -= silent
    missing = sorted(others) if came else []
    why = (
        f"{named_ranks(sorted(came)) if came else 'a rank'} waited in"
        f" {collective_in_words(one.op, one.seq, one.numel)}{limit_in_words(one.timeout_ms)}"
    )
    if len(came) > 1 and not missing:
        rest = "; these are all" if facts.is_counted else ", or one without a line did not come"
        why += (
            " and none left it: nothing arrives between them, or work on a GPU before it does not"
            f" end{rest}"
        )
        return Conclusion("no_end", why, one.event, (ASK_ONE_RANK.format("every rank"),))
    if facts.ras and (ranks := facts.ras.even_ranks):
        return Conclusion(
            "no_end",
            f"{why}; NCCL's RAS counts equally many launches of all {ranks} ranks, so nobody is"
            " absent: the operation itself does not end, for the network or a GPU carries nothing",
            one.event,
        )
    whom = named_ranks(missing) if missing else "every other rank"
    said = [
        f"rank {rank} last printed: {shown_line(facts.words[rank])}"
        for rank in missing
        if rank in facts.words
    ]
    absent = (
        f"nothing shows that {whom} came to it"
        if missing
        else "the log has no line of the other ranks"
    )
    why = "; ".join([why, absent, *said[:MOST_LAST_WORDS]])
    return Conclusion("no_end", why, one.event, (ASK_ONE_RANK.format(whom),))


def _groups_wait(facts: Facts) -> Conclusion:
    """Several groups wait, and all for the same few ranks."""
    why = waited_words(facts.waited_row())
    ask = ASK_ONE_RANK.format(named_ranks(facts.answer.roots))
    return Conclusion("no_end", why, first=(ask,))


def _set_up(facts: Facts) -> Conclusion | None:
    """Nearly all ranks wait for few in the set-up of their first communicator."""
    return _groups_wait(facts) if facts.logged.waits and facts.waited_row() else None


def _ras(facts: Facts) -> Conclusion | None:
    """NCCL's RAS names ranks, or shows that the job runs, or shows neither."""
    if (ras := facts.ras) is None:
        return None
    if ras.moved:
        return Conclusion(
            "healthy", "collectives were launched between the two answers of NCCL's RAS"
        )
    if not (named := named_roots(ras)):
        return Conclusion(
            "no_end",
            "fewer ranks are one operation ahead than behind, in one answer of NCCL's RAS: a job"
            " that runs looks so between two launches"
            if ras.standing.lags
            else "all ranks have launched equally many operations, as NCCL's RAS counts them; it"
            " does not report whether they end",
            None,
            (ASK_RAS_AGAIN,),
        )
    ask = [ASK_RAS_AGAIN] * (ras.looks == 1)
    if place := ras.places.get(named[0]):
        ask.insert(
            0,
            f"on {place[0]}: unhang inspect --pid {place[1]}: where it is; ended:"
            " dmesg -T | grep -E 'Xid|oom'",
        )
    return Conclusion("no_end", f"NCCL's RAS: {kind_and_words(ras, named)[1]}", None, (*ask,))


def _reported_end(facts: Facts) -> Conclusion | None:
    """The launcher, the shell or the scheduler reports that a process ended."""
    reports = facts.said(*names_in("reported"))
    if not reports:
        return None
    failed = failed_of_root(facts)
    exits = [failed.exit] if failed else facts.of("failed_exit")
    exit_code = next(
        (f" with exit code {event.fields['code']}" for event in exits if event.fields.get("code")),
        "",
    )
    own = next(iter(facts.said("crash")), None)
    before = [event for event in facts.said("error_line") if reports[0].follows(event)]
    told = (
        own.signature.says
        if own
        else (
            "and the first line before it that reports an error is this"
            if before
            else "and its own output is not in the log"
        )
    )
    return Conclusion(
        "failure",
        f"{who_failed(facts, reports[0])} ended{exit_code}, {told}",
        own or (before[0] if before else reports[0]),
    )


def _unknown_error(facts: Facts) -> Conclusion | None:
    if not (unknown := own_errors(facts)):
        return None
    why = (
        "the job stopped or hangs; the first line that reports an error, which unhang does not"
        " know, is this"
    )
    return with_unlike_words(Conclusion("no_end", why, unknown[0]), facts)


def _no_reason(facts: Facts) -> Conclusion:
    signs = [event for event in (*hang_signs(facts), *facts.faults) if event.kind == "symptom"]
    return with_unlike_words(
        Conclusion(
            "no_end",
            "the job stopped or hangs; no message that unhang knows shows why",
            signs[0] if signs else None,
        ),
        facts,
    )


def conclude(facts: Facts, inputs: Sequence[Input], *, found: bool, trouble: bool) -> Conclusion:
    """The conclusion of a diagnosis. found: a cause is shown; trouble: a line of the log shows a
    fault or a hang."""
    if found:
        return Conclusion("cause", "a cause is listed below")
    if not trouble and (nothing := _no_log(facts, inputs)):
        return nothing
    answer = next(
        one
        for conclusion in (OF_TROUBLE if trouble else WITHOUT_TROUBLE)
        if (one := conclusion(facts))
    )
    return _unless_left_out(
        answer, "not read whole", [one.name for one in inputs if not one.is_whole]
    )


def _no_log(facts: Facts, inputs: Sequence[Input]) -> Conclusion | None:
    if not is_from_a_program(facts):
        return Conclusion("nothing", _nothing(inputs), first=_page(facts, inputs))
    return (
        Conclusion("nothing", f"there is no log of a job, only what {NO_LOG}")
        if inputs and all(NO_LOG in one.notes for one in inputs)
        else None
    )


def is_from_a_program(facts: Facts) -> bool:
    """Whether a line is known from a program, or ranks are told apart by their lines."""
    own = {file.name for file in facts.job}
    lines = (event for event in facts.events if event.file not in own)
    return any(map(is_of_a_program, lines)) or bool(
        rank_that_stopped(facts)
        or facts.words
        or facts.flights
        or facts.traced
        or facts.ras
        or facts.stacks
        or facts.counts
        or facts.of_tools
    )


def _nothing(inputs: Sequence[Input]) -> str:
    if _is_empty(inputs):
        notes = [note for one in inputs for note in one.notes]
        return f"the log is an empty file{f' that {notes[0]}' if notes else ''}"
    return "no log is in it: no line is known from a program"


def _is_empty(inputs: Sequence[Input]) -> bool:
    return all(one.kind == "empty" for one in inputs if one.kind != "job")


def _page(facts: Facts, inputs: Sequence[Input]) -> tuple[str, ...]:
    """What to bring instead of a text without a log; () where a log was expected and is empty."""
    if _is_empty(inputs):
        return ()
    return (
        *names_in("bring"),
        *["settings that it recommends: unhang lint FILE says which are wrong or hide a fault"][
            : any(one.fact in SETTINGS or one.kind == "folklore" for one in facts.events)
        ],
    )


def _ended(facts: Facts) -> Conclusion | None:
    ends = facts.said("healthy_end", "average_bandwidth")
    if not ends:
        return None
    if ends[-1].fact == "average_bandwidth" and (slow := _slow_test(facts, ends[-1])):
        return slow
    if start := started_again(facts, ends[-1]):
        return Conclusion(
            "no_end",
            "a job ended normally, and another one started after it, whose end is not in the log",
            start,
        )
    return Conclusion(
        "healthy", "the job ended normally, and no failure before its end stopped it", ends[-1]
    )


def _slow_test(facts: Facts, end: Event) -> Conclusion | None:
    """The conclusion about a test of collectives that ended and was slow, by its result; None for
    any other."""
    if end.decimal("value") == 0:
        why, *ask = names_in("alone")
        return Conclusion("no_end", why, end, (*ask,))
    if far := far_below(facts):
        why = (
            f"the test ended; its {far.measured:g} GB/s are far below the {far.healthy:g} that"
            f" {far.gpus} such GPUs over NVLink reach"
        )
        return Conclusion("no_end", why, end)
    return slow_job(facts)


def _end_reported(facts: Facts) -> Conclusion | None:
    end = None if facts.faults else reported_end(facts)
    return (
        Conclusion("healthy", "nothing failed, and the program's last lines report its end", end)
        if end
        else None
    )


def reported_end(facts: Facts) -> Event | None:
    """The last line in which a program reports its own end, if it is at the end of the log; every
    rank with output must have reported its end."""
    reports = [event for event in facts.said("end_told") if near_end(facts, event)]
    ended = {rank_of_event(event) for event in facts.of("end_told")} - {None}
    heard = {*map(rank_of, facts.events), *facts.words} - {None} if ended else set()
    return reports[-1] if reports and heard <= ended else None


def _server(facts: Facts) -> Conclusion | None:
    """That a server started says nothing of what came later. An error of a request does not end it:
    an answer follows."""
    if not (starts := facts.said("server_started")):
        return None
    started, failed = starts[-1], unknown_failure(facts)
    event = failed.event if failed else None
    answered = last_answer(facts, started.file)
    if isinstance(event, Event) and event.follows(started) and event.line > answered:
        return failed
    return Conclusion("healthy", SERVES, started)


def _xid(facts: Facts) -> Conclusion | None:
    if not (xids := facts.said("xid")):
        return None
    why = (
        f"the driver reports an Xid; unhang explain xid {xids[0].fields.get('code') or 'NUMBER'}"
        " says what is known of it"
    )
    return Conclusion("failure", why, xids[0])


def _dumps(facts: Facts) -> Conclusion | None:
    """Dumps that a debug server was asked for, not those of a timeout."""
    if facts.flights is None:
        return None
    return Conclusion(
        "no_end",
        "the job went on while these dumps were made, so they show no hang"
        if facts.flights.went_on
        else "these dumps show no rank that others wait for: their operations have ended, the job"
        " was moving, or all ranks are in the same one",
    )


def _counted(facts: Facts) -> Conclusion | None:
    """Records of a program that unhang does not know show who differs, or that nobody does."""
    for one in sorted(facts.counts, key=lambda one: not one.who):
        if not one.who:
            well = Conclusion("healthy" if one.well else "no_end", one.why, one.line)
            return _of_files(well, {each.line.file for each in facts.counts}, facts)
        ask = (ASK_ONE_RANK.format(one.who),)
        return Conclusion(
            "no_end",
            f"the lines of this program, which unhang does not know, show {one.who}: {one.why}",
            one.line,
            ask,
        )
    return None


def _of_files(conclusion: Conclusion, looked: Collection[str], facts: Facts) -> Conclusion:
    """A conclusion with the files that it is of."""
    of, others = ([one for one in facts.ends if (one in looked) is own] for own in (True, False))
    why = f"{conclusion.why}; looked at: {_files(of)}"
    return _unless_left_out(conclusion._replace(why=why), "not judged", others)


def _unless_left_out(conclusion: Conclusion, how: str, files: Sequence[str]) -> Conclusion:
    """The conclusion, healthy only without files that could hide a fault. how: they were left
    out."""
    if conclusion.word != "healthy" or not files:
        return conclusion
    return conclusion._replace(word="no_end", why=f"{conclusion.why}; {how}: {_files(files)}")


def _files(names: Sequence[str]) -> str:
    return listed([PurePath(one).name for one in names], MOST_FILES)


def tells_of_a_job(facts: Facts) -> bool:
    """Whether a line that nobody only quotes reports a job's progress, end, wait or set-up."""
    lines = any(event.kind in names_in("of_a_job") for event in facts.plain)
    return lines or bool(facts.timeouts) or any(map(facts.of, names_in("output")))


def _job_without_end(facts: Facts) -> Conclusion | None:
    if not tells_of_a_job(facts):
        return None
    why = (
        "the log has no end of the job, and no message that unhang knows as a failure; a job that"
        " hangs without a message also shows this"
    )
    return with_unlike_words(Conclusion("no_end", why), facts)


def _test_without_result(facts: Facts) -> Conclusion | None:
    lines = facts.of("bandwidth_row") or facts.of("test_device")
    return (
        Conclusion(
            "no_end",
            "the test of collectives does not end: it hangs in a transfer after this line, or was"
            " cut off",
            lines[-1],
        )
        if lines
        else None
    )


def _machine(facts: Facts) -> Conclusion | None:
    """Healthy is what rules have looked at, in each file."""
    if not (facts.of_tools or facts.of("tool_output")):
        return None
    judged, others = (
        [*dict.fromkeys(name for names in facts.of_tools.values() for name in names[kind])]
        for kind in (0, 1)
    )
    if (hints := facts.of("counted_errors")) or not judged:
        line = next(iter((*hints, *facts.of("tool_output"))), None)
        if line:
            others.insert(0, line.signature.program)
        why = (
            "no rule decides from this whether the machine is sound; read and not judged:"
            f" {listed(others, 4) or 'these lines'}"
        )
        return Conclusion("no_end", why, line)
    why = f"the output of the machine's tools shows no fault in {listed(judged, 4)}"
    if others := [name for of, names in facts.of_tools.values() if not of for name in names]:
        why += f", and does not report {listed(others, 4)}"
    return _of_files(
        Conclusion("healthy", why),
        {file for file, one in facts.of_tools.items() if one[0]},
        facts,
    )


def _unknown(facts: Facts) -> Conclusion:
    return with_unlike_words(
        Conclusion(
            "no_end",
            "unhang knows no message in this text that reports a failure or the end of the job",
        ),
        facts,
    )


OF_TROUBLE: tuple[Callable[[Facts], Conclusion | None], ...] = (
    _refused_requests,
    _wait_that_raised,
    _known_error,
    _traceback,
    _server_that_stands,
    _watchdog,
    _ras,
    _set_up,
    stacks_that_moved,
    _end_reported,
    all_at_one_work,
    rank_that_works,
    stacks_in_one_place,
    _reported_end,
    rank_that_stopped,
    slow_job,
    unknown_failure,
    _unknown_error,
    _no_reason,
)
WITHOUT_TROUBLE: tuple[Callable[[Facts], Conclusion | None], ...] = (
    stacks_that_moved,
    all_at_one_work,
    rank_that_works,
    stacks_in_one_place,
    _ras,
    _ended,
    _end_reported,
    _server,
    rank_that_stopped,
    slow_job,
    unknown_failure,
    _xid,
    _dumps,
    _counted,
    _job_without_end,
    _test_without_result,
    _machine,
    _unknown,
)
