"""Judges many nodes: every rule once per distinct vector of the values that it reads, not once per node.

Nodes with the same signature (signatures.py) are configured alike: what it decides is looked up, and what it leaves open are rules over measured numbers,
most of which are told to pass by a function (alike.py, pass_code.py). For a new signature a node's values are taken out once (extract.py). Rules that read
the same sections form a bundle, whose verdicts are remembered under all values that its rules read; behind it each rule remembers its own. A rule that
reads measured numbers (uptime, memory in use) has its own bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from unhang.judge.alike import Known, Open, Signed, joined
from unhang.judge.describing import Describer, context_of
from unhang.judge.documents import NodeDocument
from unhang.judge.expression import Path
from unhang.judge.extract import NULL_ON_THE_WAY, Extractor, freeze, taker
from unhang.judge.groups import Compared, compare_node
from unhang.judge.memory import Bundle, BundleVerdicts, Memory
from unhang.judge.node_rules import CatalogueView, Judged, NodeView, judge_applies, judge_rule, node_world, not_all_read, why_null
from unhang.judge.own_facts import is_own
from unhang.judge.pass_code import passing
from unhang.judge.quick import QuickRule, quick_rule
from unhang.judge.rules import Rule
from unhang.judge.signatures import Signatures
from unhang.judge.values import World
from unhang.schemas.shapes import fact_shapes, policy_shape


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
        self._quick = [self._quick_of(rule) for rule in self.rules]
        self._kinds_of_null: dict[tuple[Any, str], str] = {}
        self._rest_memory: list[dict[Any, tuple[Judged, ...]]] = [{} for _ in self.rules]
        self._describer = Describer(self.rules)
        self._values: dict[Any, int] = {}
        self._signed = Signed()
        self._signatures = Signatures(fact_shapes(), (path for path in self._paths if not is_own(path)), _account)
        own_applies = {path for bundle in self._other for number in bundle.rules for path in _applies_reads(self.rules[number])}
        self._own_applies = Extractor(fact_shapes(), (path for path in own_applies if path not in self._place or is_own(path)))
        self._contexts = sorted({path[0] for path in others if path[0] not in ("policy", "host")})
        self._passing = {number: passing(self.rules[number], catalogue.tables, catalogue.tables_shape) for bundle in self._other for number in bundle.rules}

    def _places_of(self, rule: Rule) -> list[int]:
        sections = {path[0] for path in rule.decision_reads if path[0] in fact_shapes()}
        return sorted({self._place[path] for path in rule.decision_reads} | {self._section_place[name] for name in sections})

    def _places_of_applies(self, rule: Rule) -> list[int] | None:
        """What decides alone that a rule over measured numbers does not apply: such a rule is else judged anew for every node."""
        if rule.scope != "node" or rule.applies is None or "item" in rule.applies.uses or not any(is_own(path) for path in rule.decision_reads):
            return None
        paths = [path for path in rule.applies.reads if path[0] not in ("tables", "today", "rule_ids")]
        if any(path not in self._place or is_own(path) for path in paths):
            return None
        sections = {path[0] for path in paths if path[0] in fact_shapes()}
        return sorted({self._place[path] for path in paths} | {self._section_place[name] for name in sections})

    def _quick_of(self, rule: Rule) -> QuickRule | None:
        """The quick form of a rule that is judged anew for every node."""
        if not any(is_own(path) for path in rule.decision_reads):
            return None
        return quick_rule(rule, self.catalogue.tables, self.catalogue.tables_shape)

    def _make_bundles(self) -> list[Bundle]:
        bundles: dict[Any, Bundle] = {}
        for number, rule in enumerate(self.rules):
            roots = frozenset(path[0] for path in rule.decision_reads)
            changing = any(is_own(path) for path in rule.decision_reads)
            bundle = bundles.setdefault(rule.decision_reads if changing else roots, Bundle([], [], rule.reads_facts, not changing))
            bundle.rules.append(number)
            bundle.places = sorted({*bundle.places, *self._rule_places[number]})
        return list(bundles.values())

    def judge(self, node: NodeView, policy_key: int) -> NodeVerdicts:
        """All verdicts on one node. policy_key: the same number for equal policies."""
        self._sections_now = node.sections
        world: list[World] = []

        def the_world() -> World:
            if not world:
                world.append(node_world(node, self.catalogue))
            return world[0]

        if node.sections is None:
            vector = self._vector(node, policy_key)
            outcomes = [self._remembered(bundle, vector, the_world) for bundle in self.bundles if not bundle.reads_facts]
        else:
            outcomes = self._judge_read(node, policy_key, the_world)
        for outcome in outcomes:
            outcome.hits += 1
        items: dict[int, dict[str, Any]] = {}
        listed = [(rule, judged, *self._describer.describe(rule, judged, node, the_world, items)) for outcome in outcomes for rule, judged in outcome.listed]
        return NodeVerdicts(outcomes, listed, node.sections is None)

    def _judge_read(self, node: NodeView, policy_key: int, world: Callable[[], World]) -> list[BundleVerdicts]:
        """All verdicts on a node that was read, by its signature where that is known."""
        if self._signed.given_up:
            return self._judge_values(self._vector(node, policy_key), world)
        key = (policy_key, *(context_of(node, name) for name in self._contexts), self._signatures.of(node.sections), self._nulls(node.sections))
        known = self._signed.get(key)
        if known is None:
            vector = self._vector(node, policy_key)
            outcomes = self._judge_values(vector, world)
            self._signed.put(key, self._known(node, vector, outcomes, world))
            return outcomes
        vector, outcomes = [], [known.decided]
        for one in known.open:
            outcome = one.outcome if one.passes(node.sections) else self._quickly_alike(one, node)
            if outcome is None:
                vector = vector or self._vector(node, policy_key)
                outcome = one.remember(node, self._remembered(one.bundle, vector, world))
            outcomes.append(outcome)
        self.evaluations += known.evaluations
        return outcomes

    def _quickly_alike(self, one: Open, node: NodeView) -> BundleVerdicts | None:
        counts = one.quickly(node.sections)
        return one.remembered(node) if counts is None else self._empty.setdefault(counts, BundleVerdicts(counts, (), ()))

    def _nulls(self, sections: Any) -> tuple[Any, ...]:
        """Which names of the node's own are null, of those that decide whether a rule applies."""
        values = self._own_applies.values(sections)
        return tuple([value if value is None or (type(value) is str and value.startswith(NULL_ON_THE_WAY)) else True for value in values])

    def _judge_values(self, vector: list[Any], world: Callable[[], World]) -> list[BundleVerdicts]:
        return [self._judge_steady(vector, world), *(self._remembered(bundle, vector, world) for bundle in self._other)]

    def _known(self, node: NodeView, vector: list[Any], outcomes: list[BundleVerdicts], world: Callable[[], World]) -> Known:
        """What this node's signature decides, of the verdicts on it, and what it leaves open."""
        decided, left = [outcomes[0]], []
        for bundle, outcome in zip(self._other, outcomes[1:], strict=True):
            early = [self._early(number, node, vector, world) for number in bundle.rules]
            if None not in early:
                decided.append(outcome)
            else:
                left.append(self._open(bundle, early, vector, world))
        return Known(joined(decided), left, sum(len(one.functions) for one in left))

    def _early(self, number: int, node: NodeView, vector: list[Any], world: Callable[[], World]) -> Any:
        """The verdicts of a rule that does not apply, whatever the numbers are and what the node is called; None for every other."""
        applies = self.rules[number].applies
        own = [path for path in applies.reads if path in self._own_applies.place] if applies is not None else []
        if own and all(null is not True for path, null in zip(self._own_applies.paths, self._nulls(node.sections), strict=True) if path in own):
            return judge_applies(self.rules[number], world())
        return self._does_not_apply(number, vector, world)

    def _open(self, bundle: Bundle, early: list[Any], vector: list[Any], world: Callable[[], World]) -> Open:
        reads = {path for number in bundle.rules for path in self.rules[number].decision_reads if is_own(path)}
        left = Open(bundle, Extractor(fact_shapes(), (path for path in reads if path[0] in fact_shapes())), ("host",) in reads)
        functions, quick, counts, skipped = [], [], list[Any](), list[Any]()
        left.why = cache(lambda path: why_null(self._sections_now, path).kind)
        for number, verdicts in zip(bundle.rules, early, strict=True):
            rule, function, form = self.rules[number], self._passing[number], self._quick[number]
            if verdicts is not None and [one.verdict for one in verdicts] == ["skip"]:
                skipped.append((number, "skip", 1))
                continue
            steady = rule.applies is None or self._applies_places[number] is not None
            if verdicts is not None or not steady or not_all_read(rule, world()) is not None:
                return left
            quick += [(number, form)] if form is not None else []
            settled = None if function is None else function.settle(self._sections_now, left.why)
            if function is not None and settled is not None:
                functions.append(function.passes)
                counts += [(number, verdict, items) for verdict, items in settled]
        open_rules = len(bundle.rules) - len(skipped)
        left.skipped, left.quick = tuple(skipped), tuple(quick) if len(quick) == open_rules else ()
        if len(functions) < open_rules:
            return left
        counts += skipped
        left.functions, left.outcome = tuple(functions), BundleVerdicts(tuple(counts), (), ())
        return left

    def _judge_steady(self, vector: list[Any], world: Callable[[], World]) -> BundleVerdicts:
        """All steady bundles at once: nodes that are configured alike cost one look."""
        key = tuple([vector[place] for place in self._steady_places])
        outcome = self._steady_memory.get(key)
        if outcome is None:
            outcome = joined([self._remembered(bundle, vector, world) for bundle in self._steady])
            self._steady_memory.put(key, outcome)
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
        vector += [one if path[0] == "policy" else context_of(node, path[0]) for one, path in zip(known, self._others, strict=True)]
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


def view_of(document: NodeDocument, policy: dict[str, Any], policy_error: str) -> NodeView:
    """What rules see of a node document."""
    return NodeView(document.host, document.groups, policy, document.status, document.message or "", policy_error, document.sections)


def _applies_reads(rule: Rule) -> list[Path]:
    applies = rule.applies
    return [] if rule.scope != "node" or applies is None or "item" in applies.uses else [path for path in applies.reads if path[0] in fact_shapes()]


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
