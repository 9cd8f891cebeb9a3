"""Saved stacks as looks at a running job, so that one judge answers for both. Values in, values
out.

The last two looks at a rank, or its only one twice: what is in the same calls in both did not go on
between them. What /proc, the driver and RAS would say is not known, and speaks against nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from unhang.core.verdict.activities import MAIN, innermost_of
from unhang.core.verdict.awaits import one_serves, takes_from, telling_thread
from unhang.core.verdict.by_looks import judge_looks, sides_of
from unhang.core.verdict.by_stacks import Stack, Stuck, in_one_line, standings
from unhang.core.verdict.communicators import Standing as RasStanding
from unhang.core.verdict.job import HUNG, Job, NodeLook, RankLook
from unhang.core.verdict.waiting import are_few


def stuck_in_stacks(stacks: Mapping[str, Mapping[str, Stack]]) -> Stuck:
    """stacks: thread -> name -> its last stack."""
    thread = telling_thread(
        [
            {thread: those[name].calls for thread, those in stacks.items() if name in those}
            for name in standings(stacks.get(MAIN, {}))
        ]
    )
    ranks = standings(stacks.get(thread, {}))
    names, in_line = [*ranks], in_one_line(ranks)
    looks = []
    for number, (name, one) in enumerate(ranks.items()):
        now = one.stack
        threads = (those[name] for those in stacks.values() if name in those)
        is_awake = one.is_awake or (in_line and name not in in_line and not now.idle)
        looks.append(
            RankLook(
                number,
                states=("R", "R") if is_awake else ("S", "S"),
                doing=one.activity,
                moved=now.moved,
                waited=not (is_awake or name in in_line) and now.calls == (now.before or now).calls,
                spins=name in in_line,
                innermost=innermost_of(now.calls),
                serves=one_serves(thread.calls for thread in threads if thread.pid == now.pid),
                path=now.own_calls[::-1],
                awaits_a_queue=takes_from(now.calls),
            )
        )
    # a node whose GPUs move nothing, for all that is known
    job = Job(looks, RasStanding(), (NodeLook("", True, True, False, False, ()),), None)
    verdict, (waiting, others) = judge_looks(job), sides_of(job)
    # one look of a healthy job has many elsewhere
    is_clear = len(others) == 1 or are_few(others, waiting)
    named = {names[one.rank]: one.blind for one in verdict.named if one.rank is not None}
    return Stuck(
        thread,
        tuple(names[look.rank or 0] for look in others if waiting and is_clear),
        () if others or 2 * len(named) >= len(looks) else tuple(named),
        named if verdict.state == HUNG else {},
    )
