"""Nodes that are configured alike: what their signature decides is looked up, and what is left are rules over measured numbers, most of which pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.judge.extract import Extractor
from unhang.judge.memory import Bundle, BundleVerdicts, Memory
from unhang.judge.node_rules import NodeView
from unhang.judge.pass_code import CANNOT_TELL, Passes
from unhang.judge.quick import QuickRule
from unhang.judge.quick_values import WhyNull

GIVE_UP_AFTER = 256  # signatures, of which most were met once: a fleet in which no node is like another
MOST_KNOWN = 1024


@dataclass
class Open:
    """A bundle that reads measured numbers, or names of the node's own, and that the signature does not decide.

    own: what it reads of these; functions: of its rules, () where one of them has none; outcome: what it comes to where all of them pass.
    """

    bundle: Bundle
    own: Extractor
    reads_host: bool
    functions: tuple[Passes, ...] = ()
    quick: tuple[tuple[int, QuickRule], ...] = ()  # of its rules that apply, () where one of them has none
    skipped: tuple[tuple[int, str, int], ...] = ()  # counts of its rules that do not
    why: WhyNull = str
    outcome: BundleVerdicts | None = None
    memory: Memory = field(default_factory=Memory)

    def passes(self, sections: Any) -> bool:
        """Whether nothing is wrong; False also where only judging can tell."""
        if not self.functions:
            return False
        try:
            return all(passes(sections) for passes in self.functions)
        except CANNOT_TELL:
            return False

    def quickly(self, sections: Any) -> tuple[tuple[int, str, int], ...] | None:
        """Its counts by the quick forms, where no rule is broken and nothing is missing."""
        counts = list(self.skipped)
        for number, quick in self.quick:
            answer = quick.judge(sections, self.why)
            if answer is None:
                return None
            counts += [(number, one.verdict, one.items) for one in answer[0]]
        return tuple(counts) if self.quick else None

    def remembered(self, node: NodeView) -> BundleVerdicts | None:
        """What was said of a node that has these numbers and names too."""
        return None if self.memory.given_up else self.memory.get(self._key(node))

    def remember(self, node: NodeView, outcome: BundleVerdicts) -> BundleVerdicts:
        """Gives the outcome."""
        if not self.memory.given_up:
            self.memory.put(self._key(node), outcome)
        return outcome

    def _key(self, node: NodeView) -> tuple[Any, ...]:
        return (node.host if self.reads_host else None, *self.own.values(node.sections))


@dataclass
class Known:
    """What is known of all nodes with one signature. evaluations: rules that are evaluated on each of them."""

    decided: BundleVerdicts
    open: Sequence[Open]
    evaluations: int


@dataclass
class Signed:
    """What is known by signature. Given up where hardly any two nodes are alike."""

    known: dict[Any, Known] = field(default_factory=dict)
    hits: int = 0
    given_up: bool = False

    def get(self, key: Any) -> Known | None:
        """What is known of this signature."""
        found = self.known.get(key)
        self.hits += found is not None
        return found

    def put(self, key: Any, known: Known) -> None:
        """Remembers it."""
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known[key] = known
        if len(self.known) >= GIVE_UP_AFTER and self.hits < len(self.known):
            self.known.clear()
            self.given_up = True


def joined(parts: Sequence[BundleVerdicts]) -> BundleVerdicts:
    """Several bundles' verdicts as those of one."""
    return BundleVerdicts(
        tuple(one for part in parts for one in part.counts),
        tuple(one for part in parts for one in part.listed),
        tuple(one for part in parts for one in part.compared),
    )
