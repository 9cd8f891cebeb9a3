"""Judges many nodes: every rule once per distinct vector of the values that it reads, not once per node.

A node's values are taken out once (extract.py). Rules that read the same sections form a bundle, whose verdicts are remembered under all
values that its rules read; behind it each rule remembers its own. A rule that reads measured numbers (uptime, memory in use) has its own bundle;
all others are looked up at once, so that nodes that are configured alike cost one look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.judge.documents import NodeDocument
from unhang.judge.expression import Path
from unhang.judge.extract import Extractor, freeze, taker
from unhang.judge.groups import Compared, compare_node
from unhang.judge.memory import Bundle, BundleVerdicts, Memory
from unhang.judge.node_rules import CatalogueView, Judged, NodeView, judge_applies, judge_rule, node_world, not_all_read, why_null, words
from unhang.judge.quick import QuickRule, quick_rule
from unhang.judge.rules import Rule
from unhang.judge.values import RuleStopped, Undecided, World
from unhang.schemas.shapes import Shape, fact_shapes, policy_shape

_LISTED_SAMPLES = frozenset(("processes", "holders", "mapped_by", "line"))


@dataclass(frozen=True)
class NodeVerdicts:
    """What the rules say about one node."""

    outcomes: list[BundleVerdicts]
    listed: list[tuple[int, Judged, dict[str, str], dict[str, Any]]]  # rule, verdict, words, where
    unread: bool


class Engine:
    """Judges node after node; remembers verdicts, never documents.

    mark(rule id): told before a rule is evaluated, so that one that never ends can be named.
    """

    def __init__(self, rules: Sequence[Rule], catalogue: CatalogueView, mark: Callable[[str], None] = lambda rule: None):
        self.rules = list(rules)
        self.catalogue = catalogue
        self.mark = mark
        self.evaluations = 0
        self._extractor = Extractor(fact_shapes(), (path for rule in rules for path in rule.decision_reads if path[0] in fact_shapes()))
        self._paths = self._extractor.paths
        self._sections = sorted({path[0] for path in self._paths})
        others = sorted({path for rule in rules for path in rule.decision_reads if path[0] not in fact_shapes()})
        self._others = others
        first_section = len(self._paths)
        first_other = first_section + len(self._sections)
        self._place: dict[Path, int] = {path: number for number, path in enumerate(self._paths)}
        self._place |= {path: first_other + number for number, path in enumerate(others)}
        self._section_place = {name: first_section + number for number, name in enumerate(self._sections)}
        self._rule_places = [self._places_of(rule) for rule in self.rules]
        self._account_places = [sorted({self._section_place[path[0]] for path in rule.decision_reads if path[0] in fact_shapes()}) for rule in self.rules]
        self._rule_memory = [Memory() for _ in self.rules]
        self._applies_places = [self._places_of_applies(rule) for rule in self.rules]
        self._applies_memory = [Memory() for _ in self.rules]
        self.bundles = self._make_bundles()
        self._steady = [bundle for bundle in self.bundles if bundle.steady]
        self._other = [bundle for bundle in self.bundles if not bundle.steady]
        self._steady_places = sorted({place for bundle in self._steady for place in bundle.places})
        self._steady_memory = Memory()
        self._empty: dict[Any, BundleVerdicts] = {}
        self._policy_values: dict[int, list[Any]] = {}
        self._words: dict[Any, dict[str, str]] = {}
        self._quick = [self._quick_of(rule) for rule in self.rules]
        self._kinds_of_null: dict[tuple[Any, str], str] = {}
        self._rest_memory: list[dict[Any, tuple[Judged, ...]]] = [{} for _ in self.rules]
        self._text_takers = [_takers(rule.text_reads - rule.decision_reads) for rule in self.rules]
        self._values: dict[Any, int] = {}

    def _places_of(self, rule: Rule) -> list[int]:
        sections = {path[0] for path in rule.decision_reads if path[0] in fact_shapes()}
        return sorted({self._place[path] for path in rule.decision_reads} | {self._section_place[name] for name in sections})

    def _places_of_applies(self, rule: Rule) -> list[int] | None:
        """What decides alone that a rule over measured numbers does not apply: such a rule is else judged anew for every node."""
        if rule.scope != "node" or rule.applies is None or "item" in rule.applies.uses or not any(_is_own(path) for path in rule.decision_reads):
            return None
        paths = [path for path in rule.applies.reads if path[0] not in ("tables", "today", "rule_ids")]
        if any(path not in self._place or _is_own(path) for path in paths):
            return None
        sections = {path[0] for path in paths if path[0] in fact_shapes()}
        return sorted({self._place[path] for path in paths} | {self._section_place[name] for name in sections})

    def _quick_of(self, rule: Rule) -> QuickRule | None:
        """The quick form of a rule that is judged anew for every node."""
        if not any(_is_own(path) for path in rule.decision_reads):
            return None
        return quick_rule(rule, self.catalogue.tables, self.catalogue.tables_shape)

    def _make_bundles(self) -> list[Bundle]:
        bundles: dict[Any, Bundle] = {}
        for number, rule in enumerate(self.rules):
            roots = frozenset(path[0] for path in rule.decision_reads)
            changing = any(_is_own(path) for path in rule.decision_reads)
            bundle = bundles.setdefault(rule.decision_reads if changing else roots, Bundle([], [], rule.reads_facts, not changing))
            bundle.rules.append(number)
            bundle.places = sorted({*bundle.places, *self._rule_places[number]})
        return list(bundles.values())

    def judge(self, node: NodeView, policy_key: int) -> NodeVerdicts:
        """All verdicts on one node. policy_key: the same number for equal policies."""
        self._sections_now = node.sections
        vector = self._vector(node, policy_key)
        outcomes = []
        world: list[World] = []

        def the_world() -> World:
            if not world:
                world.append(node_world(node, self.catalogue))
            return world[0]

        if node.sections is None:
            bundles = [bundle for bundle in self.bundles if not bundle.reads_facts]
        else:
            outcomes.append(self._judge_steady(vector, the_world))
            bundles = self._other
        for bundle in bundles:
            outcome = self._remembered(bundle, vector, the_world)
            outcome.hits += 1
            outcomes.append(outcome)
        items: dict[int, dict[str, Any]] = {}
        listed = [(rule, judged, *self._describe(rule, judged, node, the_world, items)) for outcome in outcomes for rule, judged in outcome.listed]
        return NodeVerdicts(outcomes, listed, node.sections is None)

    def _judge_steady(self, vector: list[Any], world: Callable[[], World]) -> BundleVerdicts:
        """All steady bundles at once: nodes that are configured alike cost one look."""
        key = tuple([vector[place] for place in self._steady_places])
        outcome = self._steady_memory.get(key)
        if outcome is None:
            parts = [self._remembered(bundle, vector, world) for bundle in self._steady]
            outcome = BundleVerdicts(
                tuple(one for part in parts for one in part.counts),
                tuple(one for part in parts for one in part.listed),
                tuple(one for part in parts for one in part.compared),
            )
            self._steady_memory.put(key, outcome)
        outcome.hits += 1
        return outcome

    def _remembered(self, bundle: Bundle, vector: list[Any], world: Callable[[], World]) -> BundleVerdicts:
        key = tuple([vector[place] for place in bundle.places])
        outcome = bundle.memory.get(key)
        if outcome is None:
            outcome = self._judge_bundle(bundle, vector, world)
            bundle.memory.put(key, outcome)
        return outcome

    def _vector(self, node: NodeView, policy_key: int) -> list[Any]:
        """The values of all paths, then what each section says of itself, then host, groups, policy …; long ones as numbers."""
        if node.sections is None:
            vector: list[Any] = [None] * (len(self._paths) + len(self._sections))
        else:
            vector = self._extractor.values(node.sections)
            vector += [_account(getattr(node.sections, name)) for name in self._sections]
        numbers = self._values
        for place, value in enumerate(vector):
            if type(value) is tuple:
                vector[place] = numbers.setdefault(value, len(numbers))
        if len(numbers) > 500_000:
            numbers = self._values = {}
            for memory in (self._steady_memory, *self._applies_memory, *self._rule_memory, *(bundle.memory for bundle in self.bundles)):
                memory.answers.clear()
            self._kinds_of_null.clear()
            for rest in self._rest_memory:
                rest.clear()
        known = self._policy_values.get(policy_key)
        if known is None:
            known = self._policy_values[policy_key] = [_policy_value(node.policy, path) for path in self._others]
        vector += [one if path[0] == "policy" else _context(node, path[0]) for one, path in zip(known, self._others, strict=True)]
        return vector

    def _judge_bundle(self, bundle: Bundle, vector: list[Any], world: Callable[[], World]) -> BundleVerdicts:
        counts: list[tuple[int, str, int]] = []
        listed: list[tuple[int, Judged]] = []
        compared: list[tuple[int, Compared]] = []
        for number in bundle.rules:
            answer = self._judge_rule(number, vector, world)
            if isinstance(answer, Compared):
                compared.append((number, answer))
                continue
            tally: dict[str, int] = {}
            for judged in answer:
                tally[judged.verdict] = tally.get(judged.verdict, 0) + judged.items
                if judged.verdict in ("fail", "unknown"):
                    listed.append((number, judged))
            counts += [(number, verdict, count) for verdict, count in tally.items()]
        if listed or compared:
            return BundleVerdicts(tuple(counts), tuple(listed), tuple(compared))
        return self._empty.setdefault(tuple(counts), BundleVerdicts(tuple(counts), (), ()))

    def _judge_rule(self, number: int, vector: list[Any], world: Callable[[], World]) -> Any:
        memory = self._rule_memory[number]
        key = tuple([vector[place] for place in self._rule_places[number]])
        answer = memory.get(key)
        if answer is None:
            if (early := self._does_not_apply(number, vector, world)) is not None:
                return early
            rule = self.rules[number]
            self.mark(rule.id)
            self.evaluations += 1
            answer = self._quickly(number, vector, world)
            if answer is None:
                answer = judge_rule(rule, world()) if rule.scope == "node" else compare_node(rule, world())
            memory.put(key, answer)
        return answer

    def _quickly(self, number: int, vector: list[Any], world: Callable[[], World]) -> list[Judged] | None:
        """What the quick form of a rule answers, and what could not be read beside it, as judging in full has it."""
        quick = self._quick[number]
        answer = None if quick is None else quick.judge(self._sections_now, lambda path: self._kind_of_null(vector, path))
        if answer is None:
            return None
        found, with_rest = answer
        if not with_rest:
            return found
        rule = self.rules[number]
        key = tuple([vector[place] for place in self._account_places[number]])
        rest = self._rest_memory[number].get(key)
        if rest is None:
            lacking = not_all_read(rule, world())
            rest = self._rest_memory[number][key] = () if lacking is None else (lacking,)
        if not rest:
            return found
        return [*found, *rest] if rule.for_each is not None else list(rest)

    def _kind_of_null(self, vector: list[Any], path: str) -> str:
        """Unknown.kind of a null at a path without names of items in it. What a section says of its own reading decides alone."""
        key = (vector[self._section_place[path.partition(".")[0]]], path)
        if key not in self._kinds_of_null:
            self._kinds_of_null[key] = why_null(self._sections_now, path).kind
        return self._kinds_of_null[key]

    def _does_not_apply(self, number: int, vector: list[Any], world: Callable[[], World]) -> Any:
        """The verdicts of a rule over measured numbers that does not apply, remembered without the numbers; None for every other."""
        places = self._applies_places[number]
        if places is None:
            return None
        key = tuple([vector[place] for place in places])
        found = self._applies_memory[number].get(key)
        if found is None:
            self.mark(self.rules[number].id)
            found = (judge_applies(self.rules[number], world()),)
            self._applies_memory[number].put(key, found)
        return found[0]

    def _describe(
        self, number: int, judged: Judged, node: NodeView, world: Callable[[], World], known: dict[int, dict[str, Any]],
    ) -> tuple[dict[str, str], dict[str, Any]]:  # fmt: skip
        """The words of a finding (remembered), and where it is (of this node alone). known: rule -> its items on this node."""
        rule = self.rules[number]
        key = (number, judged, tuple([_taken(node, path, take) for path, take in self._text_takers[number]]))
        found = self._words.get(key)
        if judged.item is not None and number not in known:
            known[number] = self._items(rule, world())
        items = {} if judged.item is None else known[number]
        if found is None:
            found = words(rule, world(), judged, items)
            if len(self._words) < 100_000:
                self._words[key] = found
        return found, where_of(rule, judged, items)

    def _items(self, rule: Rule, world: World) -> dict[str, Any]:
        assert rule.for_each is not None
        world.begin()
        try:
            return {one.path: one for one in world.items(rule.for_each.evaluate(world)) if hasattr(one, "path")}
        except (Undecided, RuleStopped):
            return {}


def where_of(rule: Rule, judged: Judged, items: dict[str, Any]) -> dict[str, Any]:
    """Which item: its path and the fields that name it."""
    if judged.items > 1:
        return {"items": judged.items}
    if judged.item is None:
        return {}
    value = getattr(items.get(judged.item), "value", None)
    named = {name: value.get(name) if isinstance(value, dict) else getattr(value, name, None) for name in rule.where_fields}
    return {"path": judged.item, **{name: one for name, one in named.items() if one is not None and not isinstance(one, (list, dict))}}


def view_of(document: NodeDocument, policy: dict[str, Any], policy_error: str) -> NodeView:
    """What rules see of a node document."""
    return NodeView(document.host, document.groups, policy, document.status, document.message or "", policy_error, document.sections)


def _is_own(path: Path) -> bool:
    """Whether a fact differs from node to node by its nature: a name, a measured number, a process, a line of a log.

    Counters are mostly zero and states mostly quiet on all nodes, though both may be new at every look.
    """
    if path[0] == "host" or not _LISTED_SAMPLES.isdisjoint(path):
        return True
    shape: Shape | None = fact_shapes().get(path[0])
    for part in path[1:]:
        if shape is None:
            return False
        shape = shape.fields.get(part) if shape.kind == "object" else shape.item
    return shape is not None and ((shape.sample and not shape.counter and shape.kind == "number") or (shape.identity and shape.kind == "text"))


def _account(section: Any) -> Any:
    """What a section says about its own reading; None when there is nothing to say."""
    if section is None:
        return ("no section",)
    probe = section.probe
    if not probe.unread and probe.status == "ok":
        return None
    return (probe.status, probe.error, tuple([(row.field, row.status, row.reason) for row in probe.unread or ()]))


def _policy_value(policy: Mapping[str, Any], path: Path) -> Any:
    if path[0] != "policy":
        return None
    take = taker(policy_shape(), path[1:])
    return freeze(policy if take is None else take(policy))


def _context(node: NodeView, name: str) -> Any:
    return {"host": node.host, "groups": node.groups, "run_status": node.run_status, "message": node.message, "policy_error": node.policy_error}.get(name)


def _takers(paths: frozenset[Path]) -> list[tuple[Path, Any]]:
    shapes = {**fact_shapes(), "policy": policy_shape()}
    return [(path, taker(shapes[path[0]], path[1:]) if path[0] in shapes else None) for path in sorted(paths)]


def _taken(node: NodeView, path: Path, take: Any) -> Any:
    name = path[0]
    if name not in fact_shapes() and name != "policy":
        return _context(node, name)
    holder = node.policy if name == "policy" else getattr(node.sections, name, None)
    return None if holder is None else take(holder) if take is not None else None
