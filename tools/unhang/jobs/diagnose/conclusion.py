"""The conclusion about a log, one of five: a cause, a failure without a cause, a healthy end, no end, nothing readable. And those of any log, with or without
a line of a fault."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from unhang.core.secrets_in_text import without_secrets
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.logs.rank_steps import RankStep
from unhang.jobs.diagnose.matching.scanning import Event, rank_of
from unhang.jobs.diagnose.rank_names import named_ranks
from unhang.jobs.diagnose.rules.recording_rules import common_place
from unhang.jobs.diagnose.rules.signs import hang_signs, heading_of_a_failure, heading_of_a_hang, is_only_told, is_slow, near_end, own_errors

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
LONGEST_WORDS = 160
UNKNOWN_ERROR = "a program reports an error that unhang does not know"
TOLD = "the text tells of a fault; no message that unhang knows shows it"
SERVES = "the server started, and no later line shows that it failed or stands"
SLOW = "the job is slow and does not hang; no message that unhang knows shows why"
NO_LOG = "starts a job and is not a log; unhang lint checks it, and diagnose reads it together with the job's log"


class Conclusion(NamedTuple):
    """word: a key of EXIT_CODES. why: one sentence. event: the line that shows it, if any. first: what to collect before
    anything else.
    """

    word: str
    why: str
    event: Event | RankStep | None = None
    first: tuple[str, ...] = ()


def describe_conclusion(conclusion: Conclusion) -> dict[str, Any]:
    """The `outcome` of a diagnosis document."""
    return {"word": conclusion.word, "why": conclusion.why, "line": evidence_of(conclusion.event) if conclusion.event else None}


def stacks_in_one_place(facts: Facts) -> Conclusion | None:
    """The stacks of all ranks stand in one call outside of collectives."""
    if not (place := common_place(facts)):
        return None
    ranks, frame = place
    call = f"{frame.fields['call']} ({frame.fields['module']})"
    why = f"the stacks of {named_ranks(ranks)} stand in {call}: each waits there for others that do not come, or wait for something else"
    return Conclusion("no_end", why, frame, (ASK_IN_ONE_PLACE.format(call),))


def rank_that_stopped(facts: Facts) -> Conclusion | None:
    """Only the program's own lines show the ranks, and one came less far than the others."""
    if not (stopped := facts.stopped):
        return None
    why = f"the log just stops, and rank {stopped.rank} stopped first: its last step is {stopped.own}, the others came to {stopped.others}"
    return Conclusion("no_end", why, stopped.event, (ASK_ONE_RANK.format(f"rank {stopped.rank}"),))


def slow_job(facts: Facts) -> Conclusion | None:
    """The report is about speed."""
    return Conclusion("no_end", SLOW) if is_slow(facts) and not heading_of_a_failure(facts) else None


def unknown_failure(facts: Facts) -> Conclusion | None:
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


def with_unlike_words(conclusion: Conclusion, facts: Facts) -> Conclusion:
    """The conclusion with what ranks printed last, if one rank's last line is unlike those of all others; numbers in the lines do not count."""
    alike: dict[str, list[int]] = {}
    for rank, said in sorted(facts.words.items()):
        alike.setdefault(_NUMBERS.sub("#", said.text), []).append(rank)
    groups = sorted(alike.values(), key=len)
    if silent := _silent_ranks(facts) if len(groups) == 1 else []:
        told = f"{named_ranks(silent)} printed nothing; {named_ranks(groups[0])} last printed: {shown_line(facts.words[groups[0][0]])}"
        return conclusion._replace(why=f"{conclusion.why}; {told}", first=(ASK_ONE_RANK.format(named_ranks(silent)),))
    if len(groups) != 2 or len(groups[0]) != 1:
        return conclusion
    told = "; ".join(f"{named_ranks(ranks)} last printed: {shown_line(facts.words[ranks[0]])}" for ranks in groups)
    first = (ASK_ONE_RANK.format(named_ranks(groups[0])),) if len(groups[1]) > 1 else ()
    return conclusion._replace(why=f"{conclusion.why}; {told}", first=first)


def _silent_ranks(facts: Facts) -> list[int]:
    """The few ranks below the highest one that printed no line, where several others did."""
    silent = sorted({*range(max(facts.words))} - facts.words.keys()) if facts.words and max(facts.words) < MOST_RANKS else []
    return silent if 0 in facts.words and len(silent) * FEW_OF <= len(facts.words) else []  # without a rank 0 they are counted from 1, or are not all here


def shown_line(said: RankLine) -> str:
    """A rank's line, with its place."""
    return f"{without_secrets(said.text)[:LONGEST_WORDS]} [line {said.line}]"


def rank_of_event(event: Event) -> int | None:
    """The rank that an event names, or that printed it."""
    named = event.fields.get("rank")
    return int(named) if named else rank_of(event)


def last_answer(facts: Facts, file: str) -> int:
    """The line of the last answer to a request among the last lines of a file; 0 without one."""
    return max((number for number, text in facts.last.get(file, ()) if _ANSWERED.search(text)), default=0)
