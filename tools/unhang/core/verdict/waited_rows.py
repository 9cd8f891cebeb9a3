"""Who is waited for, as a value of a document (schema `waited-for-1`) and as text of a screen.
Values in, values out.

A branch of evidence makes `WaitedFor`; its document keeps `waited_for_row()` of it under the key
`waited_for`, and the screen is made from that alone, after secrets were masked in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct, convert

from unhang.core.text import counted, listed, visible
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.waiting import MESSAGE, SURE, Wait, WaitedFor

AWAITED, FOLLOWS, FULL, DIFFERENT = "awaited", "follows", "full", "different"
MOST_NAMED = 8  # ranks with host and last line
LONGEST_RANKS = 40  # letters of ranks in a sentence
_NUMBERS = re.compile(r"\d+")


class Ranks(Struct, frozen=True):
    count: int
    ranks: str


class Call(Ranks, frozen=True):
    what: str
    where: str = ""


class Line(Struct, frozen=True):
    file: str
    line: int
    text: str


class Named(Struct, frozen=True):
    rank: int
    host: str | None
    last: Line | None


class WaitRow(Struct, frozen=True):
    role: str
    group: str
    size: int | None
    operation: str
    seq: int
    waiting: Ranks
    behind: Ranks
    reported: Ranks
    missing: Ranks
    queued: Ranks
    calls: Sequence[Call]
    since: str | None
    line: Line | None


class WaitedRow(Struct, frozen=True):
    roots: Ranks
    named: Sequence[Named]
    ring: Ranks
    missing: Ranks
    certainty: str
    waits: Sequence[WaitRow]
    against: Sequence[WaitedRow] = ()


class Beside(NamedTuple):
    """What the evidence has beside the steps.

    hosts   rank -> host
    odd     who is named where nobody is waited for
    last    rank -> its last line of a log
    texts   (source, line) of a step -> the text of that line
    """

    hosts: Mapping[int, str] = {}
    last: Mapping[int, Line] = {}
    texts: Mapping[tuple[str, int], str] = {}
    odd: Sequence[int] = ()


def waited_in(row: Any) -> WaitedRow | None:
    """row: of a document of our own making."""
    return convert(row, WaitedRow | None)


_NOTHING = Beside()


def waited_for_row(answer: WaitedFor, beside: Beside = _NOTHING) -> WaitedRow | None:
    """The row, None where nobody waits. Ranks are folded: {count: 7, ranks: 0-4,6-7}."""
    of_role = (
        (AWAITED, answer.waits), (FOLLOWS, answer.follows),
        (FULL, answer.full), (DIFFERENT, answer.different),
    )  # fmt: skip
    waits: dict[tuple[str, int], WaitRow] = {}
    for role, those in of_role:
        for wait in those:
            waits.setdefault((wait.group.name, wait.seq), _wait_row(role, wait, beside))
    if not waits:
        return None
    return WaitedRow(
        ranks_row(answer.roots),
        [
            Named(rank, beside.hosts.get(rank), beside.last.get(rank))
            for rank in (answer.roots or answer.ring or beside.odd)[:MOST_NAMED]
        ],
        ranks_row(answer.ring),
        ranks_row(answer.missing),
        answer.certainty,
        sorted(waits.values(), key=lambda wait: not (answer.roots or wait.calls)),
        [row for one in answer.against if (row := waited_for_row(one, beside))],
    )


def ranks_row(ranks: Sequence[int]) -> Ranks:
    """(0, 1, 2, 5) -> {count: 4, ranks: "0-2,5"}."""
    return Ranks(len(ranks), fold_ranks(ranks))


def _wait_row(role: str, wait: Wait, beside: Beside) -> WaitRow:
    at = next(((step.source, step.line or 0) for step in wait.steps if step.source), None)
    return WaitRow(
        role,
        wait.group.name,
        wait.group.size or len(wait.group.members) or None,
        wait.operation,
        wait.seq,
        ranks_row(wait.waiting),
        ranks_row([rank for rank in wait.behind if rank not in wait.reported]),
        ranks_row(wait.reported),
        ranks_row(wait.missing),
        ranks_row(wait.queued),
        [
            Call(len(ranks), fold_ranks(ranks), what, visible(" or ".join(sorted(places)), 80))
            for what, ranks in wait.calls.items()
            for places in [
                {PurePath(one.where).name for one in wait.steps if one.rank in ranks} - {""}
            ]
        ],
        None,
        Line(*at, beside.texts.get(at, "")) if at else None,
    )


def groups_of(row: WaitedRow | None) -> list[dict[str, Any]]:
    """[{name, size}] of the groups in which somebody waits."""
    sizes = {wait.group: wait.size for wait in row.waits} if row else {}
    return [{"name": name, "size": size} for name, size in sizes.items()]


def waited_headline(row: WaitedRow) -> str:
    """The verdict in one sentence."""
    for first in _of_role(row, AWAITED) if row.roots.count else ():
        hosts = [*dict.fromkeys(visible(one.host, 80) for one in row.named if one.host)]
        who = in_ranks(row.roots) + (f" ({listed(hosts, 2)})" if hosts else "")
        return f"{who} {'is' if row.roots.count == 1 else 'are'} waited for: {_who_waits(first)}"
    for wait in row.waits:
        if wait.calls:
            return _differ(wait)
    if row.ring.count:
        return f"{in_ranks(row.ring)} wait for each other, in different groups"
    return _who_waits(row.waits[0])


def waited_lines(row: WaitedRow) -> list[str]:
    """What follows the headline: who waits behind, and who brought no evidence."""
    awaited = _of_role(row, AWAITED)
    behind = [*awaited[1:], *_of_role(row, FOLLOWS)]
    if row.ring.count or not row.roots.count:
        waits = [_who_waits(wait) for wait in [*awaited, *behind][:2]]
        lines = [line for line in waits if line not in waited_headline(row)]
        behind = [*awaited, *behind][2:]
    else:
        lines = [
            *filter(
                None, (_where(wait, row.certainty) for wait in awaited[: row.missing != row.roots])
            )
        ]
    lines = [*map(_against, row.against[:2]), *lines]
    lines += [f"{_groups(behind)} behind it"] if behind else []
    lines += [f"without a line or dump here: {in_ranks(row.missing)}"] if row.missing.count else []
    return lines


def waited_words(row: WaitedRow | None) -> str:
    """The headline and what follows it, in one line."""
    if row is None:
        return "nobody is waited for"
    return "; ".join([waited_headline(row), *waited_lines(row)])


def in_ranks(row: Ranks) -> str:
    """rank 5; ranks 0-3,6; of many that do not fold, how many."""
    ranks = visible(row.ranks, 10 * LONGEST_RANKS)
    if len(ranks) > LONGEST_RANKS:
        cut = ranks[:LONGEST_RANKS].rpartition(",")[0]
        return f"ranks {cut} and others, {counted(row.count, 'rank')}"
    return f"rank {ranks}" if row.count == 1 else f"ranks {ranks}"


def _of_role(row: WaitedRow, role: str) -> list[WaitRow]:
    return [wait for wait in row.waits if wait.role == role]


def _against(row: WaitedRow) -> str:
    """against it, ras.txt:27: rank 3 is waited for: 7 of 8 ranks of tp wait in AllReduce #60."""
    line = row.waits[0].line
    at = f", {visible(PurePath(line.file).name)}{f':{line.line}' * bool(line.line)}" if line else ""
    return f"against it{at}: {waited_headline(row)}"


