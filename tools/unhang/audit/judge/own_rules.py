"""Rules that read a node's own values: measured numbers, names, processes. The parts that do not depend on these are decided once for equal nodes. For the
rest the judge tries, in this order: a function that proves a pass (pass_code.py), the quick form (quick.py), the cache by a node's own values, and the full
judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from unhang.audit.judge.equal_decisions import equal_decisions
from unhang.audit.judge.evaluating import Evaluator
from unhang.audit.judge.extract import NULL_ON_THE_WAY, Extractor, has_fractions
from unhang.audit.judge.memory import BundleVerdicts, Memory
from unhang.audit.judge.node_rules import CatalogueView, NodeView, judge_applies, not_all_read, why_null
from unhang.audit.judge.own_facts import is_own, lists_of
from unhang.audit.judge.pass_code import CANNOT_TELL, ApplyRule, PassRule, SkipRule, Vote, applying, passing, skipping, voting
from unhang.audit.judge.pass_writer import Passes
from unhang.audit.judge.quick import QuickApplies, QuickRule, quick_applies, quick_rule
from unhang.audit.judge.rules import Rule
from unhang.audit.judge.syntax import Path
from unhang.audit.judge.values import World
from unhang.schemas.shapes import fact_shapes

MOST_STANDING = 2048
TheWorld = Callable[[], World]


@dataclass(eq=False)
class Open:
    """A bundle that a node's configuration alone does not decide. functions: of its rules, () if one has none; outcome: the result if all of them pass;
    quick: quick forms of its rules that may apply, () if one has none; skipped: counts of its rules that do not apply; votes: functions of its rules that
    compare nodes, () if one of its rules does not compare or has no function.
    """

    bundle: OwnBundle
    functions: tuple[Passes, ...] = ()
    outcome: BundleVerdicts | None = None
    quick: tuple[tuple[int, QuickRule | QuickApplies], ...] = ()
    skipped: tuple[tuple[int, str, int], ...] = ()
    votes: tuple[tuple[int, Vote], ...] = ()
    memory: Memory = field(default_factory=Memory)
    _kinds: dict[str, str] = field(default_factory=dict)  # path -> Unknown.kind of a null at this path
    _sections: Any = None

    def passes(self, sections: Any) -> bool:
        """Whether all rules pass; False also if only the full judge can decide."""
        return proves(self.functions, sections)

    def judge(self, node: NodeView, world: TheWorld, evaluator: Evaluator) -> BundleVerdicts:
        """The verdicts on a node for which the functions do not prove a pass."""
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
        """A node's values in its rules' comparisons; None if only the full judge can decide."""
        try:
            votes = tuple([(number, vote.compared(sections)) for number, vote in self.votes])
        except CANNOT_TELL:
            return None
        evaluator.evaluations += len(votes)
        return BundleVerdicts((), (), votes)

    def why(self, path: str) -> str:
        """Unknown.kind of a null, from the section's report about its own reading, which is equal for all nodes of this bundle."""
        kind = self._kinds.get(path)
        if kind is None:
            kind = self._kinds[path] = why_null(self._sections, path).kind
        return kind

    def _quickly(self, sections: Any) -> tuple[tuple[int, str, int], ...] | None:
        """The bundle's counts by the quick forms, if no rule fails and no fact is missing."""
        self._sections = sections
        counts = list(self.skipped)
        for number, quick in self.quick:
            answer = quick.judge(sections, self.why)
            if answer is None:
                return None
            counts += [(number, one.verdict, one.items) for one in answer[0]]
        return tuple(counts)

    def decide(self, node: NodeView, early: Sequence[Any], world: World) -> None:
        """Finds which functions and quick forms hold for all equal nodes. early: for each rule, its result without a node's own facts."""
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
            shortcut = forms.applying if forms.applying is not None and proves([forms.applying.passes], node.sections) else forms.shortcut
            decided = shortcut.decide(node.sections, self.why) if shortcut is not None else None
            if (skipping := self._skipped_alike(forms, node.sections)) is not None:
                functions.append(skipping[0])
                counts.append((number, "skip", skipping[1]))
            elif shortcut is not None and decided is not None:
                functions.append(shortcut.passes)
                counts += [(number, verdict, items) for verdict, items in decided]
        undecided = len(self.bundle.rules) - len(skipped)
        self.skipped, self.quick = tuple(skipped), tuple(quick) if len(quick) == undecided else ()
        self.votes = tuple(votes) if len(votes) == len(self.bundle.rules) else ()
        if len(functions) == undecided:
            self.functions, self.outcome = tuple(functions), BundleVerdicts((*counts, *skipped), (), ())

    def _skipped_alike(self, forms: _Forms, sections: Any) -> tuple[Passes, int] | None:
        """(the function that decides that a rule is skipped, number of items), if the reason is a null that all nodes with the same signature have."""
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
    """Functions that decide one rule without judging it in full: that it passes or does not apply; that it passes where its `applies` is measured; both, more
    slowly; a node's value in a comparison."""

    shortcut: PassRule | SkipRule | None
    applying: ApplyRule | None
    quick: QuickRule | QuickApplies | None
    vote: Vote | None


