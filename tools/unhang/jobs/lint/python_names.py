"""Resolves names in a Python file: modules and functions of torch.distributed, accelerators,
wrapped models, conditions over ranks.

The file is read as a syntax tree and never imported. Text in, values out.
"""

from __future__ import annotations

import ast
import re
import warnings
from ast import (
    AST,
    And,
    AnnAssign,
    Assign,
    Attribute,
    BinOp,
    BoolOp,
    Call,
    Compare,
    Constant,
    Eq,
    For,
    Gt,
    GtE,
    Import,
    ImportFrom,
    In,
    Is,
    IsNot,
    List,
    Lt,
    LtE,
    Mod,
    Module,
    Name,
    NamedExpr,
    Not,
    NotEq,
    NotIn,
    Set,
    Subscript,
    Tuple,
    UnaryOp,
    arg,
    cmpop,
    comprehension,
    stmt,
)
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import listed, said

LARGEST = 384 * 1024
MOST_SHOWN = 64  # nodes of an expression
Nodes = Sequence[AST]
Statements = Sequence[stmt]
Lines = Sequence[str]
DEEPEST = 24  # maximum nesting of a condition, and maximum parts of a dotted name
# kinds of parameters, of which only the name is known
_CALLED = {"accelerator": "accelerator", "fabric": "fabric"}
_ORDERED = {Gt: Lt, GtE: LtE, Lt: Gt, LtE: GtE}


@dataclass(frozen=True)
class Share:
    """The ranks for which a condition is true. of: "rank", "local rank" or a calculation with one.
    key: the value that it is compared with, "0" for the first rank, ">= 2" for an order. taken:
    whether equal ranks are taken. narrowed: whether the condition also tests something else."""

    of: str
    key: str
    taken: bool
    narrowed: bool = field(default=False, compare=False)

    def others(self) -> Share:
        """The ranks for which it is false."""
        return replace(self, taken=not self.taken)


@dataclass(frozen=True)
class Names:
    """modules: dotted names of torch.distributed. functions: bare names of its functions -> the
    function. kinds: variable -> kind of its value. flags: variables with a condition over ranks.
    ranks: variables with a rank, of any name. counted: names that a loop binds. words: all names
    and texts of the file."""

    modules: frozenset[str] = frozenset()
    functions: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, Share] = field(default_factory=dict)
    ranks: Mapping[str, str] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    def mentions(self, kind: str) -> bool:
        """Whether a name or text has one of the words of a kind in it."""
        return any(mark in one for one in self.words for mark in listed(kind))


_NOTEBOOK = re.compile(r"^(?P<indent>[ \t]{0,80})[!%](?!=)[^\n]{0,2000}$", re.MULTILINE)


class PythonRead(NamedTuple):
    """line: where the text is no valid Python; None if it is valid, and also if it was not read.
    is_read: whether it was."""

    tree: Module | None = None
    line: int | None = None
    is_read: bool = True


@lru_cache(maxsize=2)
def read_python(text: str) -> PythonRead:
    """The syntax tree of a file; a notebook's commands (!pip, %cd) are left out. Not read: larger
    than LARGEST, nested too deeply, not UTF-8."""
    if len(text) > LARGEST:
        return PythonRead(is_read=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return PythonRead(ast.parse(text))
    except SyntaxError as problem:
        if (without := _NOTEBOOK.sub(r"\g<indent>pass", text)) != text:
            return read_python(without)
        return (
            PythonRead(line=max(problem.lineno or 1, 1))
            if "too many nested" not in str(problem)
            else PythonRead(is_read=False)
        )
    except (ValueError, RecursionError, MemoryError):
        return PythonRead(is_read=False)


def parse_python(text: str) -> Module | None:
    """The syntax tree; None for a text that is no Python or was not read."""
    return read_python(text).tree


def line_of(lines: Lines, number: int) -> str:
    """The line of this number, from 1, as it is shown; "" outside of the file."""
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def finding_at(lines: Lines, number: int, key: str, **values: Any) -> Finding:
    """A finding about the line of this number."""
    return said(key, number, line_of(lines, number), values)


def dotted(node: AST | None) -> str:
    """a.b.c for a name or an attribute, "" for anything else."""
    parts: list[str] = []
    while isinstance(node, Attribute) and len(parts) < DEEPEST:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, Name) else ""


