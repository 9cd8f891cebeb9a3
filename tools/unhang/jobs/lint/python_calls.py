"""Finds collective calls in a Python file: of torch.distributed, of libraries above it, and of
functions of the file itself that make them. Values in, values out."""

from __future__ import annotations

import re
from ast import (
    AST,
    AsyncFunctionDef,
    Call,
    ClassDef,
    Constant,
    FunctionDef,
    If,
    Lambda,
    Name,
    Raise,
    Return,
    UnaryOp,
    excepthandler,
    iter_child_nodes,
    match_case,
    stmt,
)
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unhang.jobs.lint.knowledge import listed
from unhang.jobs.lint.python_names import (
    Names,
    Nodes,
    Statements,
    dotted,
    is_several,
    keywords,
    kind_of_variable,
    last_name,
    of_kind,
    share_of,
    text_of,
)

MOST_ROUNDS = 6
MOST_OF_FUNCTION = 40
SHARDED = "the model is sharded (FSDP, ZeRO)"
# The call of a wrapped model: DDP broadcasts buffers, ZeRO 3 gathers parameters.
_FORWARD = {
    "fsdp": "",
    "ddp": "the model has buffers, such as batch norm's",
    "engine": "ZeRO shards parameters (stage 3)",
}
# names of functions of other files that may contain collectives
_PART = re.compile(r"(?i)_ranks?(?:_|$)|worker|follow|_loop|listen|recv|receive")
DEFINITIONS = (FunctionDef, AsyncFunctionDef, ClassDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


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

    def of(self, statement: AST) -> list[Collective]:
        """The collectives of a statement, without those of the statements inside it."""
        return [one for call in calls_of(statement) for one in self.of_call(call)]

    def of_call(self, call: Call) -> Sequence[Collective]:
        """The collectives of one call."""
        direct = collective_of(call, self.names, shards=self.shards, trains=self.trains)
        return (
            [direct]
            if direct
            else [replace(one, line=call.lineno) for one in self.functions.get(_own_name(call), ())]
        )

    def inside(self, statements: Statements) -> list[Collective]:
        """All collectives of a block, including nested statements."""
        return [one for statement in walk(statements) for one in self.of(statement)]

    def surely(self, statements: Statements) -> list[Collective]:
        """The same without those that only a certain model makes."""
        return [one for one in self.inside(statements) if not one.only_if]

    def always(self, statements: Statements) -> list[Collective]:
        """The collectives of a block that do not depend on a further condition."""
        return [one for statement in walk(statements, branches=False) for one in self.of(statement)]

    def may_take_part(self, statements: Statements) -> bool:
        """Whether a block contains collectives, or calls a function that may make some: one of this
        file, or one whose name suggests it."""
        return any(
            self.of_call(call) or _own_name(call) in self.touched or _PART.search(last_name(call))
            for one in walk(statements)
            for call in calls_of(one)
        )


def walk(statements: Nodes, *, branches: bool = True) -> Iterator[AST]:
    """Statements and those inside of them, in their order, without functions and classes that they
    define; or without branches of conditions as well."""
    waiting = list(reversed(statements))
    while waiting:
        node = waiting.pop()
        if isinstance(node, DEFINITIONS):
            continue
        yield node
        if not branches and isinstance(node, If) and not is_several(node.test):
            continue
        inner = [
            one
            for field in _BLOCKS
            for one in (getattr(node, field, None) or ())
            if isinstance(one, (stmt, excepthandler, match_case))
        ]
        waiting.extend(reversed(inner))


def calls_of(statement: AST) -> Iterator[Call]:
    """The calls in the expressions of a statement, without those in a lambda, which are made
    elsewhere."""
    waiting: list[AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Call):
            yield node
        waiting.extend(
            one for one in iter_child_nodes(node) if not isinstance(one, (stmt,
            excepthandler, match_case, Lambda))
        )  # fmt: skip


def collective_of(call: Call, names: Names, *, shards: bool, trains: bool) -> Collective | None:
    """The collective that a call makes by itself; None for other calls, and for calls on a group of
    some ranks."""
    function, last = call.func, last_name(call)
    value = getattr(function, "value", None)
    owner, variable = dotted(value), kind_of_variable(value, names)
    is_imported = isinstance(function, Name) and last in names.functions
    if is_imported or (last in listed("collectives") and owner in names.modules):
        kind = names.functions.get(last, last)
        made = text_of(call) if kind == "new_group" else kind  # each group is one of its own
        return (
            None
            if _names_group(call, kind)
            else Collective(made, f"{dotted(function)}()", call.lineno)
        )
    if last in listed("states"):
        return Collective(last, f"{dotted(function) or last}()", call.lineno)
    if last in listed(f"methods of {variable}"):
        return Collective(last, f"{owner}.{last}()", call.lineno)
    if last in listed(f"sharded methods of {variable}"):
        return Collective(last, f"{owner}.{last}()", call.lineno, "" if shards else SHARDED)
    wrapped = kind_of_variable(function, names)
    if wrapped in _FORWARD:
        return Collective("forward", f"{dotted(function)}()", call.lineno, _FORWARD[wrapped])
    if last == "backward" and trains and owner.rpartition(".")[2] not in ("ctx", "manager"):
        return Collective("backward", f"{owner or '...'}.backward()", call.lineno)
    return None


def _names_group(call: Call, kind: str) -> bool:
    """Whether the call is on a group of some ranks, so that only its members make it."""
    if kind in ("new_group", "init_device_mesh"):
        return False
    for given in keywords(call, "group", "process_group", "pg"):
        is_none = isinstance(given, Constant) and given.value is None
        return last_name(given).upper() != "WORLD" and not is_none
    words = [last_name(one).lower() for one in call.args]
    return any(part in word for word in words for part in listed("groups"))


def _own_name(call: Call) -> str:
    """The name by which a function of this file is called: f of f(...), self.f of self.f(...)."""
    owner, _dot, last = dotted(call.func).rpartition(".")
    return f"self.{last}" if owner in ("self", "cls") else "" if owner else last


def read_calls(nodes: Nodes, names: Names) -> Calls:
    """The Calls of a file. nodes: all nodes of its tree."""
    shards = names.mentions("libraries that shard")
    called = {last_name(node) for node in of_kind(nodes, Call)}
    trains = bool(called & listed("wrappers of models")) or "engine" in names.kinds.values()
    trains = trains or (
        called >= listed("calls of a job") and not called & listed("calls of two ranks")
    )
    methods = {id(one) for node in of_kind(nodes, ClassDef) for one in node.body}
    defined: dict[str, AST] = {}
    twice = set()
    for node in nodes:
        if isinstance(node, (FunctionDef, AsyncFunctionDef)):
            name = f"self.{node.name}" if id(node) in methods else node.name
            twice |= {name} & defined.keys()
            defined[name] = node
    known = Calls(names, {}, frozenset(), trains, shards)
    for _ in range(MOST_ROUNDS):
        found = {
            name: made
            for name, node in defined.items()
            if name not in twice and not is_for_one(node) and (made := _always_made(node, known))
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


def is_for_one(function: AST) -> bool:
    """Whether a decorator lets only one rank run the function."""
    marks = getattr(function, "decorator_list", ())
    return any(last_name(one) in listed("decorators of the first rank") for one in marks)


def _always_made(function: AST, known: Calls) -> list[Collective]:
    """The collectives that a function makes whenever a rank of a distributed job calls it."""
    made: list[Collective] = []
    waiting: list[AST] = list(reversed(function.body))  # type: ignore[attr-defined]
    while waiting and len(made) < MOST_OF_FUNCTION:
        node = waiting.pop()
        if isinstance(node, DEFINITIONS):
            continue
        if isinstance(node, If):
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
        if isinstance(node, (Return, Raise)):
            break
        waiting.extend(
            reversed(
                [
                    one
                    for field in ("body", "finalbody")
                    for one in getattr(node, field, ())
                    if isinstance(one, stmt)
                ]
            )
        )
    return made


def _leaves_some(node: If, known: Calls) -> bool:
    """Whether a branch may leave the function in a job of several processes."""
    leaves = any(isinstance(one, (Return, Raise)) for one in walk(node.body))
    alone = (
        share_of(node.test, known.names) is None
        and isinstance(node.test, UnaryOp)
        and is_several(node.test.operand)
    )
    return leaves and not alone