def _who_waits(wait: WaitRow) -> str:
    """7 of 8 ranks of mesh_tp wait in ALLREDUCE #5120; rank 1 sends to rank 3, which does not
    receive it."""
    full = wait.role == FULL
    if wait.operation == MESSAGE and not full:
        by, _, to = wait.group.rpartition(", ")[2].partition(" to ")
        sent = f"rank {by} sends to rank {to}, which does not receive it"
        return (
            f"rank {to} receives from rank {by}, which does not send"
            if wait.waiting.ranks == to
            else sent
        )
    count, size = wait.waiting.count, wait.size
    who = f"{count} of {counted(size, 'rank')}" if size else counted(count, "rank")
    stand = "entered" if full else "wait in" if count != 1 else "waits in"
    left = ", and none left it" if full else ""
    group = visible(wait.group, 60)
    return f"{who} of {group} {stand} {visible(wait.operation, 60)} #{wait.seq}{left}"


def _where(wait: WaitRow, certainty: str) -> str:
    """Why the awaited are not there, as far as the evidence shows it."""
    if wait.behind.count:
        who = f"{in_ranks(wait.behind)} of {visible(wait.group, 60)}"
        # in evidence that is not complete an absent line shows no more than that
        return (
            f"{who} never called it" if certainty == SURE else f"no line shows that {who} called it"
        )
    if wait.reported.count:
        return f"a line of {in_ranks(wait.reported)} names it too, late or in another group"
    if wait.queued.count and not wait.missing.count:
        return f"{in_ranks(wait.queued)} called it, and its GPU has other work before it"
    return ""


def _differ(wait: WaitRow) -> str:
    calls = sorted(wait.calls, key=lambda call: call.count)[:3]
    # unlike places in the code say more than the sizes of what is called there
    is_apart = len({call.where for call in calls} - {""}) == len(calls)
    shown = "; ".join(
        f"{in_ranks(call)} {visible(_NUMBERS.split(call.what)[0], 60).strip()} at {call.where}"
        if is_apart
        else f"{in_ranks(call)} {visible(call.what, 80)}"
        for call in calls
    )
    return f"ranks of {visible(wait.group, 60)} call different things at #{wait.seq}: {shown}"


def _groups(waits: Iterable[WaitRow]) -> str:
    """8 groups of mesh_dp wait, 3 groups (a, b, c) wait."""
    names = [*dict.fromkeys(visible(wait.group, 60) for wait in waits)]
    kinds = {_NUMBERS.sub("", name.partition(",")[0]).strip("()[]:_- ") for name in names}
    if len(names) == 1:
        return f"{names[0]} waits"
    if len(kinds) == 1 and "" not in kinds:
        return f"{counted(len(names), 'group')} of {kinds.pop()} wait"
    return f"{counted(len(names), 'group')} ({listed(names, 3)}) wait"
