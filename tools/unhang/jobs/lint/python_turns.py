"""Loops and branches of a Python script in which a rank goes by what is its own: its share of data,
its loss, its clock. Syntax tree in, findings out."""

from __future__ import annotations

import ast
from ast import (
    AST,
    Assign,
    AsyncFor,
    Attribute,
    Break,
    Call,
    Compare,
    Continue,
    For,
    If,
    IfExp,
    Name,
    Set,
    SetComp,
    Slice,
    Subscript,
    UnaryOp,
    While,
    expr,
)
from collections.abc import Mapping
from typing import Any

from unhang.jobs.lint.knowledge import Findings, listed
from unhang.jobs.lint.python_calls import Calls, calls_of, walk
from unhang.jobs.lint.python_names import (
    Lines,
    Names,
    Nodes,
    dotted,
    finding_at,
    keywords,
    last_name,
    line_of,
    names_in,
    of_kind,
    rank_of,
    share_of,
)

MOST_PLACES = 100
# names of values that ranks have in common


def check_turns(nodes: Nodes, calls: Calls, lines: Lines) -> Findings:
    """The findings of a file. nodes: the whole tree."""
    held = {
        dotted(one): node.value
        for node in of_kind(nodes, Assign)
        for one in node.targets
        if dotted(one)
    }
    loops = list(of_kind(nodes, (For, AsyncFor, While)))
    for loop in loops[:MOST_PLACES]:
        made = calls.surely(loop.body)
        if not made:
            continue
        yield from _decided(loop, calls, lines)
        if isinstance(loop, While):
            continue
        at = _parted_at(loop.iter, held, calls.names)
        if at is not None and calls.names.words.isdisjoint(listed("even shares")):
            yield finding_at(lines, loop.lineno, "uneven", at=line_of(lines, at), call=made[0])
        iterated = held.get(dotted(loop.iter), loop.iter)
        made_by = dotted(iterated.func) if isinstance(iterated, Call) else ""
        if isinstance(iterated, (Set, SetComp)) or made_by in ("set", "frozenset"):
            # of strings, the order of a set differs from process to process
            yield finding_at(lines, loop.lineno, "set_order", call=made[0])


def _parted_at(iterated: Any, held: Mapping[str, AST], names: Names) -> int | None:
    """The line that makes what is iterated over depend on the rank: data[rank::size],
    data.shard(size, rank), `a if rank == 0 else b`, range(rank, ...)."""
    for _ in range(6):
        is_call = isinstance(iterated, Call)
        name = last_name(iterated) if is_call else ""
        given = [*iterated.args, *keywords(iterated)] if is_call else []
        by = given if name == "shard" else given[:1] if name == "range" and len(given) > 2 else []
        if isinstance(iterated, Subscript) and isinstance(iterated.slice, Slice):
            by = [iterated.slice.lower] if iterated.slice.step else []
        is_parted = any(rank_of(one, names) == "rank" for one in by)
        if isinstance(iterated, IfExp):
            is_parted = share_of(iterated.test, names) is not None
            is_parted &= not [*of_kind(ast.walk(iterated), Call)]
        if is_parted:
            return int(iterated.lineno)
        if given and (name == "range" or name in listed("wrappers of data")):
            iterated = given[name == "range" and len(given) > 1]
        elif dotted(iterated) in held:
            iterated = held[dotted(iterated)]
        else:
            return None
    return None


def _decided(loop: For | AsyncFor | While, calls: Calls, lines: Lines) -> Findings:
    """A branch on a rank's own loss or clock that leaves the turn, or that holds a collective."""
    shared = set[str]()  # what a collective of this turn has made the same on all ranks
    for node in walk(loop.body):
        for call in calls_of(node):
            if any(one.kind in listed("collectives") for one in calls.of_call(call)):
                shared |= set().union(*map(names_in, call.args))
        if not isinstance(node, If) or names_in(node.test) & shared:
            continue
        leaves = bool(node.body) and isinstance(node.body[-1], (Continue, Break))
        by = _own(node.test, leaves=leaves)
        if by is None:
            continue
        inside = calls.surely(node.body)
        after = [one for one in calls.surely(loop.body) if one.line > node.lineno]
        if (inside and not node.orelse) or (leaves and after and not inside):
            first = (inside or after)[0]
            key = "leaves_alone" if leaves and by in _GRAVE else "decided"
            yield finding_at(lines, node.lineno, key, by=by, call=first)
            return


_GRAVE = ("its own loss", "its own numbers")


def _own(test: expr, *, leaves: bool) -> str | None:
    """What a condition goes by, where that is a rank's own: a clock, a loss that may be NaN on one
    rank, and, in a branch that leaves the turn, its batch; None where names say that the value is
    shared."""
    names = {last_name(one).lower() for one in of_kind(ast.walk(test), (Name, Attribute))}
    called = [*calls_of(test)]
    if any(dotted(call.func) in listed("clocks") for call in called):
        return "its own clock"
    if any(word in one for one in names for word in listed("shared values")):
        return None
    if any(last_name(call) in listed("tests of numbers") for call in called):
        return "its own numbers"
    if not leaves or not isinstance(test, (Compare, UnaryOp)):
        return None
    if any("loss" in one for one in names):
        return "its own loss"
    return "its own batch" if names & listed("batches") else None
