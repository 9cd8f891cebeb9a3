"""Judges many nodes: rules that read the same facts are judged once for each distinct set of the
values of these facts, not once for each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from unhang.core.run.documents import NodeDocument
from unhang.core.schemas.shapes import fact_shapes
from unhang.judge.rules.describing import Description, described, items_of, quoted
from unhang.judge.rules.node_rules import CatalogueView, Judged, NodeView, judge_rule, node_world
from unhang.judge.rules.read_facts import Read, reader_of, reader_of_account, value_at
from unhang.judge.rules.rules import Rule
from unhang.judge.rules.syntax import Path
from unhang.judge.rules.values import World
from unhang.judge.rules.votes import Compared, compare_all

Made = TypeVar("Made")
# answers of one group of rules; facts that differ on every node must not fill the memory
MOST_KNOWN = 256


@dataclass(frozen=True)
class Answers:
    """The verdicts of a group of rules. counts: (rule, verdict, how many items); listed: (rule,
    verdict that a person must see, its descriptions by the values that they quote); compared:
    values of rules over several nodes."""

    counts: tuple[tuple[int, str, int], ...]
    listed: tuple[tuple[int, Judged, dict[Any, Description]], ...]
    compared: tuple[tuple[int, Compared], ...]


class Listed(NamedTuple):
    """A verdict that a person must see. rule: its number; where: the place on the node."""

    rule: int
    judged: Judged
    texts: dict[str, str]
    where: dict[str, Any]


@dataclass(frozen=True)
class NodeVerdicts:
    """The verdicts of all rules on one node. unread: whether its facts were not read."""

    answers: list[Answers]
    listed: list[Listed]
    unread: bool


@dataclass(frozen=True)
class _Group:
    """Rules that read the same facts. key_of: their values among all values of a node."""

    rules: tuple[int, ...]
    reads_facts: bool
    key_of: Callable[[Sequence[bytes]], Any]
    known: dict[Any, Answers] = field(default_factory=dict)


class Engine:
    """Judges node after node; remembers verdicts, never documents. mark(rule id): called before a
    rule is judged, so that one that never ends can be reported."""

    def __init__(
        self,
        rules: Sequence[Rule],
        catalogue: CatalogueView,
        mark: Callable[[str], None] = lambda rule: None,
    ):
        self.rules, self.catalogue, self.mark = list(rules), catalogue, mark
        self.evaluations = 0
        numbers: dict[frozenset[Path], list[int]] = {}
        for number, rule in enumerate(self.rules):
            numbers.setdefault(rule.decision_reads, []).append(number)
        quotes = [quoted(rule) for rule in self.rules]
        paths = sorted({path for reads in (*numbers, *quotes) for path in reads})
        sections = sorted({path[0] for path in paths if path[0] in fact_shapes()})
        facts = [path for path in paths if path[0] in fact_shapes()]
        self._others = [path for path in paths if path[0] not in fact_shapes()]
        self._readers: list[Read] = [
            *map(reader_of_account, sections),
            *(reader_of([path]) for path in facts),
        ]
        place: dict[Any, int] = {
            name: at for at, name in enumerate([*sections, *facts, *self._others])
        }
        self._groups = [
            _Group(
                tuple(rules), any(path[0] in fact_shapes() for path in reads), _key(reads, place)
            )
            for reads, rules in numbers.items()
        ]
        self._quoted_of = [_key(reads, place) for reads in quotes]

    def judge(self, node: NodeView) -> NodeVerdicts:
        """All verdicts on one node; on a node that was not read, of the rules that read no
        facts."""
        worlds: list[World] = []

        def world() -> World:
            if not worlds:
                worlds.append(node_world(node, self.catalogue))
            return worlds[0]

        values = (
            [b""] * len(self._readers)
            if node.sections is None
            else [read(node.sections) for read in self._readers]
        )
        values += [
            value_at(node.policy, path[1:])
            if path[0] == "policy"
            else value_at(getattr(node, path[0], None), ())
            for path in self._others
        ]
        groups = [
            group for group in self._groups if node.sections is not None or not group.reads_facts
        ]
        answers = [
            _entry_of(group.known, group.key_of(values), partial(self._judged, group.rules, world))
            for group in groups
        ]
        items: dict[str, dict[str, Any]] = {}
        listed = [
            Listed(
                number,
                judged,
                *_entry_of(
                    known,
                    self._quoted_of[number](values),
                    partial(self._described, number, judged, world, items),
                ),
            )
            for one in answers
            for number, judged, known in one.listed
        ]
        return NodeVerdicts(answers, listed, node.sections is None)

    def _described(
        self,
        number: int,
        judged: Judged,
        world: Callable[[], World],
        items: dict[str, dict[str, Any]],
    ) -> Description:
        """items: rule -> the items of its list on this node, evaluated for its first finding."""
        rule = self.rules[number]
        if judged.item is not None and rule.id not in items:
            items[rule.id] = items_of(rule, world())
        return described(rule, judged, world(), items.get(rule.id, {}))

    def _judged(self, rules: Sequence[int], world: Callable[[], World]) -> Answers:
        tally: dict[tuple[int, str], int] = {}
        listed: list[tuple[int, Judged, dict[Any, Description]]] = []
        compared: list[tuple[int, Compared]] = []
        for number in rules:
            rule = self.rules[number]
            self.mark(rule.id)
            self.evaluations += 1
            if rule.scope != "node":
                compared += [(number, one) for one in compare_all(rule, world())]
                continue
            for judged in judge_rule(rule, world()):
                tally[number, judged.verdict] = (
                    tally.get((number, judged.verdict), 0) + judged.items
                )
                if judged.verdict in ("fail", "unknown"):
                    listed.append((number, judged, {}))
        return Answers(
            tuple((*of, count) for of, count in tally.items()), tuple(listed), tuple(compared)
        )


def _key(reads: frozenset[Path], place: Mapping[Any, int]) -> Callable[[Sequence[bytes]], Any]:
    """A function that takes the values at these paths, and the accounts of their sections, from all
    values of a node."""
    places = sorted(
        {place[path] for path in reads}
        | {place[path[0]] for path in reads if path[0] in fact_shapes()}
    )
    return itemgetter(*places) if places else lambda values: ()


def _entry_of(known: dict[Any, Made], key: Any, make: Callable[[], Made]) -> Made:
    """The entry of this key, made if there is none."""
    found = known.get(key)
    if found is None:
        if len(known) >= MOST_KNOWN:
            known.clear()
        found = known[key] = make()
    return found


def view_of(document: NodeDocument, policy: dict[str, Any], policy_error: str) -> NodeView:
    """The view that rules have of a node document."""
    return NodeView(
        document.host,
        document.groups,
        policy,
        document.status,
        document.message or "",
        policy_error,
        document.sections,
    )
