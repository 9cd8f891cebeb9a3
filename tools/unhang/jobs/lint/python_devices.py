"""Which GPU a Python script takes. Syntax tree in, findings out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.python_calls import Calls, calls_of, walk
from unhang.jobs.lint.python_names import (
    Names,
    dotted,
    finding_at,
    last_name,
    line_of,
    rank_of,
    variable_read,
)

SET_DEVICE = "https://docs.pytorch.org/docs/stable/distributed.html"
_MAIN = "__main__"  # mark of a script
_TESTED = re.compile(
    r"^(?:import|from) (?:pytest|unittest)\b|world_size\s{0,2}=\s{0,2}1\b", re.MULTILINE
)
# by convention, or of torch itself
_CHOOSING = (
    "set_device",
    "init_device_mesh",
    "get_device",
    "setup_device",
    "init_distributed_mode",
)
_CHOSEN_FOR_IT = ("accelerator", "fabric", "trainer", "engine")


def check_devices(
    nodes: Sequence[ast.AST], calls: Calls, text: str, lines: Sequence[str]
) -> Iterator[Finding]:
    """The findings about GPUs. nodes: the whole tree."""
    made = [node for node in nodes if isinstance(node, ast.Call)]
    starts = [
        one for one in made if last_name(one.func) == "init_process_group" and _is_nccl(one, nodes)
    ]
    if (
        _start_job(starts, nodes, text)
        and not _chooses(made, calls.names, text)
        and (taken := _takes_default(made)) is not None
    ):
        why = (
            f"no process chooses a GPU: {line_of(lines, taken)!r} in line {taken} means GPU 0 for"
            " every rank of a node"
        )
        instead = (
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before it, or'
            " init_process_group(device_id=...)"
        )
        yield finding_at(
            lines, starts[0].lineno, "no-set-device", "warning", why, instead, SET_DEVICE
        )
    taking = (one for one in nodes if isinstance(one, (ast.Call, ast.JoinedStr)))
    taken_by_global = (
        one.lineno
        for one in taking
        if any(_is_global(index, nodes, calls.names) for index in _indexes(one))
    )
    if (line := min(taken_by_global, default=None)) is not None:
        why = (
            "the global rank is not the index of a GPU: on the second node it is larger than the"
            " number of GPUs"
        )
        yield finding_at(
            lines,
            line,
            "device-by-global-rank",
            "info",
            why,
            'the local rank: int(os.environ["LOCAL_RANK"])',
            SET_DEVICE,
        )


def _start_job(starts: Sequence[ast.Call], nodes: Sequence[ast.AST], text: str) -> bool:
    """Whether these calls are a script's, or made outside of functions, and no test's; a module of
    functions leaves the choice of the GPU to its caller."""
    at_once = {
        call
        for module in nodes
        if isinstance(module, ast.Module)
        for one in walk(module.body)
        for call in calls_of(one)
    }
    return (
        bool(starts)
        and (_MAIN in text or not at_once.isdisjoint(starts))
        and not _TESTED.search(text)
    )


def _indexes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node takes as the index of a GPU: set_device(X), device("cuda", X), f"cuda:{X}",
    device_ids=[X]."""
    if isinstance(node, ast.Call):
        yield from node.args[:1] if last_name(node.func) == "set_device" else ()
        yield from node.args[1:2] if last_name(node.func) == "device" else ()
        for given in (
            one.value for one in node.keywords if one.arg in ("device_ids", "output_device")
        ):
            yield from given.elts[:1] if isinstance(given, ast.List) else (given,)
    elif (
        isinstance(node, ast.JoinedStr)
        and len(node.values) == 2
        and isinstance(node.values[1], ast.FormattedValue)
    ):
        head = node.values[0]
        yield from (
            (node.values[1].value,)
            if isinstance(head, ast.Constant) and head.value == "cuda:"
            else ()
        )


