"""Who is waited for, by what a log shows of groups. Values in, values out.

A log seldom holds the lines of all ranks. Where many of those that are waited for brought no line,
they are not missing from the job, but from the log: nobody is blamed for that, and who waits for
whom is asked of the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

from unhang.core.verdict.by_stacks import Standing
from unhang.core.verdict.waited_rows import Beside, Line, WaitedRow, waited_for_row
from unhang.core.verdict.waiting import (
    LAUNCHED,
    MESSAGE,
    POSSIBLE,
    SURE,
    Group,
    Step,
    Wait,
    WaitedFor,
    are_few,
    waited_for,
)
from unhang.jobs.diagnose.log_groups import EVERYBODY, WHOLE_JOB, LogGroups
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.logs.set_up import SET_UP
from unhang.jobs.diagnose.matching.scanning import Event, rank_of

_PEER = re.compile(r" (?:src|dst): \d+$")


def waits_of_log(
    shown: LogGroups, spoke: Collection[int], are_all_there: bool, elsewhere: Collection[int] = ()
) -> WaitedFor:
    """spoke: ranks with a line of their own. Never sure: an absent line proves nothing.
    are_all_there: RAS counts them all, so that nobody is asked for whom the log lacks.
    elsewhere: ranks that other evidence shows in a wait."""
    seen = {*shown.ranks, *spoke}
    groups = _with_unknown_members(shown, seen)
    answer = _of_ranks(waited_for(groups, shown.steps, seen, waiting=elsewhere))
    if answer.full and not answer.roots and not answer.ring:
        # what all entered ends by itself, unless it is queued behind what is asked for here
        entered = {wait.group.name for wait in answer.full}
        steps = [step for step in shown.steps if step.group not in entered]
        behind = _of_ranks(waited_for(groups, steps, seen, waiting=elsewhere))
        answer = behind if behind.roots or behind.ring else answer
    waiting = answer.waiting
    silent = {*answer.roots} - seen
    absent = {*answer.roots} - shown.ranks
    out = _too_many(absent, spoke, waiting)
    if are_all_there:
        out = absent if shown.timeouts else silent
    if out:
        seen -= out
        among = [
            replace(group, members=tuple(rank for rank in group.members if rank in seen))
            for group in shown.groups
        ]
        others = waited_for(among, shown.steps, seen, waiting=elsewhere)
        if not (others.roots or others.ring):
            follows = (*answer.waits, *answer.follows)
            others = replace(answer, roots=(), waits=(), follows=follows)
        missing = () if are_all_there else answer.missing
        return replace(others, certainty=POSSIBLE, missing=missing)
    if (answer.waits or answer.follows) and not answer.roots and not answer.ring:
        return _by_who_waits_nowhere(answer, waiting.union(elsewhere), shown)
    # nobody gave up: it may only come later; or it waits too, and for whom is open
    is_late = silent and any(wait.operation == SET_UP for wait in answer.waits)
    # where no line states how many ranks there are, an absent line shows least
    is_late = is_late or (silent and any(is_uncounted(wait.group) for wait in answer.waits))
    is_open = is_late or {*answer.roots}.issubset(elsewhere)
    return replace(answer, certainty=POSSIBLE) if is_open else answer


def waits_in_words(by_fact: Mapping[str, Sequence[Event]]) -> Iterator[WaitedFor]:
    """Of lines that compare the ranks themselves: those that a monitored barrier misses, and the
    call of each rank where torch finds unlike ones."""
    for event in by_fact.get("missing_ranks", ()):
        absent = tuple(int(rank) for rank in re.findall(r"\d+", event.fields["ranks"] or ""))
        wait = Wait(Group(EVERYBODY), "monitored barrier", 1, (rank_of(event) or 0,), absent)
        yield WaitedFor(absent, (wait,), certainty=SURE)
    yield waited_for(
        (),
        (
            Step(event.number("rank"), EVERYBODY, event.fields["op"] or "", event.number("seq"),
                 LAUNCHED, source=event.file, line=event.line)
            for event in by_fact.get("unlike_call", ())
            if event.fields["rank"]
        ),
    )  # fmt: skip


def messages_in_stacks(ranks: Iterable[Standing]) -> WaitedFor:
    """A rank with a wrong peer, by the arguments in its stack. Of a pipeline that runs, stacks show
    messages that have one end too, so no more is said of them."""
    groups: dict[str, Group] = {}
    steps = []
    for one in ranks:
        frame = next((frame for frame in one.stack.frames if _PEER.search(frame.shown)), None)
        if (rank := one.stack.rank) is not None and frame:
            way, peer = frame.shown.rsplit(maxsplit=2)[-2:]
            ends = (int(peer), rank) if way == "src:" else (rank, int(peer))
            group = Group("pipeline, {} to {}".format(*ends), ends, 2)
            groups[group.name] = group
            steps.append(
                Step(
                    rank, group.name, MESSAGE, 1, LAUNCHED,
                    where=frame.shown, source=one.stack.file, line=frame.line,
                )
            )  # fmt: skip
    answer = waited_for(groups.values(), steps, {step.rank for step in steps})
    return replace(answer, certainty=POSSIBLE) if answer.left_the_order else WaitedFor()


def _with_unknown_members(shown: LogGroups, seen: Collection[int]) -> list[Group]:
    """The groups; one whose members may not be all has a further one, below 0, for whom those that
    came may wait. The group of all ranks has all that are seen in any group; where no line states
    its size, many that nobody saw are none."""
    named = {group.name for group in shown.groups}
    groups = [*shown.groups, *(Group(one) for one in {step.group for step in shown.steps} - named)]
    found = []
    for place, group in enumerate(groups):
        came, members = _seen_in(group, shown), group.members
        unseen = {*members} - {*seen} if is_uncounted(group) else set()
        if len(came) == 1 or (len(unseen) > 1 and not are_few(unseen, came)):
            members = tuple(rank for rank in members if rank not in unseen)
        whole = group.name == EVERYBODY and len(groups) > 1
        if group.size is None and not whole and set(members) <= set(came):
            members = (*(members or came), -1 - place)
        found.append(replace(group, members=members))
    return found


def _seen_in(group: Group, shown: LogGroups) -> list[int]:
    return sorted({step.rank for step in shown.steps if step.group == group.name})


def is_uncounted(group: Group) -> bool:
    """Whether a group is the whole job, and no line states how many ranks it has."""
    return group.size is None and group.name in (EVERYBODY, WHOLE_JOB)


def _of_ranks(answer: WaitedFor) -> WaitedFor:
    """The answer without unknown members: who waits for one of them waits, and for whom is open."""
    waits = (*answer.waits, *answer.follows)
    roots = tuple(rank for rank in answer.roots if rank >= 0)
    first = tuple(wait for wait in waits if set(roots) & set(wait.awaited))
    return replace(
        answer,
        roots=roots,
        waits=first,
        follows=tuple(wait for wait in waits if wait not in first),
        missing=tuple(rank for rank in answer.missing if rank >= 0),
    )


def _by_who_waits_nowhere(answer: WaitedFor, waiting: Iterable[int], shown: LogGroups) -> WaitedFor:
    """The members of the groups are not known, and nearly all ranks wait: then for the others."""
    waiting = {*waiting, *(rank for wait in answer.different for rank in wait.waiting)}
    others = tuple(sorted({*range(max(waiting | shown.ranks) + 1)} - waiting))
    if not are_few(others, waiting):
        return answer
    return replace(answer, roots=others, waits=answer.follows, follows=(), certainty=POSSIBLE)


def _named_alone(wait: Wait) -> Wait:
    """Without ranks below 0, which stand for those that an answer counts and does not name, and
    without the size of a job that no line states."""
    group = wait.group
    if is_uncounted(group) or min(group.members, default=0) < 0:
        group = replace(group, members=())
    waiting, behind, missing, queued, *calls = (
        tuple(rank for rank in ranks if rank >= 0)
        for ranks in (wait.waiting, wait.behind, wait.missing, wait.queued, *wait.calls.values())
    )
    return replace(
        wait, group=group, waiting=waiting, behind=behind, missing=missing, queued=queued,
        calls=dict(zip(wait.calls, calls, strict=True)),
    )  # fmt: skip


def odd_callers(wait: Wait) -> tuple[int, ...]:
    """The fewest of those that called different things, () where no call has the fewest."""
    few, many, *_ = sorted(wait.calls.values(), key=len)
    return few if len(few) < len(many) else ()


def named_in(answer: WaitedFor) -> tuple[int, ...]:
    """Whom it names: the roots, else the ring, else the odd ones of unlike calls, or all."""
    unlike = (rank for wait in answer.different for rank in odd_callers(wait) or wait.waiting)
    return answer.roots or answer.ring or tuple(unlike)


def row_of_waits(
    waited: WaitedFor,
    words: Mapping[int, RankLine],
    texts: Mapping[tuple[str, int], str],
    hosts: Mapping[int, str],
) -> WaitedRow | None:
    """The document's row. words: rank -> its last line. texts: (file, line) of steps -> the text.
    hosts: of ranks."""
    last = {rank: Line(said.file, said.line, said.text) for rank, said in words.items()}
    waited = replace(waited, missing=tuple(one for one in waited.missing if one not in last))
    return waited_for_row(_known_alone(waited), Beside(hosts, last, texts, named_in(waited)))


def _known_alone(waited: WaitedFor) -> WaitedFor:
    roles = ("waits", "follows", "different", "full")
    alone: dict[str, Any] = {
        role: tuple(map(_named_alone, getattr(waited, role))) for role in roles
    }
    return replace(waited, against=tuple(map(_known_alone, waited.against)), **alone)


def _too_many(absent: set[int], words: Collection[int], waiting: Sized) -> set[int]:
    """Ranks without a line of what others wait in whom it does not name. words: ranks with lines of
    their own, who are elsewhere and must be fewer than those that wait; of the others nobody knows
    whether their log has any text, and where they are many, lines were not saved."""
    spoke, silent = absent.intersection(words), absent.difference(words)
    many = not are_few(silent, waiting) if len(silent) > 1 else len(waiting) == 1
    return (silent if many else set()) | (spoke if 1 < len(spoke) >= len(waiting) else set())
