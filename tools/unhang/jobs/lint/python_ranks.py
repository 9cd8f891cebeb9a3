"""Finds collectives that only some ranks call: in a branch of one rank, after an early exit, or
skipped by a swallowed exception. Text in, values out."""

from __future__ import annotations

import ast
import re
from ast import (
    AsyncFor,
    Break,
    Call,
    Constant,
    Continue,
    ExceptHandler,
    Expr,
    For,
    If,
    Module,
    Raise,
    Return,
    Try,
    UnaryOp,
    USub,
    While,
    With,
    stmt,
)
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.jobs.lint.knowledge import Findings, listed
from unhang.jobs.lint.python_calls import (
    DEFINITIONS,
    Calls,
    Collective,
    calls_of,
    is_for_one,
    read_calls,
    walk,
)
from unhang.jobs.lint.python_devices import check_devices
from unhang.jobs.lint.python_names import (
    Lines,
    Nodes,
    Share,
    Statements,
    dotted,
    finding_at,
    last_name,
    of_kind,
    parse_python,
    read_names,
    share_of,
)
from unhang.jobs.lint.python_turns import check_turns

MOST_NODES = 100_000
MOST_PLACES = 100  # maximum number of conditions over ranks, and of `try` in loops, in one file


@dataclass(frozen=True)
class _Rest:
    """The statements of a block from a place on, and those after the block."""

    body: Statements
    start: int
    up: _Rest | None = None

    def statements(self) -> list[stmt]:
        """All these statements, in their order."""
        found: list[stmt] = []
        at: _Rest | None = self
        while at is not None:
            found += at.body[at.start :]
            at = at.up
        return found


@dataclass(frozen=True)
class _Place:
    """A statement and the statements after it. share: the ranks for which its condition is true, if
    it has one over ranks. rest: in the function, including a loop's next turn.
    turn: in this turn of the innermost loop. loop: that loop's body."""

    statement: Any
    share: Share | None
    rest: _Rest
    turn: _Rest
    loop: Statements | None


@dataclass(frozen=True)
class _Suspect:
    """A collective that only the ranks of a share call. test: the line of the condition."""

    collective: Collective
    share: Share
    test: int


def check_python(text: str) -> Findings:
    """The findings of one file; none if it is no Python."""
    if "rank" not in text and "process" not in text and "torch" not in text:
        return
    tree = parse_python(text)
    nodes = list(ast.walk(tree)) if tree is not None else []
    if tree is None or len(nodes) > MOST_NODES:
        return
    calls = read_calls(nodes, read_names(nodes))
    lines = text.splitlines()
    suspects: list[_Suspect] = []
    telling: list[_Place] = []
    for block, one_rank in _blocks(tree, nodes):
        if one_rank:
            suspects += [
                _Suspect(one, Share("rank", "0", True), one.line) for one in calls.inside(block)
            ]
        else:
            telling += _telling(block, calls)
    for place in telling[:MOST_PLACES]:
        suspects += _in_branch(place, calls)
        yield from _exits(place, calls, lines)
        yield from _swallowed(place, calls, lines)
    yield from _in_words(_unpaired(suspects[:MOST_PLACES]), lines)
    yield from check_devices(nodes, calls, lines)
    yield from check_turns(nodes, calls, lines)


def _blocks(tree: Module, nodes: Nodes) -> Iterator[tuple[Statements, bool]]:
    """(statements, whether only one rank runs them) of the file and of each function and class."""
    yield tree.body, False
    yield from ((node.body, is_for_one(node)) for node in of_kind(nodes, DEFINITIONS))


