"""Judges many nodes: every rule once for each distinct vector of the values that it reads, not once for each node.

A node's configuration is extracted part by part (vectors.py), parts with the same bytes once. Verdicts of nodes with equal configuration are looked up
(equal_nodes.py). For other nodes each bundle of rules is looked up: rules that read no measured number and no name of a node by all values that they read
(steady_rules.py), other rules by the remaining values that they read (own_rules.py). Rules without a cached verdict are judged in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.audit.judge.describing import Describer, context_of
from unhang.audit.judge.documents import NodeDocument, part_names
from unhang.audit.judge.equal_nodes import Signed, known_of
from unhang.audit.judge.evaluating import Evaluator
from unhang.audit.judge.expression import Path
from unhang.audit.judge.extract import Extractor, freeze, taker
from unhang.audit.judge.memory import BundleVerdicts
from unhang.audit.judge.node_rules import CatalogueView, Judged, NodeView, node_world
from unhang.audit.judge.own_facts import is_own, lists_of
from unhang.audit.judge.own_rules import OwnBundle, TheWorld, nulls_of
from unhang.audit.judge.rules import Rule
from unhang.audit.judge.steady_rules import SteadyBundle
from unhang.audit.judge.values import World
from unhang.audit.judge.vectors import Vectors
from unhang.schemas.shapes import fact_shapes, policy_shape


@dataclass(frozen=True)
class NodeVerdicts:
    """The verdicts of the rules on one node."""

    outcomes: list[BundleVerdicts]
    listed: list[tuple[int, Judged, dict[str, str], dict[str, Any]]]  # rule, verdict, texts, where
    unread: bool


class Engine:
    """Judges node after node; remembers verdicts and parts of documents, never documents.

    mark(rule id): called before a rule is evaluated, so that a rule that never ends can be named.
    """

    def __init__(self, rules: Sequence[Rule], catalogue: CatalogueView, mark: Callable[[str], None] = lambda rule: None):
        self.rules = list(rules)
        self.catalogue = catalogue
        self._evaluator = Evaluator(self.rules, mark)
        read = {path for rule in rules for path in (*rule.decision_reads, *lists_of(rule.decision_reads))}
        self._vectors = Vectors((path for path in read if path[0] in fact_shapes() and not is_own(path)), part_names())
        self._others = sorted(path for path in read if path[0] not in fact_shapes() and not is_own(path))
        self._place = self._vectors.place | {path: self._vectors.length + number for number, path in enumerate(self._others)}
        self._contexts = sorted({path[0] for path in self._others if path[0] != "policy"})
        self._steady, self._own = self._make_bundles()
        self._nulls = Extractor(fact_shapes(), {path for bundle in self._own for path in bundle.null_paths})
        self._policy_values: dict[int, list[Any]] = {}
        self._signed = Signed()
        self._describer = Describer(self.rules)

    @property
    def evaluations(self) -> int:
        """How often a rule was evaluated on a node."""
        return self._evaluator.evaluations

    @evaluations.setter
    def evaluations(self, number: int) -> None:
        self._evaluator.evaluations = number

    @property
    def mark(self) -> Callable[[str], None]:
        """Called before a rule is evaluated."""
        return self._evaluator.mark

    def _places_of(self, number: int) -> list[int]:
        """Places in a vector of the values that a rule reads, without a node's own facts."""
        reads = self.rules[number].decision_reads
        accounts = {self._vectors.account_place[path[0]] for path in reads if path[0] in self._vectors.account_place}
        return sorted({self._place[path] for path in (*reads, *lists_of(reads)) if not is_own(path)} | accounts)

    def _make_bundles(self) -> tuple[list[SteadyBundle], list[OwnBundle]]:
        steady: dict[Any, list[int]] = {}
        own: dict[Any, list[int]] = {}
        for number, rule in enumerate(self.rules):
            if any(is_own(path) for path in rule.decision_reads):
                own.setdefault(rule.decision_reads, []).append(number)
            else:
                steady.setdefault(frozenset(path[0] for path in rule.decision_reads), []).append(number)
        return (
            [SteadyBundle(numbers, self._places_of, self.rules[numbers[0]].reads_facts) for numbers in steady.values()],
            [OwnBundle(self.rules, numbers, self.catalogue, self._places_of(numbers[0])) for numbers in own.values()],
        )

    def judge(self, node: NodeView, policy_key: int) -> NodeVerdicts:
        """All verdicts on one node. policy_key: equal policies have the same number."""
        worlds: list[World] = []

        def world() -> World:
            if not worlds:
                worlds.append(node_world(node, self.catalogue))
            return worlds[0]

        outcomes = self._judge_unread(node, policy_key, world) if node.sections is None else self._judge_read(node, policy_key, world)
        items: dict[int, dict[str, Any]] = {}
        listed = []
        for outcome in outcomes:
            outcome.hits += 1
            for rule, judged in outcome.listed:
                listed.append((rule, judged, *self._describer.describe(rule, judged, node, world, items)))
        return NodeVerdicts(outcomes, listed, node.sections is None)

    def _judge_unread(self, node: NodeView, policy_key: int, world: TheWorld) -> list[BundleVerdicts]:
        vector = [*([None] * self._vectors.length), *self._other_values(node, policy_key)]
        evaluator = self._evaluator
        own = [evaluator.verdicts([(number, evaluator.answer(number, world())) for number in bundle.rules]) for bundle in self._own if not bundle.reads_facts]
        return [*(bundle.judge(vector, world, evaluator) for bundle in self._steady if not bundle.reads_facts), *own]

    def _judge_read(self, node: NodeView, policy_key: int, world: TheWorld) -> list[BundleVerdicts]:
        """All verdicts on a node that was read; looked up if its configuration is known."""
        if self._vectors.full():
            self._forget()
        slices = self._vectors.of(node.sections, node.seen)
        key = (policy_key, slices, nulls_of(self._nulls, node.sections), *[context_of(node, name) for name in self._contexts])
        known = self._signed.known.get(key)
        not_first = known is not None
        if known is None:
            vector = [*self._vectors.vector(slices), *self._other_values(node, policy_key)]
            steady = [bundle.judge(vector, world, self._evaluator) for bundle in self._steady]
            own = [bundle.standing(vector, node, world, self._evaluator) for bundle in self._own]
            known = self._signed.put(key, known_of([*steady, *own], node.sections))
        return known.judge(node, world, self._evaluator, not_first)

    def _forget(self) -> None:
        self._vectors.forget()
        self._signed.known.clear()
        for steady in self._steady:
            steady.forget()
        for own in self._own:
            own.forget()

    def _other_values(self, node: NodeView, policy_key: int) -> list[Any]:
        """Values that rules read besides the facts."""
        known = self._policy_values.get(policy_key)
        if known is None:
            known = self._policy_values[policy_key] = [_policy_value(node.policy, path) for path in self._others]
        return [one if path[0] == "policy" else context_of(node, path[0]) for one, path in zip(known, self._others, strict=True)]


def view_of(document: NodeDocument, policy: dict[str, Any], policy_error: str) -> NodeView:
    """The view that rules have of a node document."""
    return NodeView(document.host, document.groups, policy, document.status, document.message or "", policy_error, document.sections, document.seen)


def _policy_value(policy: Mapping[str, Any], path: Path) -> Any:
    if path[0] != "policy":
        return None
    take = taker(policy_shape(), path[1:])
    return repr(freeze(policy if take is None else take(policy)))  # 1, 1.0 and true are equal in Python but are printed differently
