"""Rules that read what every node has of its own: measured numbers, names, processes. All that is decided without them is decided once for nodes alike.

The rest passes by a function (pass_code.py), passes or does not apply by its quick form (quick.py), is remembered by its own values, or judged
in full, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from unhang.judge.decided_alike import decided_alike
from unhang.judge.evaluating import Evaluator
from unhang.judge.extract import NULL_ON_THE_WAY, Extractor, has_fractions
from unhang.judge.memory import BundleVerdicts, Memory
from unhang.judge.node_rules import CatalogueView, NodeView, judge_applies, not_all_read, why_null
from unhang.judge.own_facts import is_own, lists_of
from unhang.judge.pass_code import CANNOT_TELL, PassRule, SkipRule, Vote, passing, skipping, voting
from unhang.judge.pass_writer import Passes
from unhang.judge.quick import QuickApplies, QuickRule, quick_applies, quick_rule
from unhang.judge.rules import Rule
from unhang.judge.syntax import Path
from unhang.judge.values import World
from unhang.schemas.shapes import fact_shapes

MOST_STANDING = 2048
TheWorld = Callable[[], World]


@dataclass(eq=False)
class Open:
    """A bundle that the rest of a node's configuration does not decide.

    functions: of its rules, () where one of them has none; outcome: what it comes to where all of them pass; quick: of its rules that may apply, () where one
    has none; skipped: counts of its rules that do not apply; votes: of its rules that compare nodes, () where one of its rules is none or has no function.
    """

    bundle: OwnBundle
    functions: tuple[Passes, ...] = ()
    outcome: BundleVerdicts | None = None
    quick: tuple[tuple[int, QuickRule | QuickApplies], ...] = ()
    skipped: tuple[tuple[int, str, int], ...] = ()
    votes: tuple[tuple[int, Vote], ...] = ()
    memory: Memory = field(default_factory=Memory)
    _kinds: dict[str, str] = field(default_factory=dict)  # path -> Unknown.kind of a null there
    _sections: Any = None

    def passes(self, sections: Any) -> bool:
        """Whether nothing is wrong; False also where only judging can tell."""
        try:
            for passes in self.functions:
                if not passes(sections):
                    return False
        except CANNOT_TELL:
            return False
        return True

    def judge(self, node: NodeView, world: TheWorld, evaluator: Evaluator) -> BundleVerdicts:
        """The verdicts on a node of which the functions cannot tell that they pass."""
        if self.votes and (voted := self._voted(node.sections, evaluator)) is not None:
            return voted
        quickly = self._quickly(node.sections) if self.quick else None
        if quickly is not None:
            return evaluator.plain(quickly)
        key = None if self.memory.given_up else self.bundle.own_values(node)
        outcome = self.memory.get(key)
        if outcome is None:
            outcome = evaluator.verdicts([(number, evaluator.answer(number, world())) for number in self.bundle.rules])
            self.memory.put(key, outcome)
        return outcome

    def _voted(self, sections: Any, evaluator: Evaluator) -> BundleVerdicts | None:
        """What a node brings to its rules' comparisons; None where only judging can tell."""
        try:
            votes = tuple([(number, vote.compared(sections)) for number, vote in self.votes])
        except CANNOT_TELL:
            return None
        evaluator.evaluations += len(votes)
        return BundleVerdicts((), (), votes)

    def why(self, path: str) -> str:
        """Unknown.kind of a null. What a section says of its own reading decides it, in which all nodes of this bundle are alike."""
        kind = self._kinds.get(path)
        if kind is None:
            kind = self._kinds[path] = why_null(self._sections, path).kind
        return kind

    def _quickly(self, sections: Any) -> tuple[tuple[int, str, int], ...] | None:
        """Its counts by the quick forms, where no rule is broken and nothing is missing."""
        self._sections = sections
        counts = list(self.skipped)
        for number, quick in self.quick:
            answer = quick.judge(sections, self.why)
            if answer is None:
                return None
            counts += [(number, one.verdict, one.items) for one in answer[0]]
        return tuple(counts)

    def settle(self, node: NodeView, early: Sequence[Any], world: World) -> None:
        """Finds which functions and quick forms hold for all nodes that are alike. early: of each rule, what is said of it without what is a node's own."""
        self._sections = node.sections
        functions, quick, counts, skipped, votes = [], [], list[Any](), list[Any](), list[Any]()
        for number, verdicts in zip(self.bundle.rules, early, strict=True):
            if verdicts is not None and [one.verdict for one in verdicts] == ["skip"]:
                skipped.append((number, "skip", 1))
                continue
            if verdicts is not None or not_all_read(self.bundle.rule(number), world) is not None:
                return
            forms = self.bundle.forms[number]
            quick += [(number, forms.quick)] if forms.quick is not None else []
            votes += [(number, forms.vote)] if forms.vote is not None else []
            settled = forms.shortcut.settle(node.sections, self.why) if forms.shortcut is not None else None
            if (skipping := self._skipped_alike(forms, node.sections)) is not None:
                functions.append(skipping[0])
                counts.append((number, "skip", skipping[1]))
            elif forms.shortcut is not None and settled is not None:
                functions.append(forms.shortcut.passes)
                counts += [(number, verdict, items) for verdict, items in settled]
        undecided = len(self.bundle.rules) - len(skipped)
        self.skipped, self.quick = tuple(skipped), tuple(quick) if len(quick) == undecided else ()
        self.votes = tuple(votes) if len(votes) == len(self.bundle.rules) else ()
        if len(functions) == undecided:
            self.functions, self.outcome = tuple(functions), BundleVerdicts((*counts, *skipped), (), ())

    def _skipped_alike(self, forms: _Forms, sections: Any) -> tuple[Passes, int] | None:
        """(the function that finds that a rule is skipped, for how many items), where the reason is a null that all nodes with the same signature have."""
        measured = forms.shortcut.measured if isinstance(forms.shortcut, PassRule) else None
        try:
            if measured is None or not isinstance(forms.quick, QuickRule) or not measured(sections):
                return None
        except CANNOT_TELL:
            return None
        answer = forms.quick.judge(sections, self.why)
        skipped = answer is not None and [one.verdict for one in answer[0]] == ["skip"]
        return (measured, answer[0][0].items) if answer is not None and skipped and answer[0][0].item is not None else None