def _telling(block: Statements, calls: Calls) -> Iterator[_Place]:
    """The statements of a function that distinguish ranks, or may keep a rank from a collective."""
    waiting: list[tuple[Statements, _Rest | None, _Rest | None, Statements | None]] = [
        (block, None, None, None)
    ]
    while waiting:
        body, up, turn, loop = waiting.pop()
        for at, statement in enumerate(body):
            if isinstance(statement, DEFINITIONS):
                continue
            tested = statement.test if isinstance(statement, (If, While)) else None
            share = share_of(tested, calls.names) if tested else None
            rest, rest_of_turn = _Rest(body, at + 1, up), _Rest(body, at + 1, turn)
            if share or isinstance(statement, Try):
                yield _Place(statement, share, rest, rest_of_turn, loop)
            if isinstance(statement, (For, AsyncFor, While)):
                inner = statement.body
                waiting.append((inner, _Rest(inner, 0, rest), None, inner))
                waiting.append((statement.orelse, rest, rest_of_turn, loop))
                continue
            parts = [getattr(statement, name, ()) for name in ("body", "orelse", "finalbody")]
            parts += [
                part.body for name in ("handlers", "cases") for part in getattr(statement, name, ())
            ]
            waiting += [(part, rest, rest_of_turn, loop) for part in parts if part]


def _in_branch(place: _Place, calls: Calls) -> Iterator[_Suspect]:
    """The collectives in a branch over ranks that the other ranks do not call."""
    node, share = place.statement, place.share
    if share is None:
        return
    here, there = node.body, _next_branch(node.orelse, calls)
    inside, outside = calls.inside(here), calls.inside(there)
    if inside and outside and (_beyond(inside, outside) or _beyond(outside, inside)):
        if any(one.inner for one in (*inside, *outside)):
            return  # two roles of one protocol, such as send and receive
    elif (not inside and calls.may_take_part(here)) or (
        not outside and there and calls.may_take_part(there)
    ):
        return
    rest = _leaving(here, place)
    after = [*outside, *calls.inside(rest or ())]
    yield from (_Suspect(one, share, node.lineno) for one in _beyond(inside, after))
    if rest is None:
        surplus = _beyond(outside, inside)
        yield from (_Suspect(one, share.others(), node.lineno) for one in surplus)


def _beyond(some: Sequence[Collective], others: Sequence[Collective]) -> list[Collective]:
    """Those of a kind that is more often among some than among others."""
    more = Counter(one.kind for one in some) - Counter(one.kind for one in others)
    return [one for one in some if more[one.kind]]


def _next_branch(orelse: Statements, calls: Calls) -> Statements:
    """The branch of the other ranks; for `elif rank == 1: ... else: ...` the first part, which is
    compared with the second separately."""
    chained = orelse[0] if len(orelse) == 1 else None
    return (
        chained.body
        if isinstance(chained, If) and chained.orelse and share_of(chained.test, calls.names)
        else orelse
    )


def _leaving(block: Statements, place: _Place) -> Statements | None:
    """The statements with which the other ranks continue, if a block ends by leaving the function,
    the loop or the turn; else None."""
    last = block[-1] if block else None
    if isinstance(last, Return) or _exit_of(last):
        return place.rest.statements()
    if isinstance(last, Continue) and place.loop is not None:
        return place.turn.statements()
    return place.loop if isinstance(last, Break) else None


def _exit_of(statement: stmt | None) -> Call | None:
    """The call by which a statement ends the process."""
    call = statement.value if isinstance(statement, Expr) else None
    return call if isinstance(call, Call) and dotted(call.func) in listed("exits") else None


def _exits(place: _Place, calls: Calls, lines: Lines) -> Findings:
    """Some ranks leave, and the others continue to a collective."""
    node, share = place.statement, place.share
    if share is None or not isinstance(node, If):
        return
    mine = calls.inside(node.body)
    for leaving, narrowed in _leavings(node.body):
        rest = _leaving([leaving], place)
        if rest is None or _fails(leaving):  # after a failure the launcher ends the other ranks
            continue
        after = calls.always(rest) if share.narrowed or narrowed else calls.inside(rest)
        theirs = [
            one
            for one in [*calls.inside(node.orelse), *after]
            if not one.only_if and (place.loop is not None or one.kind != "backward")
        ]
        first = next(iter(_beyond(theirs, mine)), None)
        if first is None or (mine and first.inner):
            continue
        who = _who(share)
        yield finding_at(lines, leaving.lineno, "exits", who=who, test=node.lineno, call=first)
        return


def _fails(leaving: stmt) -> bool:
    """Whether a process leaves with an exit code or a value for failure."""
    value = leaving.value if isinstance(leaving, Return) else None
    if (call := _exit_of(leaving)) and call.args:
        return not (isinstance(call.args[0], Constant) and not call.args[0].value)
    return isinstance(value, UnaryOp) and isinstance(value.op, USub)


