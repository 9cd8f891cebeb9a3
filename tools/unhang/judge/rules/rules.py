"""Rules: rows of the catalogue, checked and compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import nodes

from unhang.core.run.documents import STATUSES
from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import ANY, NUMBER, TEXT, Shape, fact_shapes, policy_shape
from unhang.core.text import flat
from unhang.judge.rules import faulty_gpus, last_run, like_things, rising_counters, unreadable
from unhang.judge.rules.expression import (
    Expression,
    ExpressionError,
    Kind,
    Path,
    compile_expression,
    compile_template,
    pruned,
)
from unhang.judge.rules.syntax import list_of

SEVERITIES = ("critical", "error", "warning", "info")
RUN_STATUSES = (*STATUSES, "missing")
PARTS = ("parts", "settings", "own")  # the lists of which a comparison of nodes may take each item
ANY_DIFFERENCE = "distinct > 1"  # the comparison if a rule names none
_ITEM_NAMES = (
    "name",
    "path",
    "rule",
    "kind",
    "scope",
    "package",
    "device",
    "release",
    "module",
    "field",
    "key",
    "file",
    "line",
    "pci_address",
    "code",
    "subject",
)


@dataclass(frozen=True)
class Rule:
    """A compiled row. decision_reads: paths that can change its verdict; text_reads: paths that its
    texts quote. severity_of: the column of a table in which each of its findings has its own
    severity, or a condition that chooses one of two;
    `severity` is then the most severe of that column, and that of a verdict that is no
    finding. within: of which nodes of a group a node is compared with those that have the same
    value."""

    id: str
    row: dict[str, Any]
    scope: str
    severity: str
    severity_of: Expression | None
    applies: Expression | None
    for_each: Expression | None
    when: Expression | None
    compare: Expression | None
    within: Expression | None
    texts: Mapping[str, Expression]
    decision_reads: frozenset[Path]
    text_reads: frozenset[Path]
    where_fields: tuple[str, ...]
    reads_facts: bool


class RuleError(ValueError):
    """A row that is not accepted. field: the key of the row with the fault."""

    def __init__(self, field: str, message: str):
        super().__init__(message)
        self.field = field


def compile_rule(
    row: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    names: Mapping[str, Kind] | None = None,
) -> Rule:
    """Compiles a row of the schema rule-1. names: node_names(tables), for callers that compile
    many. Raises RuleError at its first fault."""
    names = node_names(tables or {}) if names is None else names
    scope = row["scope"]
    _check_fields(row)
    for_each = _compiled(row, "for_each", names) if "for_each" in row else None
    if for_each is not None:
        if for_each.kind.shape.kind != "list":
            raise RuleError(
                "for_each", f"needs a list in the facts, not a {for_each.kind.shape.kind}"
            )
        names = {**names, "item": for_each.kind.items()}
    applies = _claim(row, "applies", names) if "applies" in row else None
    compare = _compiled(row, "compare", names) if "compare" in row else None
    if compare is not None and _holds_object(compare.kind):
        raise RuleError("compare", "needs a value, not an object: name one of its fields")
    within = _compiled(row, "within", names) if "within" in row else None
    if within is not None and not within.kind.shape.is_scalar:
        raise RuleError("within", "needs one value, not a list or an object")
    outer = names if scope == "node" else names_of_groups(names, compare)
    when = _claim({"when": ANY_DIFFERENCE, **row}, "when", outer)
    written = dict(templates_of(row))
    texts = {key: _compiled(written, key, outer, compile_template) for key in written}
    severity_of = _severity_of(row, outer, for_each)
    of_node = scope == "node"
    reads = _reads_of(for_each, applies, compare, within, when if of_node else None)
    text_reads = _reads_of(*texts.values(), severity_of) if of_node else frozenset()
    return Rule(
        row["id"], dict(row), scope, most_severe(severity_of, row), severity_of, applies, for_each,
        when, compare, within, texts, reads, text_reads,
        _where_fields(for_each), reads_facts(reads),
    )  # fmt: skip


def _reads_of(*expressions: Expression | None) -> frozenset[Path]:
    reads = (path for one in expressions if one for path in one.reads)
    return pruned(path for path in reads if path[0] not in _DATA_NAMES)


def most_severe(severity_of: Expression | None, row: Mapping[str, Any]) -> str:
    """The most severe that a finding of this row can be."""
    return str(
        row["severity"]
        if severity_of is None
        else min(severity_of.kind.shape.values, key=SEVERITIES.index)
    )


def _severity_of(
    row: Mapping[str, Any], names: Mapping[str, Kind], for_each: Expression | None
) -> Expression | None:
    """None where the row names a severity. A severity never comes from a node: an expression must
    lead to a column of a table, also through what the judge works out of one (`unlike`), or choose
    between two words by a condition."""
    source = row["severity"]
    if source in SEVERITIES:
        return None
    if "." not in source and " " not in source:
        raise RuleError(
            "severity",
            f"{source!r}{nearest(source, SEVERITIES)} is not allowed; allowed are"
            f" {', '.join(SEVERITIES)}, a column of a table, or one of two by a condition",
        )
    found = _compiled(row, "severity", names)
    base = _base(found.tree())
    of_table = (
        isinstance(found.tree(), nodes.CondExpr)
        or base == "tables"
        or (
            base == "item"
            and for_each is not None
            and _base(for_each.tree(), nodes.Filter) in ("tables", "unlike", *PARTS, "rising")
        )
    )
    if not (
        of_table and found.kind.shape.values and set(found.kind.shape.values) <= set(SEVERITIES)
    ):
        raise RuleError(
            "severity",
            f"{source} is neither one of {', '.join(SEVERITIES)}, nor a column of a table whose"
            " values are such, nor one of two by a condition",
        )
    return found


def undecided_severity(severity_of: Expression) -> str | None:
    """The milder of two where the condition between them is not known; None for a column of a
    table."""
    if not isinstance(severity_of.tree(), nodes.CondExpr):
        return None
    return str(max(severity_of.kind.shape.values, key=SEVERITIES.index))


def _base(tree: Any, *through: type[nodes.Node]) -> str | None:
    """The name from which an expression reads field by field, or also through these kinds; None for
    any other expression."""
    kinds: tuple[type[nodes.Node], ...] = (nodes.Getattr, nodes.Getitem, *through)
    while isinstance(tree, kinds):
        tree = getattr(tree, "node")  # noqa: B009 - all of these kinds have it
    return tree.name if isinstance(tree, nodes.Name) else None


def reads_facts(reads: Iterable[Path]) -> bool:
    """Whether any of the paths leads into a node's facts."""
    return any(path[0] in fact_shapes() for path in reads)