def of_kind(nodes: Iterable[AST], kind: Any) -> Iterator[Any]:
    """The nodes of a kind, or of several."""
    return (one for one in nodes if isinstance(one, kind))


def names_in(node: AST) -> set[str]:
    """The bare names in an expression."""
    return {one.id for one in of_kind(ast.walk(node), Name)}


def keywords(call: Call, *names: str) -> list[AST]:
    """The values of keywords of a call: of these, or of all."""
    return [one.value for one in call.keywords if not names or one.arg in names]


def last_name(node: AST | None) -> str:
    """c for a.b.c, f().c, c and c()."""
    node = node.func if isinstance(node, Call) else node
    found: str = getattr(node, "attr", getattr(node, "id", ""))
    return found


def words_in(nodes: Nodes) -> frozenset[str]:
    """The names and texts of nodes, each once."""
    values = (value for node in nodes for value in vars(node).values())
    return frozenset(value for value in values if isinstance(value, str))


def read_names(nodes: Nodes) -> Names:
    """The names of a whole file. nodes: all of its tree."""
    modules, functions = _imported(nodes)
    loops = of_kind(nodes, (For, comprehension))
    counted = frozenset(one for node in loops for one in names_in(node.target))
    names = Names(
        modules,
        functions,
        _kinds(nodes),
        {},
        {},
        counted - {name for name, _value, _first in _assignments(nodes)},
        words_in(nodes),
    )
    names = replace(names, ranks=_ranks(nodes, names))
    return replace(names, flags=_flags(nodes, names))


def _ranks(nodes: Nodes, names: Names) -> dict[str, str]:
    """Variables to which nothing but a rank, or a constant, is assigned."""
    return _holding(
        nodes,
        lambda one: None if isinstance(one, (Name, Attribute)) else rank_of(one, names),
        (Constant, UnaryOp),
    )


def _holding(nodes: Nodes, read: Callable[[AST], Any], beside: Any) -> dict[str, Any]:
    """Variables with what `read` finds in all that is assigned to them, except nodes `beside`."""
    found: dict[str, Any] = {}
    mixed: set[str] = set()
    for name, value, first in _assignments(nodes):
        of = None if first else read(value)
        if of is not None and found.setdefault(name, of) == of:
            continue
        if not isinstance(value, beside):
            mixed.add(name)
    return {name: of for name, of in found.items() if name not in mixed}


def _bound(nodes: Nodes) -> Iterator[tuple[str, str]]:
    """(name in the file, dotted name) of everything that is imported from elsewhere."""
    for node in of_kind(nodes, (Import, ImportFrom)):
        within = f"{node.module}." if isinstance(node, ImportFrom) else ""
        for one in () if within and node.level else node.names:
            yield one.asname or one.name, within + one.name


def _imported(nodes: Nodes) -> tuple[frozenset[str], dict[str, str]]:
    modules, functions = set(listed("modules")), {}
    for name, full in _bound(nodes):
        module, _dot, last = full.rpartition(".")
        if full in listed("modules"):
            modules.add(name)
        elif module in listed("modules") and last in listed("collectives"):
            functions[name] = last
    return frozenset(modules), functions


def _assignments(nodes: Nodes) -> Iterator[tuple[str, AST, bool]]:
    """(dotted name, value, is the first of a tuple) of every assignment."""
    for node in nodes:
        if isinstance(node, Assign):
            for target in node.targets:
                first = isinstance(target, (Tuple, List)) and target.elts
                if name := dotted(target.elts[0] if first else target):  # type: ignore[attr-defined]
                    yield name, node.value, bool(first)
        elif (
            isinstance(node, (AnnAssign, NamedExpr))
            and node.value is not None
            and (name := dotted(node.target))
        ):
            yield name, node.value, False


def _kinds(nodes: Nodes) -> dict[str, str]:
    kinds: dict[str, str] = {}
    alone: set[str] = set()
    with_trainer = listed("libraries with a Trainer")
    libraries = {
        name.partition(".")[0]
        for name, full in _bound(nodes)
        if full.partition(".")[0] in with_trainer
    }
    for name, value, first in _assignments(nodes):
        if not isinstance(value, Call):
            continue
        called, full = last_name(value), dotted(value.func)
        for kind in listed(f"made by {called}") | listed(f"made by {full}"):
            kinds[name] = kind
        if called.endswith("Trainer") and not first and full.partition(".")[0] in libraries:
            kinds[name] = "trainer"
            asked = keywords(value, "devices", "gpus")  # with one rank 0 may use it alone
            if any(isinstance(one, Constant) and one.value == 1 for one in asked):
                alone.add(name)
    for node in of_kind(nodes, arg):
        full = dotted(node.annotation)
        if full.endswith("Trainer") and full.partition(".")[0] in libraries:
            kinds[node.arg] = "trainer"
    return {name: kind for name, kind in kinds.items() if name not in alone}


