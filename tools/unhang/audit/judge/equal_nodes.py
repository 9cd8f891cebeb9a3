"""Nodes with equal configuration: decided verdicts are looked up, and only rules over a node's own values are judged again; most of those pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.audit.judge.evaluating import Evaluator, joined
from unhang.audit.judge.memory import BundleVerdicts
from unhang.audit.judge.node_rules import NodeView
from unhang.audit.judge.own_rules import Open, TheWorld

MOST_KNOWN = 2048


@dataclass
class Known:
    """Known results for all nodes with equal configuration, by bundle. quick: bundles that pass by functions; others: the rest."""

    decided: list[BundleVerdicts]
    quick: Sequence[Open]
    others: Sequence[Open]
    functions: int = 0
    passed: BundleVerdicts | None = None  # decided and quick combined, for the case that all functions pass; made when a second equal node comes

    def judge(self, node: NodeView, world: TheWorld, evaluator: Evaluator, not_first: bool) -> list[BundleVerdicts]:
        """All verdicts on one of these nodes. not_first: another of them was judged before."""
        sections = node.sections
        failing = [one for one in self.quick if not one.passes(sections)]
        if not_first and self.passed is None:
            self._join()
        if not failing and self.passed is not None:
            outcomes = [self.passed]
        else:
            outcomes = [*self.decided, *(one.judge(node, world, evaluator) if one in failing or one.outcome is None else one.outcome for one in self.quick)]
        evaluator.evaluations += self.functions
        return outcomes + [one.judge(node, world, evaluator) for one in self.others]

    def _join(self) -> None:
        self.decided = [joined(self.decided)]
        self.passed = joined([*self.decided, *(one.outcome for one in self.quick if one.outcome is not None)])


@dataclass
class Signed:
    """Known results by configuration."""

    known: dict[Any, Known] = field(default_factory=dict)

    def put(self, key: Any, known: Known) -> Known:
        """Stores the result and returns it."""
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known[key] = known
        return known


def known_of(parts: Sequence[BundleVerdicts | Open], sections: Any) -> Known:
    """The combined results of all bundles for equal nodes. sections: of the first of them; a function that cannot decide for it is not called again."""
    opens = [one for one in parts if isinstance(one, Open)]
    quick = [one for one in opens if one.functions and one.passes(sections)]
    others = [one for one in opens if one not in quick]
    return Known([one for one in parts if not isinstance(one, Open)], quick, others, sum(len(one.functions) for one in quick))