class OwnBundle:
    """Rules that read the same values, some of them a node's own. key: extracts the other values from a vector."""

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
        """The result for all nodes that are equal except for their own facts: verdicts, or what must be decided for each."""
        key = (self.key(vector), nulls_of(self._nulls, node.sections))
        found = self._standing.get(key)
        if found is None:
            early = [self._early(number, node, world, evaluator) for number in self.rules]
            if None not in early:
                found = evaluator.verdicts(zip(self.rules, early, strict=True))
            else:
                found = Open(self)
                found.decide(node, early, world())
            if len(self._standing) >= MOST_STANDING:
                self._standing.clear()
            self._standing[key] = found
        return found

    def forget(self) -> None:
        """Drops all cache entries whose keys are numbers of a vector."""
        self._standing.clear()

    def own_values(self, node: NodeView) -> Any:
        """The node's own values that the rules read, as a hashable key."""
        values = (node.host if self._reads_host else None, *self._own.values(node.sections))
        return repr(values) if self._is_spelt else values

    def _forms(self, number: int, catalogue: CatalogueView) -> _Forms:
        rule, tables = self._all[number], (catalogue.tables, catalogue.tables_shape)
        applies_alike = rule.applies is None or ("item" not in rule.applies.uses and not self._own_applies(number))  # the same for all equal nodes
        shortcut = passing(rule, *tables) if applies_alike else skipping(rule, *tables)
        return _Forms(shortcut, None if applies_alike else applying(rule, *tables), _quick(rule, catalogue), voting(rule, *tables))

    def _own_applies(self, number: int) -> list[Path]:
        applies = self._all[number].applies
        return [] if self._all[number].scope != "node" or applies is None or "item" in applies.uses else [path for path in applies.reads if is_own(path)]

    @staticmethod
    def _why_null(node: NodeView) -> Callable[[str], str]:
        return lambda path: why_null(node.sections, path).kind

    def _early(self, number: int, node: NodeView, world: TheWorld, evaluator: Evaluator) -> Any:
        """The verdicts of a rule that follow without any number or name, because the rule does not apply or has no items; else None."""
        rule = self._all[number]
        if self._lists is not None and not any(type(length) is int and length > 0 for length in self._lists.values(node.sections)):
            return evaluator.answer(number, world())
        shortcut = self.forms[number].shortcut
        if (shortcut is None or shortcut.decide(node.sections, self._why_null(node)) is None) and (found := equal_decisions(rule, world())) is not None:
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


def proves(functions: Sequence[Passes], sections: Any) -> bool:
    """Whether all functions answer yes; False also if one of them cannot tell."""
    try:
        for passes in functions:
            if not passes(sections):
                return False
    except CANNOT_TELL:
        return False
    return True


def nulls_of(extractor: Extractor, sections: Any) -> tuple[Any, ...]:
    """Marks of the values that are null or below a null; True for each other value."""
    if not extractor.paths:
        return ()
    values = extractor.values(sections)
    return tuple([value if value is None or (type(value) is str and value.startswith(NULL_ON_THE_WAY)) else True for value in values])


def keyed(places: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    """A function that returns the values at these places as a hashable key."""
    return itemgetter(*places) if places else lambda vector: ()


def _quick(rule: Rule, catalogue: CatalogueView) -> QuickRule | QuickApplies | None:
    found = quick_rule(rule, catalogue.tables, catalogue.tables_shape)
    if found is None and rule.applies is not None and any(is_own(path) for path in rule.applies.reads):
        return quick_applies(rule, catalogue.tables, catalogue.tables_shape)
    return found
