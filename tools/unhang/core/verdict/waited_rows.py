"""Who is waited for, as a row of a document (schema `waited-for-1`) and as text of a screen. Values
in, values out.

A branch of evidence makes `WaitedFor`; its document keeps `waited_for_row()` of it under the key
`waited_for`, and the screen is made from the row alone, after secrets were masked in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unhang.core.text import counted, listed, visible
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.waiting import Wait, WaitedFor

AWAITED, FOLLOWS, FULL, DIFFERENT = "awaited", "follows", "full", "different"
MOST_NAMED = 8  # ranks with host and last line
LONGEST_RANKS = 40  # letters of ranks in a sentence
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Beside:
    """What the evidence has beside the steps.

    hosts   rank -> host
    last    rank -> its last line of a log, as {file, line, text}
    texts   (source, line) of a step -> the text of that line
    since   (group, seq) -> the time of day at which the wait began, as it stands in the log
    """

    hosts: Mapping[int, str] = field(default_factory=dict)
    last: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    texts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    since: Mapping[tuple[str, int], str] = field(default_factory=dict)


def waited_for_row(answer: WaitedFor, beside: Beside | None = None) -> dict[str, Any] | None:
    """The row, None where nobody waits. Ranks are folded: {count: 7, ranks: 0-4,6-7}."""
    beside = beside or Beside()
    of_role = (
        (AWAITED, answer.waits), (FOLLOWS, answer.follows),
        (FULL, answer.full), (DIFFERENT, answer.different),
    )  # fmt: skip
    waits: dict[tuple[str, int], dict[str, Any]] = {}
    for role, those in of_role:
        for wait in those:
            waits.setdefault((wait.group.name, wait.seq), _wait_row(role, wait, beside))
    if not waits:
        return None
    return {
        "roots": ranks_row(answer.roots),
        "named": [
            {
                "rank": rank,
                "host": beside.hosts.get(rank),
                "last": dict(beside.last[rank]) if rank in beside.last else None,
            }
            for rank in (answer.roots or answer.ring)[:MOST_NAMED]
        ],
        "ring": ranks_row(answer.ring),
        "missing": ranks_row(answer.missing),
        "certainty": answer.certainty,
        "waits": sorted(waits.values(), key=lambda wait: not (answer.roots or wait["calls"])),
    }


def ranks_row(ranks: Sequence[int]) -> dict[str, Any]:
    """(0, 1, 2, 5) -> {count: 4, ranks: "0-2,5"}."""
    return {"count": len(ranks), "ranks": fold_ranks(ranks)}


def _wait_row(role: str, wait: Wait, beside: Beside) -> dict[str, Any]:
    step = next((one for one in wait.steps if one.source), None)
    line = {
        "file": step.source,
        "line": step.line or 0,
        "text": beside.texts.get((step.source, step.line or 0), ""),
    } if step else None  # fmt: skip
    return {
        "role": role,
        "group": wait.group.name,
        "size": wait.group.size or len(wait.group.members) or None,
        "operation": wait.operation,
        "seq": wait.seq,
        "waiting": ranks_row(wait.waiting),
        "behind": ranks_row([rank for rank in wait.behind if rank not in wait.reported]),
        "reported": ranks_row(wait.reported),
        "missing": ranks_row(wait.missing),
        "queued": ranks_row(wait.queued),
        "calls": [{"what": what, **ranks_row(ranks)} for what, ranks in wait.calls.items()],
        "since": beside.since.get((wait.group.name, wait.seq)),
        "line": line,
    }


def groups_of(row: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """[{name, size}] of the groups in which somebody waits."""
    sizes = {wait["group"]: wait["size"] for wait in row["waits"]} if row else {}
    return [{"name": name, "size": size} for name, size in sizes.items()]


def waited_headline(row: Mapping[str, Any]) -> str:
    """The verdict in one sentence."""
    different = _of_role(row, lambda wait: bool(wait["calls"]))
    first = next(iter(_of_role(row, lambda wait: wait["role"] == AWAITED)), None)
    if different and (first is None or not row["roots"]["count"]):
        return _differ(different[0])
    if first is not None and row["roots"]["count"]:
        one = row["roots"]["count"] == 1
        who = f"{_named(row)} {'is' if one else 'are'} waited for"
        return f"{who}: {_who_waits(first)}"
    if row["ring"]["count"]:
        return f"{in_ranks(row['ring'])} wait for each other, in different groups"
    return _who_waits(row["waits"][0], full=row["waits"][0]["role"] == FULL)


def waited_lines(row: Mapping[str, Any]) -> list[str]:
    """What stands below the headline: who waits behind, and who brought no evidence."""
    awaited = _of_role(row, lambda wait: wait["role"] == AWAITED)
    behind = [*awaited[1:], *_of_role(row, lambda wait: wait["role"] == FOLLOWS)]
    if not row["roots"]["count"]:
        waits = [_who_waits(wait) for wait in [*awaited, *behind][:2]]
        lines = [line for line in waits if line != waited_headline(row)]
        behind = [*awaited, *behind][2:]
    else:
        lines = [_where(awaited[0])] if awaited and _where(awaited[0]) else []
    lines += [f"{_groups(behind)} behind it"] if behind else []
    lines += (
        [f"without a log or dump here: {in_ranks(row['missing'])}"]
        if row["missing"]["count"]
        else []
    )
    return lines


class WaitedQuote(NamedTuple):
    """matched: what in the text shows it."""

    text: str
    file: str
    line: int
    matched: str


def waited_quotes(row: Mapping[str, Any]) -> list[WaitedQuote]:
    """The last line of each named rank, then that of the wait itself."""
    last = [
        WaitedQuote(f"last line of rank {one['rank']}: {one['last']['text']}", one["last"]["file"],
         one["last"]["line"], "")
        for one in row["named"] if one["last"]
    ]  # fmt: skip
    wait = row["waits"][0]
    first, call = wait["line"], f"SeqNum={wait['seq']}, OpType={wait['operation']}"
    shown = [WaitedQuote(first["text"], first["file"], first["line"], call)] if first else []
    return [*last[:2], *(one for one in shown if one.text)]


def in_ranks(row: Mapping[str, Any]) -> str:
    """rank 5; ranks 0-3,6; of many that do not fold, how many."""
    ranks = visible(row["ranks"], 10 * LONGEST_RANKS)
    if len(ranks) > LONGEST_RANKS:
        cut = ranks[:LONGEST_RANKS].rpartition(",")[0]
        return f"ranks {cut} and others, {counted(row['count'], 'rank')}"
    return f"rank {ranks}" if row["count"] == 1 else f"ranks {ranks}"


def _of_role(row: Mapping[str, Any], keep: Any) -> list[Mapping[str, Any]]:
    return [wait for wait in row["waits"] if keep(wait)]


def _named(row: Mapping[str, Any]) -> str:
    """rank 5 (gpu07)."""
    hosts = list(dict.fromkeys(visible(one["host"], 80) for one in row["named"] if one["host"]))
    return in_ranks(row["roots"]) + (f" ({listed(hosts, 2)})" if hosts else "")


def _who_waits(wait: Mapping[str, Any], full: bool = False) -> str:
    """7 of 8 ranks of mesh_tp wait in ALLREDUCE #5120 since 10:01:01."""
    count, size = wait["waiting"]["count"], wait["size"]
    who = f"{count} of {counted(size, 'rank')}" if size else counted(count, "rank")
    since = f" since {visible(wait['since'], 40)}" if wait["since"] else ""
    stand = "entered" if full else "wait in" if count != 1 else "waits in"
    left = ", and none left it" if full else ""
    group = visible(wait["group"], 60)
    return f"{who} of {group} {stand} {visible(wait['operation'], 60)} #{wait['seq']}{left}{since}"


