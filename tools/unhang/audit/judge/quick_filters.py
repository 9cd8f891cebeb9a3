"""The filters of quick forms: each makes a function over plain values from the previous one.

    gpus.devices | selectattr('error', 'unknown') | map(attribute='uuid') | unique | list | length

becomes five functions, one around the other; the innermost reads `sections.gpus.devices` of a node, the outermost counts. An expression without such a form
raises NotQuick.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from jinja2 import nodes

from unhang.audit.judge.expression_tests import keywords_of
from unhang.audit.judge.functions import FILTERS, TEST_NAMES
from unhang.audit.judge.quick_values import COMPARE, MOST_ITEMS, NotQuick, Quick, flattened, known, number, whole
from unhang.audit.judge.syntax import Kind
from unhang.audit.judge.values import shown
from unhang.schemas.shapes import ANY, NUMBER, TEXT, Shape

LITERAL_TESTS = ("version", "startswith", "endswith", "like", "covers", "whole", "true", "false")  # their arguments are constants
_OF_ONE_VALUE = ("truncate", "lower", "upper", "trim", "string", "basename", "dirname", "int", "float", "abs", "round")


class QuickFilters:
    """The filters of QuickCompiler. steps: the maximum that the full judge would count."""

    steps: int

    def visit(self, node: nodes.Node) -> tuple[Kind, Quick]:
        """(kind, function) of a syntax tree. Raises NotQuick."""
        raise NotImplementedError

    def literal(self, node: nodes.Node) -> Any:
        """The value of a constant. Raises NotQuick."""
        raise NotImplementedError

    def below(self, kind: Kind, names: list[str]) -> Kind:
        """The kind at the end of a path that leads through objects alone."""
        raise NotImplementedError

    def check(self, name: str, kind: Kind, arguments: list[nodes.Expr], keywords: dict[str, Any]) -> Any:
        """A test with constants: (nothing, value) -> bool."""
        raise NotImplementedError

    def visit_Filter(self, node: nodes.Filter) -> tuple[Kind, Quick]:
        if node.node is None:
            raise NotQuick("a filter block")
        kind, run = self.visit(node.node)
        method = getattr(self, f"filter_{node.name}", None)
        if method is not None:
            return method(kind, run, node)
        if node.name not in _OF_ONE_VALUE or not kind.shape.is_scalar:
            raise NotQuick(f"filter {node.name}")
        change = self.changing(node.name, node.args or [])
        return Kind(ANY), lambda seen: change(run(seen))

    def changing(self, name: str, arguments: list[nodes.Expr]) -> Callable[[Any], Any]:
        """A filter of one value, with constants: value -> value."""
        function, values = FILTERS[name], [self.literal(one) for one in arguments]
        return lambda value: function(None, value, *values)

    def filter_length(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | length."""
        self.need_list(kind)
        return Kind(NUMBER), lambda seen: len(run(seen))

    def filter_list(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | list."""
        self.need_list(kind)
        return kind, lambda seen: whole(run(seen))

    def filter_selectattr(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | selectattr('a.b', TEST, value), and rejectattr."""
        self.need_list(kind)
        wanted, (named, *rest) = node.name == "selectattr", node.args
        names = self.literal(named).split(".")
        inside = self.below(Kind(kind.shape.item or ANY), names)
        self.steps += MOST_ITEMS * (len(names) + 2)
        chooses = self.chooser(attrgetter(".".join(names)), inside, rest, keywords_of(node), wanted)
        return kind, lambda seen: chooses(run(seen), seen)

    filter_rejectattr = filter_selectattr

    def chooser(self, get: Callable[[Any], Any], kind: Kind, rest: list[nodes.Expr], keywords: dict[str, Any], wanted: bool) -> Callable[..., list[Any]]:
        """(items, sections, item) -> the items whose test result is `wanted`."""
        if not rest:
            return lambda items, seen: [one for one in items if bool(known(get(one))) is wanted]
        name = TEST_NAMES.get(self.literal(rest[0]), self.literal(rest[0]))
        if name in ("known", "unknown"):
            null = (name == "unknown") is wanted
            return lambda items, seen: [one for one in items if (get(one) is None) is null]
        if name in COMPARE and len(rest) == 2:
            compare, other = COMPARE[name], self.visit(rest[1])[1]
            return lambda items, seen: [one for one in items if compare(known(get(one)), other(seen)) is wanted]
        if name == "in" and len(rest) == 2 and isinstance(rest[1], nodes.List):
            values = [self.literal(one) for one in rest[1].items]
            return lambda items, seen: [one for one in items if (known(get(one)) in values) is wanted]
        if name not in LITERAL_TESTS:
            raise NotQuick(f"test {name}")
        check = self.check(name, kind, rest[1:], keywords)
        return lambda items, seen: [one for one in items if check(None, known(get(one))) is wanted]

    def filter_map(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | map(attribute='a.b') and list | map(FILTER, …)."""
        self.need_list(kind)
        keywords = keywords_of(node)
        if set(keywords) == {"attribute"} and not node.args:
            names = str(keywords["attribute"]).split(".")
            inside = self.below(Kind(kind.shape.item or ANY), names)
            self.steps += MOST_ITEMS * len(names)
            get = attrgetter(".".join(names))
            return Kind(Shape("list", item=inside.shape)), lambda seen: [known(get(one)) for one in run(seen)]
        if not keywords and len(node.args) == 1 and self.literal(node.args[0]) == "length" and kind.shape.item is not None and kind.shape.item.kind == "list":
            return Kind(Shape("list", item=NUMBER)), lambda seen: [len(one) for one in whole(run(seen))]
        if keywords or not node.args or self.literal(node.args[0]) not in _OF_ONE_VALUE:
            raise NotQuick("map")
        change = self.changing(self.literal(node.args[0]), node.args[1:])
        return Kind(Shape("list", item=ANY)), lambda seen: [change(one) for one in whole(run(seen))]

    def filter_flatten(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list of lists | flatten."""
        self.need_list(kind)
        inside = kind.shape.item or ANY
        if inside.kind != "list" or inside.item is None or not inside.item.is_scalar:
            raise NotQuick("lists of single values are expected")
        self.steps += MOST_ITEMS
        return Kind(inside), lambda seen: flattened(run(seen))

    def filter_unique(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | unique."""
        self.need_values(kind)
        return kind, lambda seen: list(dict.fromkeys(whole(run(seen))))

    def filter_sum(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | sum, and list | max; of numbers only, for max of at least one."""
        self.need_values(kind)
        together = sum if node.name == "sum" else max
        return Kind(NUMBER), lambda seen: together([number(one) for one in run(seen)])

    filter_max = filter_sum

    def filter_select(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | select(COMPARISON, value)."""
        self.need_values(kind)
        name = TEST_NAMES.get(self.literal(node.args[0]), self.literal(node.args[0])) if node.args else ""
        if name not in COMPARE or len(node.args) != 2:
            raise NotQuick("select")
        compare, other = COMPARE[name], self.literal(node.args[1])
        return kind, lambda seen: [one for one in whole(run(seen)) if compare(one, other)]

    def filter_sort(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | sort."""
        self.need_values(kind)
        return kind, lambda seen: sorted(whole(run(seen)))

    def filter_join(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | join(', ')."""
        self.need_values(kind)
        separator = str(self.literal(node.args[0])) if node.args else ", "
        return Kind(TEXT), lambda seen: separator.join(map(shown, whole(run(seen))))

    def filter_intersect(self, kind: Kind, run: Quick, node: nodes.Filter) -> tuple[Kind, Quick]:
        """list | intersect(list)."""
        self.need_values(kind)
        other_kind, other = self.visit(node.args[0])
        self.need_values(other_kind)

        def common(seen: Any) -> list[Any]:
            wanted = set(whole(other(seen)))
            return [one for one in dict.fromkeys(whole(run(seen))) if one in wanted]

        return kind, common

    def need_list(self, kind: Kind) -> None:
        """Raises NotQuick for anything but a list. Counts one pass over it."""
        self.steps += 2 * MOST_ITEMS
        if kind.shape.kind != "list":
            raise NotQuick("a list is expected")

    def need_values(self, kind: Kind) -> None:
        """Raises NotQuick for anything but a list of single values."""
        self.need_list(kind)
        if kind.shape.item is not None and not kind.shape.item.is_scalar:
            raise NotQuick("single values are expected")