def line_of_local_device(nodes: Sequence[ast.AST], names: Names) -> int | None:
    """The line in which a script selects the GPU of its local rank, or None."""
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in ("set_device", "device", "cuda"):
            if any(
                rank_of(one, names) == "local rank"
                for one in (*node.args, *(key.value for key in node.keywords))
            ):
                return node.lineno
        elif isinstance(node, ast.JoinedStr) and any(
            rank_of(one, names) == "local rank" for one in _indexes(node)
        ):
            return node.lineno
    return None


def _is_nccl(call: ast.Call, nodes: Sequence[ast.AST]) -> bool:
    """Whether the backend is NCCL, by its name, as an attribute, or in what its variable is set
    to."""
    given: list[ast.AST] = [
        *call.args[:1],
        *(one.value for one in call.keywords if one.arg == "backend"),
    ]
    names = {one.id for one in given if isinstance(one, ast.Name)}
    given += [
        one.value
        for one in nodes
        if isinstance(one, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in names for target in one.targets)
    ]
    parts = [part for one in given for part in ast.walk(one)]
    return any(
        "nccl"
        in str(
            getattr(part, "value", "")
            if isinstance(part, ast.Constant)
            else getattr(part, "attr", "")
        ).lower()
        for part in parts
    )


def _chooses(made: Sequence[ast.Call], names: Names, text: str) -> bool:
    """Whether the script selects a GPU for each process."""
    if (
        "CUDA_VISIBLE_DEVICES" in text
        or "cuda:" in text
        or any(kind in _CHOSEN_FOR_IT for kind in names.kinds.values())
    ):
        return True
    for call in made:
        name = last_name(call.func)
        if name in _CHOOSING or any(
            one.arg in ("device_id", "device_ids") and not isinstance(one.value, ast.Constant)
            for one in call.keywords
        ):
            return True
        if (name == "cuda" and (call.args or call.keywords)) or (
            name == "device" and len(call.args) + len(call.keywords) > 1
        ):
            return True
        if (
            name in ("to", "device")
            and call.args
            and not isinstance(call.args[0], ast.Constant)
            and rank_of(call.args[0], names)
        ):
            return True
    return False


def _takes_default(made: Sequence[ast.Call]) -> int | None:
    """The line that uses the current GPU without an index."""
    for call in made:
        name, given = (
            last_name(call.func),
            [*call.args[:1], *(one.value for one in call.keywords if one.arg == "device")],
        )
        is_plain = any(isinstance(one, ast.Constant) and one.value == "cuda" for one in given)
        if (
            name == "cuda"
            and isinstance(call.func, ast.Attribute)
            and not call.args
            and not call.keywords
            and dotted(call.func.value) != "torch"
        ) or is_plain:
            return call.lineno
    return None


def _is_global(index: ast.AST, nodes: Sequence[ast.AST], names: Names) -> bool:
    """Whether the index is the rank in the whole job: read here, or in the only assignment of the
    variable."""
    if isinstance(index, (ast.Name, ast.Attribute)):
        held = [
            node.value
            for node in nodes
            if isinstance(node, ast.Assign)
            and any(dotted(one) == dotted(index) != "" for one in node.targets)
        ]
        parameters = {
            one.arg
            for node in nodes
            if isinstance(node, ast.arguments)
            for one in (*node.args, *node.kwonlyargs)
        }
        return (
            len(held) == 1
            and dotted(index) not in parameters
            and not isinstance(held[0], (ast.Name, ast.Attribute))
            and _is_global(held[0], nodes, names)
        )
    inner = (
        index.args[0]
        if isinstance(index, ast.Call) and last_name(index.func) == "int" and index.args
        else index
    )
    is_read = variable_read(inner) in ("RANK", "SLURM_PROCID") or (
        isinstance(inner, ast.Call) and last_name(inner.func) == "get_rank"
    )
    return is_read and rank_of(inner, names) == "rank"
