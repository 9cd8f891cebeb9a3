"""Finds collective calls in a Python file: of torch.distributed, of libraries above it, and of
functions of the file itself that make them. Values in, values out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unhang.jobs.lint.python_names import (
    COLLECTIVES,
    Names,
    dotted,
    is_several,
    kind_of_variable,
    last_name,
    share_of,
)

MOST_ROUNDS = 6
MOST_OF_FUNCTION = 40
# Methods that every rank must call, by the kind of the variable; _SHARDED: only if the model is
# sharded (FSDP, ZeRO).
_METHODS = {
    "accelerator": frozenset(("wait_for_everyone", "gather", "gather_for_metrics", "reduce",
    "pad_across_processes", "main_process_first",
        "local_main_process_first")),
    "fabric": frozenset(("barrier", "all_gather", "all_reduce", "broadcast", "save", "backward")),
    "trainer": frozenset(("fit", "train", "evaluate", "predict", "validate", "test",
    "save_checkpoint")),
    "engine": frozenset(("backward", "step", "save_checkpoint", "save_16bit_model",
    "load_checkpoint", "train_batch", "eval_batch")),
    "fsdp": frozenset(("state_dict", "clip_grad_norm_")),
}  # fmt: skip
_SHARDED = {
    "accelerator": frozenset(("save_state", "get_state_dict", "save_model")),
    "trainer": frozenset(("save_model",)),
}
SHARDED = "the model is sharded (FSDP, ZeRO)"
# The call of a wrapped model: DDP broadcasts buffers, ZeRO 3 gathers parameters.
_FORWARD = {
    "fsdp": "",
    "ddp": "the model has buffers, such as batch norm's",
    "engine": "ZeRO shards parameters (stage 3)",
}
_OF_STATE = frozenset(
    (
        "optim_state_dict",
        "full_optim_state_dict",
        "sharded_optim_state_dict",
        "get_model_state_dict",
        "get_optimizer_state_dict",
        "GatheredParameters",
    )
)
_SUBGROUPS = ("group", "pg", "mesh", "comm")
# names of functions of other files that may contain collectives
_PART = re.compile(r"(?i)_ranks?(?:_|$)|worker|follow|_loop|listen|recv|receive")
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_WRAPPERS = frozenset(
    (
        "Accelerator",
        "Fabric",
        "FSDP",
        "FullyShardedDataParallel",
        "DDP",
        "DistributedDataParallel",
        "fully_shard",
    )
)
# what a file calls that trains on all ranks, and has its model wrapped by another file
_TOGETHER = frozenset(("init_process_group", "backward", "step"))
# ranks that have stages of a model, and not all of it
_BETWEEN_TWO = frozenset(("send", "recv", "isend", "irecv", "batch_isend_irecv", "rpc_async"))
FIRST_ONLY = frozenset(
    (
        "rank_zero_only",
        "on_main_process",
        "on_local_main_process",
        "main_process_only",
        "master_only",
        "only_rank_zero",
        "rank0_only",
    )
)


@dataclass(frozen=True)
class Collective:
    """A call that all ranks must make. kind: its name. text: its name for people. only_if: the
    condition on the model under which all must make it. inner: the line of the collective if `line`
    calls a function that makes it; 0 if `line` makes it."""

    kind: str
    text: str
    line: int
    only_if: str = ""
    inner: int = 0


@dataclass(frozen=True)
class Calls:
    """The collectives behind the calls of one file. functions: name -> the collectives that it
    always makes. touched: functions that may make some. trains: whether a model is wrapped. shards:
    whether the file names FSDP or DeepSpeed."""

    names: Names
    functions: Mapping[str, Sequence[Collective]]
    touched: frozenset[str]
    trains: bool
    shards: bool

    def of(self, statement: ast.AST) -> list[Collective]:
        """The collectives of a statement, without those of the statements inside it."""
        return [one for call in calls_of(statement) for one in self.of_call(call)]

    def of_call(self, call: ast.Call) -> Sequence[Collective]:
        """The collectives of one call."""
        direct = collective_of(call, self.names, shards=self.shards, trains=self.trains)
        return (
            [direct]
            if direct
            else [replace(one, line=call.lineno) for one in self.functions.get(_own_name(call), ())]
        )

    def inside(self, statements: Sequence[ast.stmt]) -> list[Collective]:
        """All collectives of a block, including nested statements."""
        return [one for statement in walk(statements) for one in self.of(statement)]

    def always(self, statements: Sequence[ast.stmt]) -> list[Collective]:
        """The collectives of a block that do not depend on a further condition."""
        return [one for statement in walk(statements, branches=False) for one in self.of(statement)]

    def may_take_part(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether a block contains collectives, or calls a function that may make some: one of this
        file, or one whose name suggests it."""
        return any(
            self.of_call(call)
            or _own_name(call) in self.touched
            or _PART.search(last_name(call.func))
            for one in walk(statements)
            for call in calls_of(one)
        )


def walk(statements: Sequence[ast.AST], *, branches: bool = True) -> Iterator[ast.AST]:
    """Statements and those inside of them, in their order, without functions and classes that they
    define; or without branches of conditions as well."""
    waiting = list(reversed(statements))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield node
        if not branches and isinstance(node, ast.If) and not is_several(node.test):
            continue
        inner = [
            one
            for field in _BLOCKS
            for one in (getattr(node, field, None) or ())
            if isinstance(one, (ast.stmt, ast.excepthandler, ast.match_case))
        ]
        waiting.extend(reversed(inner))


