"""Loops and branches of a Python script in which a rank goes by what is its own: its share of data,
its loss, its clock. Syntax tree in, findings out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.python_calls import Calls, Collective, calls_of, walk
from unhang.jobs.lint.python_names import (
    Names,
    dotted,
    finding_at,
    last_name,
    line_of,
    rank_of,
    share_of,
)

JOIN = "https://docs.pytorch.org/tutorials/advanced/generic_join.html"
SOURCE = "https://docs.pytorch.org/docs/stable/distributed.html"
MOST_PLACES = 100
_EVENED = (
    "join(",
    "Join(",
    "drop_last=True",
    "DistributedSampler",
    "even_batches",
    "cycle(",
    "islice(",
    "ReduceOp.MIN",
)
_WRAPPERS = frozenset(
    (
        "enumerate",
        "tqdm",
        "DataLoader",
        "iter",
        "zip",
        "trange",
        "prepare",
        "TensorDataset",
        "list",
        "Subset",
    )
)
_OWN = {"isnan": "its own numbers", "isinf": "its own numbers", "isfinite": "its own numbers"}
_BATCH = frozenset(
    (
        "batch",
        "inputs",
        "labels",
        "targets",
        "images",
        "samples",
        "sample",
        "input_ids",
        "pixel_values",
    )
)
_CLOCKS = {("time", "time"), ("time", "monotonic"), ("time", "perf_counter")}
# names of values that ranks have in common
_SHARED = ("reduc", "mean", "avg", "average", "gather", "global", "all_", "total", "norm", "sync")


def check_turns(
    nodes: Sequence[ast.AST], calls: Calls, text: str, lines: Sequence[str]
) -> Iterator[Finding]:
    """The findings of a file. nodes: the whole tree."""
    held = {
        dotted(one): node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for one in node.targets
        if dotted(one)
    }
    loops = [node for node in nodes if isinstance(node, (ast.For, ast.AsyncFor))]
    for loop in loops[:MOST_PLACES]:
        made = [one for one in calls.inside(loop.body) if not one.only_if]
        if not made:
            continue
        if (
            not any(word in text for word in _EVENED)
            and (at := _parted_at(loop.iter, held, calls.names)) is not None
        ):
            yield _uneven(loop, at, made[0], lines)
        yield from _set_order(loop, held, made[0], lines)
        yield from _decided(loop, calls, lines)


def _uneven(
    loop: ast.For | ast.AsyncFor, at: int, first: Collective, lines: Sequence[str]
) -> Finding:
    turn = f"each iteration runs {first.text} of line {first.line}"
    why = (
        f"the number of iterations depends on the rank ({line_of(lines, at)}), and {turn}: ranks"
        " with more iterations wait in their last one"
    )
    instead = (
        "cut all shares to the length of the shortest, or use DistributedSampler(drop_last=True),"
        " or model.join() around the loop"
    )
    return finding_at(lines, loop.lineno, "uneven-shards", "warning", why, instead, JOIN)


def _parted_at(iterated: ast.AST, held: Mapping[str, ast.AST], names: Names) -> int | None:
    """The line that makes what is iterated over depend on the rank: data[rank::size],
    data.shard(size, rank), `a if rank == 0 else b`, range(rank, ...)."""
    for _ in range(6):
        if isinstance(iterated, ast.IfExp):
            differs = share_of(iterated.test, names) is not None and not any(
                isinstance(one, ast.Call) for one in ast.walk(iterated)
            )
            return iterated.lineno if differs else None
        if (
            isinstance(iterated, ast.Subscript)
            and isinstance(iterated.slice, ast.Slice)
            and iterated.slice.lower is not None
        ):
            return (
                iterated.lineno
                if rank_of(iterated.slice.lower, names) == "rank"
                and iterated.slice.step is not None
                else None
            )
        if isinstance(iterated, ast.Call) and last_name(iterated.func) == "shard":
            given = [*iterated.args, *(one.value for one in iterated.keywords)]
            return iterated.lineno if any(rank_of(one, names) == "rank" for one in given) else None
        if (
            isinstance(iterated, ast.Call)
            and last_name(iterated.func) == "range"
            and len(iterated.args) == 3
            and rank_of(iterated.args[0], names) == "rank"
        ):
            return iterated.lineno
        if (
            isinstance(iterated, ast.Call)
            and (last_name(iterated.func) in _WRAPPERS or last_name(iterated.func) == "range")
            and iterated.args
        ):
            iterated = iterated.args[
                0 if last_name(iterated.func) != "range" or len(iterated.args) == 1 else 1
            ]
        elif dotted(iterated) in held:
            iterated = held[dotted(iterated)]
        else:
            return None
    return None


def _set_order(
    loop: ast.For | ast.AsyncFor,
    held: Mapping[str, ast.AST],
    first: Collective,
    lines: Sequence[str],
) -> Iterator[Finding]:
    """Collectives in the order of a set: of strings it differs from process to process."""
    iterated = (
        held.get(dotted(loop.iter), loop.iter) if isinstance(loop.iter, ast.Name) else loop.iter
    )
    is_set = isinstance(iterated, (ast.Set, ast.SetComp)) or (
        isinstance(iterated, ast.Call) and dotted(iterated.func) in ("set", "frozenset")
    )
    if is_set:
        why = (
            "the order of a set of strings differs between processes, and each iteration runs"
            f" {first.text} of line {first.line}"
        )
        yield finding_at(
            lines, loop.lineno, "decided-by-each-rank", "info", why, "sorted(...)", SOURCE
        )


def _decided(loop: ast.For | ast.AsyncFor, calls: Calls, lines: Sequence[str]) -> Iterator[Finding]:
    """A branch on a rank's own loss or clock that leaves the turn, or that holds a collective."""
    for node in walk(loop.body):
        if not isinstance(node, ast.If):
            continue
        leaves = bool(node.body) and isinstance(node.body[-1], (ast.Continue, ast.Break))
        by = _own(node.test) or (_own_batch(node.test) if leaves else None)
        if by is None:
            continue
        inside = [one for one in calls.inside(node.body) if not one.only_if]
        after = [
            one for one in calls.inside(loop.body) if one.line > node.lineno and not one.only_if
        ]
        if (inside and not node.orelse) or (leaves and after and not inside):
            first = (inside or after)[0]
            why = (
                f"each rank decides by {by}, and {first.text} of line {first.line} waits for all"
                " ranks"
            )
            yield finding_at(
                lines,
                node.lineno,
                "decided-by-each-rank",
                "info",
                why,
                "let all ranks make the same decision: all_reduce or broadcast the flag first",
                SOURCE,
            )
            return


def _own(test: ast.expr) -> str | None:
    """What a condition goes by, where that is a rank's own: a clock, or a loss that may be NaN on
    one rank; None where names say that the value is shared."""
    names = [
        last_name(one).lower()
        for one in ast.walk(test)
        if isinstance(one, (ast.Name, ast.Attribute))
    ]
    for call in calls_of(test):
        name = last_name(call.func)
        if name in _OWN and not any(word in one for one in names for word in _SHARED):
            return _OWN[name]
        if tuple(dotted(call.func).split(".")) in _CLOCKS:
            return "its own clock"
    return None


def _own_batch(test: ast.expr) -> str | None:
    """What a branch that leaves the turn goes by, where that is a rank's own batch or the loss of
    it."""
    names = [
        last_name(one).lower()
        for one in ast.walk(test)
        if isinstance(one, (ast.Name, ast.Attribute))
    ]
    if any(word in one for one in names for word in _SHARED) or not isinstance(
        test, (ast.Compare, ast.UnaryOp)
    ):
        return None
    return (
        "its own loss"
        if any("loss" in one for one in names)
        else "its own batch"
        if _BATCH & set(names)
        else None
    )