def _where(wait: Mapping[str, Any]) -> str:
    """Why the awaited are not there, as far as the evidence shows it."""
    if wait["behind"]["count"]:
        return f"{in_ranks(wait['behind'])} of {visible(wait['group'], 60)} never called it"
    if wait["reported"]["count"]:
        return f"a line of {in_ranks(wait['reported'])} names it too, late or in another group"
    if wait["queued"]["count"] and not wait["missing"]["count"]:
        return f"{in_ranks(wait['queued'])} called it, and its GPU has other work before it"
    return ""


def _differ(wait: Mapping[str, Any]) -> str:
    calls = sorted(wait["calls"], key=lambda call: call["count"])
    shown = "; ".join(f"{in_ranks(call)} {visible(call['what'], 80)}" for call in calls[:3])
    return f"ranks of {visible(wait['group'], 60)} call different things at #{wait['seq']}: {shown}"


def _groups(waits: Iterable[Mapping[str, Any]]) -> str:
    """8 groups of mesh_dp wait, 3 groups (a, b, c) wait."""
    names = list(dict.fromkeys(visible(wait["group"], 60) for wait in waits))
    kinds = {_NUMBERS.sub("", name).strip("()[]:_- ") for name in names}
    if len(names) == 1:
        return f"{names[0]} waits"
    if len(kinds) == 1 and "" not in kinds:
        return f"{counted(len(names), 'group')} of {kinds.pop()} wait"
    return f"{counted(len(names), 'group')} ({listed(names, 3)}) wait"