_DATA_NAMES = ("tables", "rule_ids", "today")


def node_names(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Kind]:
    """All names with which an expression over one node may begin."""
    names = {name: Kind(shape, (name,)) for name, shape in fact_shapes().items()}
    texts, rates = Shape("list", item=TEXT), rising_counters.reads_of(tables)
    peers = like_things.reads_of(tables, "peers") | rates
    within = like_things.reads_of(tables, "within")
    worked_out = (
        ("unlike", like_things.UNLIKE, within | last_run.READS),
        ("parts", like_things.PART, peers),
        ("own", like_things.PART, like_things.reads_of_own(tables)),
        ("settings", like_things.PART, like_things.SETTINGS),
        ("rising", rising_counters.RISING, rates),
        ("faulty", faulty_gpus.FAULTY, faulty_gpus.READS),
        ("unreadable", unreadable.UNREADABLE, unreadable.reads()),
    )
    return {
        **names,
        "policy": Kind(policy_shape(), ("policy",)),
        "host": Kind(TEXT, ("host",)),
        "groups": Kind(texts, ("groups",)),
        "run_status": Kind(Shape("text", values=RUN_STATUSES), ("run_status",)),
        "message": Kind(TEXT, ("message",)),
        "policy_error": Kind(TEXT, ("policy_error",)),
        "today": Kind(TEXT),
        "rule_ids": Kind(texts),
        "tables": Kind(tables_shape(tables)),
        **{name: replace(list_of(Kind(one)), reads=reads) for name, one, reads in worked_out},
    }