@dataclass(frozen=True)
class _Forms:
    """What tells something of one rule without judging it in full: that it passes or does not apply; both, more slowly; what a node brings to a comparison."""

    shortcut: PassRule | SkipRule | None
    quick: QuickRule | QuickApplies | None
    vote: Vote | None


class OwnBundle:
    """Rules that read the same, of which some is a node's own. key: takes what else they read out of a vector."""

    def __init__(self, rules: Sequence[Rule], numbers: list[int], catalogue: CatalogueView, places: Sequence[int]):
        self._all = rules
        self.rules = numbers
        self.key = keyed(places)
        self.reads_facts = rules[numbers[0]].reads_facts
        own = {path for number in numbers for path in rules[number].decision_reads if is_own(path)}
        self._reads_host = ("host",) in own
        self._own = Extractor(fact_shapes(), (path for path in own if path[0] in fact_shapes()))
        self._is_spelt = any(has_fractions(fact_shapes().get(path[0]), path[1:]) for path in own)
        self._lists = Extractor(fact_shapes(), lists_of(own)) if all(lists_of([path]) for path in own) else None
        self.forms = {number: self._forms(number, catalogue) for number in numbers}
        of_applies = {path for number in numbers for path in self._own_applies(number)}
        self._nulls = Extractor(fact_shapes(), {path for path in of_applies if path[0] in fact_shapes() and "*" not in path})
        self.null_paths = self._nulls.paths
        self._standing: dict[Any, Any] = {}

    def rule(self, number: int) -> Rule:
        """A rule by its number."""
        return self._all[number]

    def standing(self, vector: Sequence[Any], node: NodeView, world: TheWorld, evaluator: Evaluator) -> BundleVerdicts | Open:
        """What is said of all nodes that are alike but for their own facts: verdicts, or what has to be asked of each."""
        key = (self.key(vector), nulls_of(self._nulls, node.sections))
        found = self._standing.get(key)
        if found is None:
            early = [self._early(number, node, world, evaluator) for number in self.rules]
            if None not in early:
                found = evaluator.verdicts(zip(self.rules, early, strict=True))
            else:
                found = Open(self)
                found.settle(node, early, world())
            if len(self._standing) >= MOST_STANDING:
                self._standing.clear()
            self._standing[key] = found
        return found

    def forget(self) -> None:
        """Forgets all that is keyed by numbers of a vector."""
        self._standing.clear()

    def own_values(self, node: NodeView) -> Any:
        """What the rules read of a node's own, as something hashable."""
        values = (node.host if self._reads_host else None, *self._own.values(node.sections))
        return repr(values) if self._is_spelt else values

    def _forms(self, number: int, catalogue: CatalogueView) -> _Forms:
        rule, tables = self._all[number], (catalogue.tables, catalogue.tables_shape)
        applies_alike = rule.applies is None or ("item" not in rule.applies.uses and not self._own_applies(number))  # to all nodes that are alike, or none
        return _Forms(passing(rule, *tables) if applies_alike else skipping(rule, *tables), _quick(rule, catalogue), voting(rule, *tables))

    def _own_applies(self, number: int) -> list[Path]:
        applies = self._all[number].applies
        return [] if self._all[number].scope != "node" or applies is None or "item" in applies.uses else [path for path in applies.reads if is_own(path)]

    def _early(self, number: int, node: NodeView, world: TheWorld, evaluator: Evaluator) -> Any:
        """The verdicts of a rule, whatever the numbers are and what the node is called: it does not apply, or there are no items with any; else None."""
        rule = self._all[number]
        if self._lists is not None and not any(type(length) is int and length > 0 for length in self._lists.values(node.sections)):
            return evaluator.answer(number, world())
        if self.forms[number].shortcut is None and (found := decided_alike(rule, world())) is not None:
            return found
        if rule.scope != "node" or rule.applies is None or "item" in rule.applies.uses:
            return None
        own = self._own_applies(number)
        if own:
            null = dict(zip(self._nulls.paths, nulls_of(self._nulls, node.sections), strict=True))
            if any(null.get(path, True) is True for path in own):
                return None
        evaluator.mark(rule.id)
        return judge_applies(rule, world())


def nulls_of(extractor: Extractor, sections: Any) -> tuple[Any, ...]:
    """Which values are null, or stand below a null; True for each other."""
    if not extractor.paths:
        return ()
    values = extractor.values(sections)
    return tuple([value if value is None or (type(value) is str and value.startswith(NULL_ON_THE_WAY)) else True for value in values])


def keyed(places: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    """Takes the values at these places, as something hashable."""
    return itemgetter(*places) if places else lambda vector: ()


def _quick(rule: Rule, catalogue: CatalogueView) -> QuickRule | QuickApplies | None:
    found = quick_rule(rule, catalogue.tables, catalogue.tables_shape)
    if found is None and rule.applies is not None and any(is_own(path) for path in rule.applies.reads):
        return quick_applies(rule, catalogue.tables, catalogue.tables_shape)
    return found
