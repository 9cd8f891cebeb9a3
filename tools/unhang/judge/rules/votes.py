"""What one node gives to a comparison of nodes: a value, or why it has none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from unhang.judge.rules.node_rules import Judged, not_all_read, undecided
from unhang.judge.rules.rules import Rule
from unhang.judge.rules.syntax import Path
from unhang.judge.rules.values import Fact, RuleStopped, Undecided, Unknown, World, frozen, plain


@dataclass(frozen=True)
class Compared:
    """A node's result of `compare`: a value, or the verdict unknown or skip. entry: which item of
    the rule's list it is of, or with which nodes of the group it is compared (`within`), and item:
    its fields."""

    key: Any = None
    value: Any = None
    judged: Judged | None = None
    entry: str = ""
    item: Mapping[str, Any] | None = None


def compare_all(rule: Rule, world: World) -> list[Compared]:
    """The value of one node in the comparison, or one for each item of the rule's list."""
    if rule.for_each is None:
        return [compare_node(rule, world)]
    world.begin()
    try:
        items = world.items(rule.for_each.evaluate(world))
    except (Undecided, RuleStopped):
        return [compare_node(rule, world.with_item(Unknown("unread", "", "error", "no list")))]
    return [
        replace(
            compare_node(rule, world.with_item(one), _reads_of(one)),
            entry=one.path,
            item=one.value if isinstance(one, Fact) else None,
        )
        for one in items
    ]


def _reads_of(item: Any) -> Collection[Path]:
    """The facts that an item compares, where it says which."""
    reads = item.value["reads"] if isinstance(item, Fact) else ()
    return [tuple(one.split(".")) for one in reads]


def compare_node(rule: Rule, world: World, reads: Collection[Path] = ()) -> Compared:
    """The value of one node in the comparison. reads: the facts that it compares, if not all that
    the rule reads."""
    assert rule.compare is not None
    world.begin()
    path = next(iter(sorted(".".join(path) for path in rule.compare.reads)), "")
    try:
        if rule.applies is not None and not plain(rule.applies.evaluate(world)):
            return Compared(judged=Judged("skip"))
        value = plain(rule.compare.evaluate(world))
        entry = "" if rule.within is None else str(plain(rule.within.evaluate(world)))
        # a list that was read in part is not compared: it would differ from its peers' only because
        # of the missing rest
        partly = not_all_read(reads or rule.decision_reads, world)
        return Compared(judged=partly) if partly else Compared(frozen(value), value, entry=entry)
    except (Undecided, RuleStopped) as problem:
        return Compared(judged=undecided(rule, problem, path=path))
