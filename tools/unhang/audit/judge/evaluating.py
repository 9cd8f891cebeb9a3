"""Judges single rules of a catalogue on single nodes, and counts the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from unhang.audit.judge.groups import Compared, compare_node
from unhang.audit.judge.memory import BundleVerdicts
from unhang.audit.judge.node_rules import Judged, judge_rule
from unhang.audit.judge.rules import Rule
from unhang.audit.judge.values import World

Answer = Any  # list[Judged], or Compared for a rule over several nodes


class Evaluator:
    """Judges rules in full. mark(rule id): called before a rule is evaluated, so that one that never ends can be named."""

    def __init__(self, rules: Sequence[Rule], mark: Callable[[str], None]):
        self.rules = rules
        self.mark = mark
        self.evaluations = 0
        self._plain: dict[Any, BundleVerdicts] = {}  # verdicts that no list shows; one object for all nodes that share them

    def begin(self, number: int) -> Rule:
        """Marks the rule that is evaluated next."""
        rule = self.rules[number]
        self.mark(rule.id)
        self.evaluations += 1
        return rule

    def answer(self, number: int, world: World) -> Answer:
        """The verdicts of a rule on a node."""
        rule = self.begin(number)
        return judge_rule(rule, world) if rule.scope == "node" else compare_node(rule, world)

    def verdicts(self, answers: Iterable[tuple[int, Answer]]) -> BundleVerdicts:
        """The verdicts of several rules on a node, together."""
        counts: list[tuple[int, str, int]] = []
        listed: list[tuple[int, Judged]] = []
        compared: list[tuple[int, Compared]] = []
        for number, answer in answers:
            if isinstance(answer, Compared):
                compared.append((number, answer))
                continue
            tally: dict[str, int] = {}
            for judged in answer:
                tally[judged.verdict] = tally.get(judged.verdict, 0) + judged.items
                if judged.verdict in ("fail", "unknown"):
                    listed.append((number, judged))
            counts += [(number, verdict, count) for verdict, count in tally.items()]
        return BundleVerdicts(tuple(counts), tuple(listed), tuple(compared)) if listed or compared else self.plain(tuple(counts))

    def plain(self, counts: tuple[tuple[int, str, int], ...]) -> BundleVerdicts:
        """Counts of verdicts that are not listed."""
        return self._plain.setdefault(counts, BundleVerdicts(counts, (), ()))


def joined(parts: Sequence[BundleVerdicts]) -> BundleVerdicts:
    """The verdicts of several bundles combined into one."""
    return BundleVerdicts(
        tuple(one for part in parts for one in part.counts),
        tuple(one for part in parts for one in part.listed),
        tuple(one for part in parts for one in part.compared),
    )