def names_of_groups(names: Mapping[str, Kind], compare: Expression | None) -> dict[str, Kind]:
    """The names with which `when`, expected and found of a group rule may begin: policy
    and tables besides the group's values, and the item of a list of which each is compared."""
    known = {name: names[name] for name in ("policy", "tables", "today", "item") if name in names}
    return {**known, **group_names(compare)}


def group_names(compare: Expression | None) -> dict[str, Kind]:
    value = (
        ANY
        if compare is None or not compare.kind.shape.is_scalar
        else Shape(compare.kind.shape.kind, version=compare.kind.shape.version)
    )
    node = Shape("object", {"host": TEXT, "value": value})
    count = Shape("object", {"value": value, "count": NUMBER, "hosts": Shape("list", item=TEXT)})
    return {
        "distinct": Kind(NUMBER),
        "majority": Kind(value),
        "outliers": Kind(Shape("list", item=node)),
        "nodes": Kind(Shape("list", item=node)),
        "counts": Kind(Shape("list", item=count)),
        "group": Kind(TEXT),
    }


def tables_shape(tables: Mapping[str, Mapping[str, Any]]) -> Shape:
    """tables.NAME[key].field: the shape of the tables, from the fields that they declare."""
    return Shape(
        "object",
        {name: Shape("map", item=getattr(rows, "shape", ANY)) for name, rows in tables.items()},
    )


def _check_fields(row: Mapping[str, Any]) -> None:
    if row["scope"] == "node":
        if "when" not in row:
            raise RuleError("when", "is missing: a rule of scope node needs it")
        for field in {"compare", "within"} & row.keys():
            raise RuleError(field, "belongs to scope group")
        return
    if "compare" not in row:
        raise RuleError("compare", "is missing: a rule of scope group needs it")
    if "within" in row and "for_each" in row:
        raise RuleError("within", "belongs to a rule without for_each")
    if row.get("for_each", PARTS[0]) not in PARTS:
        raise RuleError("for_each", f"belongs to scope node; group scope has only {PARTS}")


def templates_of(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, its text) of all texts that may quote facts."""
    yield "expected", row["expected"]
    yield "found", row["found"]
    for name, wanted in flat(row["remedy"]):
        if name == "person" or "{{" in wanted:
            yield f"remedy.{name}", wanted
    if "workaround" in row:
        yield "workaround.what", row["workaround"]["what"]


def _compiled(
    row: Mapping[str, Any], field: str, names: Mapping[str, Kind], by: Any = compile_expression
) -> Expression:
    try:
        found: Expression = by(row[field], names)
        return found
    except ExpressionError as problem:
        raise RuleError(field, str(problem)) from None


def _claim(row: Mapping[str, Any], field: str, names: Mapping[str, Kind]) -> Expression:
    found = _compiled(row, field, names)
    if found.kind.shape.kind not in ("flag", "any"):
        raise RuleError(
            field, f"must be true or false, not a {found.kind.shape.kind}: write a comparison"
        )
    return found


def _holds_object(kind: Kind) -> bool:
    while kind.shape.kind == "list":
        kind = kind.items()
    return kind.shape.kind == "object"


def _where_fields(for_each: Expression | None) -> tuple[str, ...]:
    """The fields that identify an item of for_each."""
    if for_each is None:
        return ()
    shape = for_each.kind.items().shape
    if shape.kind != "object":
        return ()
    named = tuple(name for name, one in shape.fields.items() if one.identity)
    return named or tuple(name for name in _ITEM_NAMES if name in shape.fields)
