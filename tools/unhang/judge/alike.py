"""Nodes that are configured alike: what that decides is looked up, and what is left are rules over what each node has of its own, most of which pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.judge.evaluating import Evaluator, joined
from unhang.judge.memory import BundleVerdicts
from unhang.judge.node_rules import NodeView
from unhang.judge.own_rules import Open, TheWorld

MOST_KNOWN = 2048


@dataclass
class Known:
    """What is known of all nodes that are configured alike, by bundle. quick: those that functions find to pass; others: the rest."""

    decided: list[BundleVerdicts]
    quick: Sequence[Open]
    others: Sequence[Open]
    functions: int = 0
    passed: BundleVerdicts | None = None  # decided and quick as one, where all functions pass; made when a second node is like this one

    def judge(self, node: NodeView, world: TheWorld, evaluator: Evaluator, not_first: bool) -> list[BundleVerdicts]:
        """All verdicts on one of these nodes. not_first: another one was judged before."""
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
    """What is known, by what nodes are configured as."""

    known: dict[Any, Known] = field(default_factory=dict)

    def put(self, key: Any, known: Known) -> Known:
        """Remembers it; gives it."""
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known[key] = known
        return known


def known_of(parts: Sequence[BundleVerdicts | Open], sections: Any) -> Known:
    """What each bundle says of nodes that are alike, put together. sections: of the first of them: a function that cannot tell there is not asked again."""
    opens = [one for one in parts if isinstance(one, Open)]
    quick = [one for one in opens if one.functions and one.passes(sections)]
    others = [one for one in opens if one not in quick]
    return Known([one for one in parts if not isinstance(one, Open)], quick, others, sum(len(one.functions) for one in quick))
