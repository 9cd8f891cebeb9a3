"""Which GPU a Python script takes. Syntax tree in, findings out."""

from __future__ import annotations

import re
from ast import (
    AST,
    Assign,
    Attribute,
    Call,
    Constant,
    FormattedValue,
    FunctionDef,
    JoinedStr,
    List,
    Module,
    Name,
    arguments,
    keyword,
)
from collections.abc import Iterator, Sequence, Set

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
    text_of,
)

# comments and help, which are prose
_ONE_NODE = re.compile(r"(?i)single.?node|one node|nnodes=1\b")


def check_devices(nodes: Nodes, calls: Calls, lines: Lines) -> Findings:
    """The findings about GPUs. nodes: the whole tree."""
    made = list(of_kind(nodes, Call))
    starts = [
        one for one in made if last_name(one) == "init_process_group" and _is_nccl(one, nodes)
    ]
    if (
        _start_job(starts, nodes, calls.names.words)
        and not _chooses(made, calls.names)
        and (taken := _takes_default(made)) is not None
    ):
        shown = line_of(lines, taken)
        yield finding_at(lines, starts[0].lineno, "no_device", shown=shown, line=taken)
    if (late := _late_choice(starts, nodes, calls)) is not None:
        yield finding_at(lines, late[0].line, "late_device", text=late[0].text, line=late[1])
    taken_by_global = (
        one.lineno
        for one in of_kind(nodes, (Call, JoinedStr))
        if any(_is_global(index, nodes) for index in _indexes(one))
    )
    if (line := min(taken_by_global, default=None)) is not None:
        alone = calls.names.mentions("marks of one node") or any(map(_ONE_NODE.search, lines))
        yield finding_at(lines, line, "global_device_of_node" if alone else "global_device")


def _late_choice(
    starts: Sequence[Call], nodes: Nodes, calls: Calls
) -> tuple[Collective, int] | None:
    """The first collective of a block that starts NCCL, if the block chooses the GPU only after
    it."""
    for block in (getattr(one, "body", ()) for one in of_kind(nodes, (Module, FunctionDef))):
        made = [one for part in walk(block) for one in calls_of(part)]
        start = next((one for one in made if one in starts), None)
        chosen = [one.lineno for one in made if last_name(one) == "set_device"]
        if start is None or not chosen or keywords(start, "device_id"):
            continue
        first = next((one for one in calls.always(block) if one.line > start.lineno), None)
        if first and first.line < min(chosen) and not first.inner:
            return first, min(chosen)
    return None


def _start_job(starts: Sequence[Call], nodes: Nodes, words: Set[str]) -> bool:
    """Whether these calls are a script's, or made outside of functions, and no test's; a module of
    functions leaves the choice of the GPU to its caller."""
    at_once = {
        call
        for module in of_kind(nodes, Module)
        for one in walk(module.body)
        for call in calls_of(one)
    }
    return (
        bool(starts)
        and ("__main__" in words or not at_once.isdisjoint(starts))
        and words.isdisjoint(listed("libraries of tests"))
        and not any(
            text_of(one).endswith(("world_size=1", "world_size = 1"))
            for one in of_kind(nodes, (Assign, arguments, keyword))
        )
    )


def _indexes(node: AST) -> Iterator[AST]:
    """What a node takes as the index of a GPU: set_device(X), cuda(X), device("cuda", X),
    f"cuda:{X}", device_ids=[X]."""
    if isinstance(node, Call):
        name = last_name(node)
        yield from node.args[name == "device" :][:1] if name in listed("of an index") else ()
        for given in keywords(node, "device_ids", "device_id", "output_device"):
            yield from given.elts[:1] if isinstance(given, List) else (given,)
    elif isinstance(node, JoinedStr):
        head, *rest = map(text_of, node.values)
        if head == "'cuda:'" and len(rest) == 1:
            yield from (one.value for one in of_kind(node.values, FormattedValue))


def line_of_local_device(nodes: Nodes, names: Names) -> int | None:
    """The line in which a script selects the GPU of its local rank, or None."""
    return min(
        (
            int(node.lineno)
            for node in of_kind(nodes, (Call, JoinedStr))
            for one in (*_indexes(node), *(node.args if last_name(node) == "device" else ()))
            if rank_of(one, names) == "local rank"
        ),
        default=None,
    )


def _is_nccl(call: Call, nodes: Nodes) -> bool:
    """Whether the backend is NCCL, by its name, as an attribute, or in what its variable is set
    to."""
    given = [*call.args[:1], *keywords(call, "backend")]
    names = {dotted(one) for one in given}
    held = [
        one.value
        for one in of_kind(nodes, Assign)
        if names & {dotted(target) for target in one.targets} - {""}
    ]
    return any("nccl" in text_of(one).lower() for one in [*given, *held])


def _chooses(made: Sequence[Call], names: Names) -> bool:
    """Whether the script selects a GPU for each process."""
    if names.mentions("texts of a device") or not listed("choosers of a device").isdisjoint(
        names.kinds.values()
    ):
        return True
    return any(
        last_name(call) in listed("choices of a device")
        or [*_indexes(call)]
        or (last_name(call) in ("to", "device") and any(rank_of(one, names) for one in call.args))
        for call in made
    )


def _takes_default(made: Sequence[Call]) -> int | None:
    """The line that uses the current GPU without an index."""
    for call in made:
        given = [*call.args[:1], *keywords(call, "device")]
        is_bare = last_name(call) == "cuda" and not (call.args or call.keywords)
        if (is_bare and dotted(call.func) not in ("cuda", "torch.cuda")) or any(
            isinstance(one, Constant) and one.value == "cuda" for one in given
        ):
            return call.lineno
    return None


def _is_global(index: AST, nodes: Nodes) -> bool:
    """Whether the index is the rank in the whole job: read here, or in the only assignment of the
    variable."""
    if not isinstance(index, (Name, Attribute)):
        return rank_of(index, None) == "rank"
    held = [
        node.value
        for node in of_kind(nodes, Assign)
        if any(dotted(one) == dotted(index) != "" for one in node.targets)
    ]
    parameters = {
        one.arg for node in of_kind(nodes, arguments) for one in (*node.args, *node.kwonlyargs)
    }
    is_read = len(held) == 1 and rank_of(held[0], None) == "rank"
    return is_read and dotted(index) not in parameters
