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

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Findings, listed
from unhang.jobs.lint.python_calls import Calls, Collective, calls_of, walk
from unhang.jobs.lint.python_names import (
    Lines,
    Names,
    Nodes,
    dotted,
    finding_at,
    keywords,
    last_name,
    line_of,
    of_kind,
    rank_of,
    share_of,
)

MOST_PLACES = 100
# names of values that ranks have in common


def check_turns(nodes: Nodes, calls: Calls, text: str, lines: Lines) -> Findings:
    """The findings of a file. nodes: the whole tree."""
    held = {
        dotted(one): node.value
        for node in of_kind(nodes, Assign)
        for one in node.targets
        if dotted(one)
    }
    loops = list(of_kind(nodes, (For, AsyncFor, While)))
    for loop in loops[:MOST_PLACES]:
        made = [one for one in calls.inside(loop.body) if not one.only_if]
        if not made:
            continue
        yield from _decided(loop, calls, lines)
        if isinstance(loop, While):
            continue
        if (
            not any(word in text for word in listed("even shares"))
            and (at := _parted_at(loop.iter, held, calls.names)) is not None
        ):
            yield _uneven(loop, at, made[0], lines)
        yield from _set_order(loop, held, made[0], lines)


def _uneven(loop: For | AsyncFor, at: int, first: Collective, lines: Lines) -> Finding:
    at_line = line_of(lines, at)
    return finding_at(lines, loop.lineno, "uneven", at=at_line, text=first.text, line=first.line)


def _parted_at(iterated: AST, held: Mapping[str, AST], names: Names) -> int | None:
    """The line that makes what is iterated over depend on the rank: data[rank::size],
    data.shard(size, rank), `a if rank == 0 else b`, range(rank, ...)."""
    for _ in range(6):
        if isinstance(iterated, IfExp):
            differs = share_of(iterated.test, names) is not None and not any(
                isinstance(one, Call) for one in ast.walk(iterated)
            )
            return iterated.lineno if differs else None
        if (
            isinstance(iterated, Subscript)
            and isinstance(iterated.slice, Slice)
            and iterated.slice.lower is not None
        ):
            return (
                iterated.lineno
                if rank_of(iterated.slice.lower, names) == "rank"
                and iterated.slice.step is not None
                else None
            )
        if isinstance(iterated, Call) and last_name(iterated) == "shard":
            given = [*iterated.args, *keywords(iterated)]
            return iterated.lineno if any(rank_of(one, names) == "rank" for one in given) else None
        if (
            isinstance(iterated, Call)
            and last_name(iterated) == "range"
            and len(iterated.args) == 3
            and rank_of(iterated.args[0], names) == "rank"
        ):
            return iterated.lineno
        if (
            isinstance(iterated, Call)
            and (
                last_name(iterated) in listed("wrappers of data") or last_name(iterated) == "range"
            )
            and iterated.args
        ):
            iterated = iterated.args[
                0 if last_name(iterated) != "range" or len(iterated.args) == 1 else 1
            ]
        elif dotted(iterated) in held:
            iterated = held[dotted(iterated)]
        else:
            return None
    return None


def _set_order(
    loop: For | AsyncFor,
    held: Mapping[str, AST],
    first: Collective,
    lines: Lines,
) -> Findings:
    """Collectives in the order of a set: of strings it differs from process to process."""
    iterated = held.get(dotted(loop.iter), loop.iter) if isinstance(loop.iter, Name) else loop.iter
    is_set = isinstance(iterated, (Set, SetComp)) or (
        isinstance(iterated, Call) and dotted(iterated.func) in ("set", "frozenset")
    )
    if is_set:
        yield finding_at(lines, loop.lineno, "set_order", text=first.text, line=first.line)


def _decided(loop: For | AsyncFor | While, calls: Calls, lines: Lines) -> Findings:
    """A branch on a rank's own loss or clock that leaves the turn, or that holds a collective."""
    shared = set[str]()  # what a collective of this turn has made the same on all ranks
    for node in walk(loop.body):
        shared |= {
            one.id
            for call in calls_of(node)
            if any(one.kind in listed("collectives") for one in calls.of_call(call))
            for part in call.args
            for one in ast.walk(part)
            if isinstance(one, Name)
        }
        names = {one.id for one in ast.walk(getattr(node, "test", node)) if isinstance(one, Name)}
        if not isinstance(node, If) or names & shared:
            continue
        leaves = bool(node.body) and isinstance(node.body[-1], (Continue, Break))
        by = _own(node.test) or (_own_batch(node.test) if leaves else None)
        if by is None:
            continue
        inside = [one for one in calls.inside(node.body) if not one.only_if]
        after = [
            one for one in calls.inside(loop.body) if one.line > node.lineno and not one.only_if
        ]
        if (inside and not node.orelse) or (leaves and after and not inside):
            first = (inside or after)[0]
            values = {"by": by, "text": first.text, "line": first.line}
            key = "leaves_alone" if leaves and by in _GRAVE else "decided"
            yield finding_at(lines, node.lineno, key, **values)
            return


_GRAVE = ("its own loss", "its own numbers")


def _own(test: expr) -> str | None:
    """What a condition goes by, where that is a rank's own: a clock, or a loss that may be NaN on
    one rank; None where names say that the value is shared."""
    names = [last_name(one).lower() for one in ast.walk(test) if isinstance(one, (Name, Attribute))]
    for call in calls_of(test):
        name = last_name(call)
        if name in listed("tests of numbers") and not any(
            word in one for one in names for word in listed("shared values")
        ):
            return "its own numbers"
        if dotted(call.func) in listed("clocks"):
            return "its own clock"
    return None


def _own_batch(test: expr) -> str | None:
    """What a branch that leaves the turn goes by, where that is a rank's own batch or the loss of
    it."""
    names = [last_name(one).lower() for one in ast.walk(test) if isinstance(one, (Name, Attribute))]
    if any(word in one for one in names for word in listed("shared values")) or not isinstance(
        test, (Compare, UnaryOp)
    ):
        return None
    return (
        "its own loss"
        if any("loss" in one for one in names)
        else "its own batch"
        if listed("batches") & set(names)
        else None
    )