def kind_of_variable(node: AST | None, names: Names) -> str:
    """The kind of a variable's value: accelerator, fabric, trainer, engine, fsdp, ddp, or ""."""
    name = dotted(node)
    return names.kinds.get(name) or _CALLED.get(name.rpartition(".")[2], "")


def _flags(nodes: Nodes, names: Names) -> dict[str, Share]:
    """Variables that hold a condition over ranks wherever something else than a constant is
    assigned to them."""
    kinds = (Compare, BoolOp, UnaryOp, Call, Attribute)
    return _holding(
        nodes, lambda one: share_of(one, names) if isinstance(one, kinds) else None, Constant
    )


def share_of(test: AST, names: Names, depth: int = 0) -> Share | None:
    """The ranks for which a condition is true; None if it does not distinguish ranks of a job, or
    is not understood."""
    if depth > DEEPEST:
        return None
    if isinstance(test, UnaryOp) and isinstance(test.op, Not):
        inner = share_of(test.operand, names, depth + 1)
        return inner.others() if inner else None
    if isinstance(test, BoolOp):
        shares = [share_of(one, names, depth + 1) for one in test.values]
        alone = [_is_alone(one) for one in test.values]
        found = next((one for one in shares if one), None)
        if isinstance(test.op, And):
            narrowed = any(
                not share and not is_several(one)
                for share, one in zip(shares, test.values, strict=True)
            )
            return (
                None
                if any(alone) or found is None
                else replace(found, narrowed=found.narrowed or narrowed)
            )
        return (
            found
            if all(share or single for share, single in zip(shares, alone, strict=True))
            else None
        )
    if isinstance(test, Compare) and len(test.ops) == 1:
        return _of_comparison(test.left, test.ops[0], test.comparators[0], names)
    return _of_flag(test, names)


def _of_flag(test: AST, names: Names) -> Share | None:
    if (of := rank_of(test, names)) is not None:  # if rank: ..., if rank % 2: ...
        return Share(of, "0", False)
    name = last_name(test)
    if name in listed("first rank"):
        return Share("rank", "0", True)
    if name in listed("first rank of a node"):
        return Share("local rank", "0", True)
    return names.flags.get(dotted(test))


def _of_comparison(left: AST, operator: cmpop, right: AST, names: Names) -> Share | None:
    of = _by_rank(left, names)
    if of is None:
        left, right = right, left
        operator = _ORDERED.get(type(operator), type(operator))()
        of = _by_rank(left, names)
    if of is None or _by_rank(right, names) is not None:
        return None
    if isinstance(operator, (Eq, NotEq, Is, IsNot, In, NotIn)):
        key = _key(right)
        return Share(of, key, isinstance(operator, (Eq, Is, In))) if key else None
    return _of_order(of, operator, right) if rank_of(left, names) else None


def _of_order(of: str, operator: cmpop, right: AST) -> Share | None:
    """The ranks above or below a bound; None for a bound that is no rank of a job: its size, or
    what means a single process."""
    number = right.value if isinstance(right, Constant) and type(right.value) is int else None
    above = isinstance(operator, (Gt, GtE))
    with_it = isinstance(operator, (GtE, Lt))
    if _is_size(right) or isinstance(right, UnaryOp) or (number == 0 and with_it):
        return None
    if (number, with_it) in ((0, False), (1, True)):
        return Share(of, "0", not above)
    key = _key(right)
    return Share(of, f"{'>=' if with_it else '>'} {key}", above) if key else None


def _by_rank(node: AST, names: Names) -> str | None:
    """As rank_of, or the text of a calculation that has a rank in it, such as step + rank."""
    parts: list[AST] = [node]
    for part in parts:  # which grows
        if isinstance(part, BinOp) and len(parts) < DEEPEST:
            parts += [part.left, part.right]
    found = rank_of(node, names)
    return found or (text_of(node) if any(rank_of(one, names) for one in parts) else None)


