"""Rules over stacks of ranks: which is elsewhere while the others wait for it, and which waits in
another collective. The catalogue's table job_activities says which call is a wait for others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from unhang.core.text import listed
from unhang.core.verdict.activities import BACKWARD, CODE, COLLECTIVE, MAIN, SERVING, activities
from unhang.core.verdict.by_stacks import (
    LOCK,
    PAIRS,
    WAITS_FOR_OTHERS,
    Frame,
    Stack,
    Standing,
    in_one_line,
    standings,
)
from unhang.core.verdict.odd_one_out import AT_LEAST
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.matching.scanning import rank_of
from unhang.jobs.diagnose.meaning.evidence import HINTING, STRONG, SUPPORTING, Evidence
from unhang.jobs.diagnose.rank_names import named_ranks

POSSIBLE = SUPPORTING + 1
AT_WORK = "rank-at-work"
MOST_NAMED, MOST_PLACES = 8, 2
_BUILD = re.compile(r"/torch/(?:utils/(?:file_baton|cpp_extension)|_inductor)|/triton/")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|\(<|/torch/|/filelock/")
_DEBUGGER = re.compile(r"interaction \(.*/(?:pdb|debugger)\.py:")
_INNER = re.compile(r"/torch/distributed/(?!fsdp)|/lib/python3\.\d+/(?!site-|dist-)")


def rank_stands_elsewhere(facts: Facts) -> Iterator[Evidence]:
    """Most ranks wait and few are in another call: the others wait for them. A rank waits in a
    collective, at the start, for a lock, or in the line of the job where most are: a host that
    waits for its GPU, as .item() does, shows no call of a library.

    Decides diagnose_odd_ones/stacks/read-of-a-socket-below-the-data,
    diagnose_odd_ones/stacks/waits-for-a-child, diagnose_odd_ones/stacks/json-of-py-spy,
    diagnose_odd_ones/stacks/gpu-wait-in-a-line-of-the-job.
    """
    stuck, hung = facts.stuck, facts.stuck.hung
    if facts.seen.goes_on:
        return
    ranks = standings(facts.stacks.get(stuck.thread, {}))
    others = [one for name, one in ranks.items() if name not in stuck.elsewhere]
    is_majority = len(others) >= AT_LEAST and len({one.activity.name for one in others}) == 1
    is_twice = all(one.stack.before for one in ranks.values())
    places = listed(list(dict.fromkeys(map(_words, others))), MOST_PLACES)
    for name in stuck.elsewhere[:MOST_NAMED]:
        one, other = ranks[name], others[0]
        left = first_apart(one.stack, other.stack)
        wait = f"{len(others)} wait" if len(others) > 1 else "one waits"
        wait += ", for their GPU it seems," if other.activity.name not in WAITS_FOR_OTHERS else ""
        # awake in the job's own code, in backward or in a collective, it may wait as the others do
        is_apart = one.stack.idle or one.activity.name not in (CODE, BACKWARD, COLLECTIVE)
        # where a process is gone, it is what the others wait for; this one may wait for it too
        is_apart = (is_twice or (is_majority and is_apart)) and not facts.of("no_process_to_dump")
        is_weak = one.is_at_work or name not in hung
        weight, does = HINTING if is_weak else STRONG if is_apart else POSSIBLE, "is"
        if one.is_at_work:
            idle = "waits for requests" if one.activity.name == SERVING else ""
            does = idle or ("works" if one.activity.name == CODE else f"is {one.activity.name}")
        is_stopped = any(map(_DEBUGGER.match, one.stack.calls))
        stands = "in-a-debugger" if is_stopped else "stands-elsewhere"
        yield Evidence(
            _cause(one),
            weight,
            f"{name} {does} in {_where(one.stack, left)}, and the other {wait} in {places}",
            (),
            AT_WORK if weight < POSSIBLE else stands,
            places=tuple(map(_line_of_log, (one.stack, one.stack), (left, one.stack.frames[0]))),
            who=(name,),
        )
    names = stuck.apart
    if names and all(one.collective for one in ranks.values()):
        one, weight = ranks[names[0]], HINTING
        if is_twice:
            weight = POSSIBLE if hung.get(names[0]) else STRONG
        elif PAIRS.fullmatch(one.collective or ""):
            return  # of a pipeline that runs some ranks are always in a message
        wait = f"wait{'s' * (len(names) == 1)} in {_words(one)}"
        yield Evidence(
            "rank_desync_app",
            weight,
            f"{listed(names, MOST_NAMED)} {wait}, and left the calls that the others are in",
            (),
            AT_WORK if weight < POSSIBLE else "stands-elsewhere",
            places=(_line_of_log(one.stack, _frame_of(one)),),
            who=(*names,),
        )


def rank_has_no_stack(facts: Facts) -> Iterator[Evidence]:
    """py-spy found no process for a rank; or of ranks 0 to N all but one have stacks, and all of
    those wait.

    Decides diagnose_odd_ones/stacks/no-process-for-one-rank,
    diagnose_odd_ones/stacks/one-stack-is-missing.
    """
    ranks = facts.standings
    known = {one.stack.rank for one in ranks.values() if one.stack.rank is not None}
    for event in facts.of("no_process_to_dump"):
        rank = rank_of(event)
        if known and rank is not None and rank not in known:
            why = f"py-spy found no process for rank {rank}, and {len(known)} others have stacks"
            yield Evidence(
                "rank_failed", POSSIBLE, why, (event,), "no-process", who=(f"rank {rank}",)
            )
            known.add(rank)
    missing = set(range(max(known, default=0))) - known
    line = in_one_line(ranks)
    if (
        len(missing) == 1
        and len(known) == len(ranks) >= AT_LEAST
        and all(
            name in line or one.activity.name in WAITS_FOR_OTHERS for name, one in ranks.items()
        )
    ):
        rank, other = missing.pop(), next(iter(ranks.values()))
        why = f"rank {rank} has no stack, and the {len(known)} others wait in {_words(other)}"
        yield Evidence(
            "rank_failed", POSSIBLE, why, (), "no-stack", who=(f"rank {rank}",),
            places=(_line_of_log(other.stack, other.stack.frames[0]),),
        )  # fmt: skip


def ranks_stand_in_different_collectives(facts: Facts) -> Iterator[Evidence]:
    """Threads of one name are in different collectives: the ranks wait for each other. In a
    pipeline, which the stacks show by send and recv, that is usual.

    Decides diagnose_odd_ones/stacks/two-sides-in-different-collectives, diagnose_batches/8/009.
    """
    for stacks in facts.stacks.values():
        sides: dict[str, list[Standing]] = {}
        for one in standings(stacks).values():
            if one.collective and not one.activity.awaits_gpu:
                sides.setdefault(one.collective, []).append(one)
        if len(sides) < 2 or any(map(PAIRS.fullmatch, sides)):
            continue
        told = "; ".join(
            f"{_named(side)} in {_words(side[0])}" for side in sorted(sides.values(), key=len)[:4]
        )
        yield Evidence(
            "rank_desync_app",
            SUPPORTING + 0.4,
            f"stacks show different collectives: {told}",
            (),
            "stacks-differ",
            places=tuple(
                _line_of_log(side[0].stack, _frame_of(side[0])) for side in sides.values()
            )[:4],
        )
        return


class CommonPlace(NamedTuple):
    """Where the stacks of all ranks are. call: FUNCTION (PATH). line: that shows it."""

    ranks: list[int]
    call: str
    line: RankLine


def common_place(facts: Facts) -> CommonPlace | None:
    """The one call in which the stacks of several ranks are, if it is no collective of torch: a
    lock, a store or a barrier of another library."""
    stacks = {
        stack.rank: stack for stack in facts.stacks.get(MAIN, {}).values() if stack.rank is not None
    }
    places = [
        (place, stack)
        for stack in stacks.values()
        # the innermost frame that is neither Python's own nor torch's part for collectives
        if (place := next((one for one in stack.frames if not _INNER.search(one.text)), None))
        and not any("/torch/" in call for call in stack.calls)
    ]
    calls = {f"{place.said.rpartition(':')[0]})" for place, _ in places}
    if facts.seen.works or not len(places) == len(stacks) > 1 == len(calls):
        return None
    place, stack = places[0]
    return CommonPlace(sorted(stacks), calls.pop(), RankLine(**_line_of_log(stack, place)))


def first_apart(stack: Stack, other: Stack) -> Frame:
    """The first call, from the outermost down, in which a stack leaves another; the innermost of a
    stack that the other one contains."""
    for own, theirs in zip(stack.frames[::-1], other.frames[::-1], strict=False):
        if own.text != theirs.text:
            return own
    return stack.frames[max(0, len(stack.frames) - len(other.frames) - 1)]


def _cause(one: Standing) -> str:
    """The table's cause of an activity; a lock is one of a build only where the stack shows it, and
    a rank in code that the table does not know is busy there."""
    row = activities().get(one.activity.name)
    is_other_lock = one.activity.name == LOCK and not any(map(_BUILD.search, one.stack.calls))
    if one.activity.name == COLLECTIVE:  # the others are past it, or have not come to it
        return "rank_desync_app"
    is_unknown = is_other_lock or one.activity.name == CODE
    return (not is_unknown and row and row.cause) or "slow_rank_or_io"


def _where(stack: Stack, left: Frame) -> str:
    """main (FILE:206) > fetch (FILE:31) > read (FILE:1103): from the call in which the rank leaves
    the others to the innermost one, with the job's own last calls between."""
    below = stack.frames[: stack.frames.index(left)]
    own = [frame for frame in below if not _LIBRARY.search(frame.text)][:2]
    shown = (left, *own[::-1], *[f for f in below if not _INNER.search(f.text)][:1], *below[:1])
    return " > ".join(dict.fromkeys(frame.said for frame in shown))


def _frame_of(one: Standing) -> Frame:
    """The frame that shows a rank's collective."""
    frames = one.stack.frames
    return next((frame for frame in frames if one.activity.place in frame.text), frames[0])


def _words(one: Standing) -> str:
    return one.activity.where.replace("(/", "(")


def _named(side: Sequence[Standing]) -> str:
    ranks = sorted(one.stack.rank for one in side if one.stack.rank is not None)
    if len(ranks) == len(side):
        return named_ranks(ranks)
    return ", ".join(one.stack.name for one in side[:MOST_NAMED])


def _line_of_log(stack: Stack, frame: Frame) -> dict[str, Any]:
    return {"file": stack.file, "line": frame.line, "text": frame.shown}
