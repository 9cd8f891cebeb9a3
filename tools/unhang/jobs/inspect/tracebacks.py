"""A traceback at the end of a rank's log says why the others wait, before where its threads are
now. Values in, values out.

It never makes a hang: a program may log an exception that it survives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unhang.core.text import visible
from unhang.core.verdict.job import HUNG, Raised, RankLook, Verdict
from unhang.core.verdict.stands import RESTING_CORES, stands_words
from unhang.core.verdict.suspect import Suspect
from unhang.jobs.inspect.evidence import NodeEvidence
from unhang.jobs.inspect.inspection import JobLook

CAUSE = "rank_failed"
NEXT = "the whole traceback, in {path}: its exception is the cause; then end the job"
MOST_AFTER = 8  # lines that a launcher or a library prints after it
_LINE = re.compile(r"^(?:\[rank(?P<rank>\d{1,6})\]:\s?)?(?P<text>.*)$")
_BEGIN = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_PLACE = re.compile(r'^\s+File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,9})')
_ERROR = re.compile(r"^[A-Za-z_][\w.]{0,120}(?:: .*)?$")


def raised_in(nodes: Sequence[NodeEvidence]) -> list[Raised]:
    """The tracebacks with which logs of ranks end, the first of each rank."""
    found: dict[int | None, Raised] = {}
    for node in nodes:
        ranks = {row.pid: row.rank for row in node.ranks}
        for log in node.logs:
            own = [ranks.get(pid) for pid in log.pids]
            for rank, error in _at_the_end(log.lines):
                whose = rank if rank is not None else own[0] if len(own) == 1 else None
                found.setdefault(whose, Raised(whose, error, log.path))
    return list(found.values())


def _at_the_end(lines: Sequence[str]) -> Iterator[tuple[int | None, str]]:
    """(rank of its prefix, error) of the last traceback, if at most MOST_AFTER lines follow: of a
    chain of exceptions the first, which the others follow from."""
    parsed = [found for found in map(_LINE.match, lines) if found]
    begins = [at for at, one in enumerate(parsed) if one["text"].startswith(_BEGIN)]
    if not begins or not (last := _error(parsed, begins[-1])):
        return
    label = parsed[begins[-1]]["rank"]
    first, *earlier = (at for at in reversed(begins) if parsed[at]["rank"] == label)
    for at in earlier:
        if not any(one["rank"] == label and one["text"] in _CHAIN for one in parsed[at:first]):
            break
        first = at
    if len(parsed) - last[0] - 1 <= MOST_AFTER:
        yield int(label) if label else None, (_error(parsed, first) or last)[1]


def _error(parsed: Sequence[re.Match[str]], begin: int) -> tuple[int, str] | None:
    """(number of the line, error with its place) of the traceback that begins there."""
    place = ""
    for at, one in enumerate(parsed[begin + 1 :], begin + 1):
        if one["rank"] != parsed[begin]["rank"]:
            continue
        if where := _PLACE.match(one["text"]):
            place = f" ({where['path'].rsplit('/', 1)[-1]}:{where['line']})"
        elif _ERROR.match(one["text"]):
            return at, visible(one["text"], 300) + place
    return None


def with_raised(verdict: Verdict, job: JobLook) -> Verdict:
    """The verdict on a job that hangs or may hang, with the rank first whose log ends so."""
    looks = {look.rank: look for look in job.looks if look.rank is not None}
    known = [one for one in job.raised if one.rank in looks]
    if not job.raised:
        return verdict
    if not known:
        return replace(
            verdict,
            headline=f"a log of the job ends with {job.raised[0].error}; {verdict.headline}",
        )
    ours = {one.rank for one in known}
    first = [_named(one, looks[one.rank], verdict) for one in known if one.rank is not None]
    rest = [one for one in verdict.named if one.rank not in ours]
    who = first[0]
    # who is waited for, and rests after its exception, works no more: also if it was met awake
    calm = {
        look.rank
        for look in job.looks
        if look.cpu is not None and look.cpu < RESTING_CORES and not look.log_grew
    }
    rests = any(own.rank in ours & calm for own in verdict.named)
    headline = f"rank {who.rank} on {who.host}: {who.why}"
    return Verdict(HUNG if rests else verdict.state, [*first, *rest], headline)


def _named(one: Raised, look: RankLook, verdict: Verdict) -> Suspect:
    before = next((own for own in verdict.named if own.rank == one.rank), None)
    stands = before.why if before else f"it {stands_words(look)}"
    why = f"its log ends with {one.error}; {stands}"
    phase = before.phase if before else "ended"
    then = NEXT.format(path=visible(one.path, 200))
    return Suspect(look.host, look.rank, look.gpu, phase, why, then, cause=CAUSE)