def text_of(node: AST) -> str:
    """An expression as text; of a large one its kind, because unparse() calls itself."""
    is_small = sum(1 for _ in islice(ast.walk(node), MOST_SHOWN + 1)) <= MOST_SHOWN
    return ast.unparse(node)[:60] if is_small else type(node).__name__


def _key(other: AST) -> str:
    """The value with which a rank is compared, as text; "" for a value that distinguishes no ranks,
    such as -1 or None, which mean a single process."""
    many = isinstance(other, (Tuple, List, Set))
    parts = other.elts if many else [other]  # type: ignore[attr-defined]
    kept = [
        part
        for part in parts
        if not (isinstance(part, Constant) and part.value is None) and not isinstance(part, UnaryOp)
    ]
    if len(kept) > 64 or any(
        isinstance(one, Call) and last_name(one) in ("range", "tuple", "list") for one in kept
    ):
        return ""
    return ",".join(
        sorted(
            repr(part.value)[:40] if isinstance(part, Constant) else dotted(part) or text_of(part)
            for part in kept
        )
    )[:200]


def rank_of(node: AST, names: Names | None) -> str | None:
    """ "rank" or "local rank" if an expression is one; without names, if it reads one here."""
    for _ in range(2):
        if isinstance(node, Call) and last_name(node) == "int" and len(node.args) == 1:
            node = node.args[0]
    if isinstance(node, BinOp) and isinstance(node.op, Mod) and rank_of_name(node.left, names):
        return "local rank"
    if isinstance(node, Call) and (of := _listed_rank("getters", last_name(node))):
        return None if node.args or node.keywords else of
    return _listed_rank("variables", variable_read(node)) or rank_of_name(node, names)


def _listed_rank(what: str, name: str) -> str | None:
    return next((of for of in ("rank", "local rank") if name in listed(f"{of} {what}")), None)


def rank_of_name(node: AST, names: Names | None) -> str | None:
    """The same for a name or an attribute."""
    if not (names and isinstance(node, (Name, Attribute))) or dotted(node) in names.counted:
        return None
    name = last_name(node).lower().lstrip("_")
    return _listed_rank("names", name) or names.ranks.get(dotted(node))


def variable_read(node: AST) -> str:
    """NAME of os.environ["NAME"], os.environ.get("NAME", ...) and os.getenv("NAME"); "" for
    anything else."""
    if isinstance(node, Subscript) and last_name(node.value) == "environ":
        key: AST | None = node.slice
    elif (
        isinstance(node, Call)
        and node.args
        and (last_name(node) == "getenv" or dotted(node.func).endswith("environ.get"))
    ):
        key = node.args[0]
    else:
        key = None
    return key.value if isinstance(key, Constant) and isinstance(key.value, str) else ""


def _is_alone(test: AST) -> bool:
    """Whether a condition is true only in a job of one process: then it distinguishes no ranks."""
    if isinstance(test, UnaryOp) and isinstance(test.op, Not):
        return is_several(test.operand)
    if isinstance(test, Compare) and type(test.ops[0]) in _NEGATED:
        opposite = _NEGATED[type(test.ops[0])]()
        return is_several(Compare(test.left, [opposite], test.comparators))
    return False


_NEGATED: dict[type[cmpop], type[cmpop]] = {Eq: NotEq, Is: IsNot, LtE: Gt, Lt: GtE}


def is_several(test: AST) -> bool:
    """Whether a condition is true for each process of a job of several: dist.is_initialized(),
    world_size > 1, rank != -1."""
    if isinstance(test, BoolOp) and isinstance(test.op, And):
        return all(is_several(one) for one in test.values[:DEEPEST] if not isinstance(one, BoolOp))
    if isinstance(test, Compare) and len(test.ops) == 1:
        right = test.comparators[0]
        if isinstance(right, UnaryOp) or (isinstance(right, Constant) and right.value is None):
            return isinstance(test.ops[0], (NotEq, IsNot, Gt))
        number = right.value if isinstance(right, Constant) else None
        return _is_size(test.left) and (type(test.ops[0]), number) in (
            (NotEq, 1),
            (Gt, 1),
            (GtE, 2),
        )
    return last_name(test).lower() in listed("several processes")


def _is_size(node: AST) -> bool:
    return last_name(node).lower() in listed("sizes")