def calls_of(statement: ast.AST) -> Iterator[ast.Call]:
    """The calls in the expressions of a statement, without those in a lambda, which are made
    elsewhere."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        waiting.extend(
            one for one in ast.iter_child_nodes(node) if not isinstance(one, (ast.stmt,
            ast.excepthandler, ast.match_case, ast.Lambda))
        )  # fmt: skip


def collective_of(call: ast.Call, names: Names, *, shards: bool, trains: bool) -> Collective | None:
    """The collective that a call makes by itself; None for other calls, and for calls on a group of
    some ranks."""
    function, last = call.func, last_name(call.func)
    owner = dotted(function.value) if isinstance(function, ast.Attribute) else ""
    if _is_of_distributed(function, owner, last, names):
        kind = names.functions.get(last, last)
        return (
            None
            if _names_group(call, kind)
            else Collective(kind, f"{dotted(function)}()", call.lineno)
        )
    if last in _OF_STATE:
        return Collective(last, f"{dotted(function) or last}()", call.lineno)
    variable = (
        kind_of_variable(function.value, names) if isinstance(function, ast.Attribute) else ""
    )
    if last in _METHODS.get(variable, ()):
        return Collective(last, f"{owner}.{last}()", call.lineno)
    if last in _SHARDED.get(variable, ()):
        return Collective(last, f"{owner}.{last}()", call.lineno, "" if shards else SHARDED)
    wrapped = kind_of_variable(function, names)
    if wrapped in _FORWARD:
        return Collective("forward", f"{dotted(function)}()", call.lineno, _FORWARD[wrapped])
    if last == "backward" and trains and owner.rpartition(".")[2] not in ("ctx", "manager"):
        return Collective("backward", f"{owner or '...'}.backward()", call.lineno)
    return None


def _is_of_distributed(function: ast.AST, owner: str, last: str, names: Names) -> bool:
    if isinstance(function, ast.Name):
        return last in names.functions
    return last in COLLECTIVES and owner in names.modules


def _names_group(call: ast.Call, kind: str) -> bool:
    """Whether the call is on a group of some ranks, so that only its members make it."""
    if kind in ("new_group", "init_device_mesh"):
        return False
    keyword = next(
        (one.value for one in call.keywords if one.arg in ("group", "process_group", "pg")), None
    )
    if keyword is not None:
        return last_name(keyword).upper() != "WORLD" and not (
            isinstance(keyword, ast.Constant) and keyword.value is None
        )
    words = [last_name(one.func if isinstance(one, ast.Call) else one).lower() for one in call.args]
    return any(part in word for word in words for part in _SUBGROUPS)


def _own_name(call: ast.Call) -> str:
    """The name by which a function of this file is called: f of f(...), self.f of self.f(...)."""
    if isinstance(call.func, ast.Name):
        return call.func.id
    return (
        f"self.{call.func.attr}"
        if isinstance(call.func, ast.Attribute) and dotted(call.func.value) in ("self", "cls")
        else ""
    )


def read_calls(nodes: Sequence[ast.AST], names: Names, text: str) -> Calls:
    """The Calls of a file. nodes: all nodes of its tree. text: the file."""
    lowered = text.lower()
    shards = any(
        word in lowered
        for word in ("fsdp", "fullysharded", "fully_shard", "deepspeed", "zero3", "zero_3")
    )
    called = {last_name(node.func) for node in nodes if isinstance(node, ast.Call)}
    trains = bool(called & _WRAPPERS) or "engine" in names.kinds.values()
    trains = trains or (called >= _TOGETHER and not called & _BETWEEN_TWO)
    methods = {id(one) for node in nodes if isinstance(node, ast.ClassDef) for one in node.body}
    defined: dict[str, ast.AST] = {}
    twice = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"self.{node.name}" if id(node) in methods else node.name
            twice |= {name} & defined.keys()
            defined[name] = node
    known = Calls(names, {}, frozenset(), trains, shards)
    for _ in range(MOST_ROUNDS):
        found = {
            name: made
            for name, node in defined.items()
            if name not in twice and not _is_for_one(node) and (made := _always_made(node, known))
        }
        touched = frozenset(
            name
            for name, node in defined.items()
            if known.may_take_part(node.body)  # type: ignore[attr-defined]
        )
        if found.keys() == known.functions.keys() and touched == known.touched:
            break
        known = Calls(names, found, touched, trains, shards)
    return known


def _is_for_one(function: ast.AST) -> bool:
    """Whether a decorator lets only one rank run the function."""
    marks = getattr(function, "decorator_list", ())
    return any(
        last_name(one.func if isinstance(one, ast.Call) else one) in FIRST_ONLY for one in marks
    )


def _always_made(function: ast.AST, known: Calls) -> list[Collective]:
    """The collectives that a function makes whenever a rank of a distributed job calls it."""
    made: list[Collective] = []
    waiting: list[ast.AST] = list(reversed(function.body))  # type: ignore[attr-defined]
    while waiting and len(made) < MOST_OF_FUNCTION:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.If):
            if is_several(node.test):
                waiting.extend(reversed(node.body))
            elif _leaves_some(node, known):
                break
            continue
        name = f"{function.name}()"  # type: ignore[attr-defined]
        made += [
            Collective(one.kind, name, one.line, one.only_if, one.inner or one.line)
            for one in known.of(node)
        ]
        if isinstance(node, (ast.Return, ast.Raise)):
            break
        waiting.extend(
            reversed(
                [
                    one
                    for field in ("body", "finalbody")
                    for one in getattr(node, field, ())
                    if isinstance(one, ast.stmt)
                ]
            )
        )
    return made


def _leaves_some(node: ast.If, known: Calls) -> bool:
    """Whether a branch may leave the function in a job of several processes."""
    leaves = any(isinstance(one, (ast.Return, ast.Raise)) for one in walk(node.body))
    alone = (
        share_of(node.test, known.names) is None
        and isinstance(node.test, ast.UnaryOp)
        and is_several(node.test.operand)
    )
    return leaves and not alone