def _leavings(block: Statements) -> Iterator[tuple[stmt, bool]]:
    """(statement that leaves, whether under a further condition) of a branch; a loop inside of it
    keeps its own `break` and `continue`."""
    waiting: list[tuple[stmt, bool]] = [(one, False) for one in reversed(block)]
    while waiting:
        node, narrowed = waiting.pop()
        if isinstance(node, (Return, Continue, Break, Expr)):
            yield node, narrowed
        elif isinstance(node, (If, With)):
            inner = [*node.body, *getattr(node, "orelse", ())]
            waiting += [(one, narrowed or isinstance(node, If)) for one in reversed(inner)]


def _swallowed(place: _Place, calls: Calls, lines: Lines) -> Findings:
    """An exception takes one rank past collectives that the others call alone, and it goes on to
    the next turn of a loop, or to a later collective."""
    node = place.statement
    if not isinstance(node, Try) or (
        place.loop is None and not calls.always(place.rest.statements())
    ):
        return
    inside = calls.surely(node.body)
    around = [call for one in walk(place.loop or node.body) for call in calls_of(one)]
    is_step = any(last_name(call) == "step" for call in around)  # of an optimizer
    if not is_step and all(one.kind == "backward" and not one.inner for one in inside):
        return  # a gradient that nobody uses: a measurement
    if not inside or (len(list(walk(node.body))) < 2 and not inside[0].inner):
        return  # an attempt at one collective alone skips nothing
    for handler in node.handlers:
        if (
            last_name(handler.type) not in listed("swallowed")
            or calls.may_take_part(handler.body)
            or _ends_job(handler.body)
            or _asks_who(handler)
        ):
            continue
        yield finding_at(lines, handler.lineno, "swallowed", call=inside[0])
        return


def _ends_job(block: Statements) -> bool:
    """Whether a block always raises, returns or exits."""
    last = block[-1] if block else None
    if isinstance(last, If) and last.orelse:
        return _ends_job(last.body) and _ends_job(last.orelse)
    return isinstance(last, (Raise, Return)) or _exit_of(last) is not None


def _asks_who(handler: ExceptHandler) -> bool:
    """Whether the handler tests the exception and raises it again, except a certain one that is no
    memory error."""
    raises = any(isinstance(one, Raise) for one in walk(handler.body))
    return raises and not any(
        "memory" in str(node.value).lower()
        for one in handler.body
        for node in ast.walk(one)
        if isinstance(node, Constant)
    )


def _unpaired(suspects: Sequence[_Suspect]) -> list[_Suspect]:
    """The suspects without a counterpart: if one rank waits before a piece of work and the others
    after it, each calls a barrier once."""
    left = list(dict.fromkeys(suspects))
    for one in tuple(left):
        partner = next(
            (
                two
                for two in left
                if one in left
                and two.share == one.share.others()
                and two.collective.kind == one.collective.kind
            ),
            None,
        )
        if partner is not None:
            left = [two for two in left if two not in (one, partner)]
    return left


def _in_words(suspects: Sequence[_Suspect], lines: Lines) -> Findings:
    for one in suspects:
        call, who = one.collective, _who(one.share)
        inside = f" (it makes {call.kind}, line {call.inner})" if call.inner else ""
        of = "forward" if call.kind == "forward" else "save"
        key = f"{of}_on_some_ranks" if call.only_if else "on_some_ranks"
        yield finding_at(lines, call.line, key, who=who, test=one.test, call=call, inside=inside)


def _who(share: Share) -> str:
    if share.key.startswith((">", ">=")):
        order, _, bound = share.key.partition(" ")
        which = share.key if share.taken else f"{'<' if order == '>=' else '<='} {bound}"
        return f"ranks with {share.of} {which}"
    first = share.key.strip("'\"") == "0" or re.search(r"[A-Za-z_]0$", share.key)
    if first and share.of in ("rank", "local rank"):
        return f"ranks with {share.of} {'0' if share.taken else 'other than 0'}"
    return f"ranks with {share.of} {'equal to' if share.taken else 'other than'} {share.key}"
