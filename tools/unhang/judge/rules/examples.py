"""Runs a rule on its own examples: matches must fail, near misses must pass, and no rule may pass
silently when a deciding fact is removed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.run.documents import InvalidNode
from unhang.core.schemas.shapes import fact_shapes
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.groups import Ballot, add_votes, judge_group, peers_of
from unhang.judge.rules.node_rules import CatalogueView, judge_rule, node_world
from unhang.judge.rules.rules import Rule
from unhang.judge.rules.syntax import shape_at
from unhang.judge.rules.votes import compare_all

TODAY = "2026-11-20"  # the date on which the examples are judged, for rules that compare dates


@dataclass(frozen=True)
class Shortfall:
    """An example with another verdict than expected."""

    rule: str
    example: str  # match[0], near_miss[1], match[0] with gpus.count null
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.rule}: {self.example}: the rule must give {self.expected}, and gives"
            f" {self.found}"
        )


def catalogue_view(
    tables: Mapping[str, Any] | None = None, rule_ids: tuple[str, ...] = (), today: str = TODAY
) -> CatalogueView:
    """The view that rules have of the catalogue."""
    return CatalogueView(tables or {}, rule_ids, today)


def verdict_of(rule: Rule, fragment: Mapping[str, Any], view: CatalogueView) -> str:
    """The most severe verdict of a node rule on a fragment: fail, unknown, pass, skip."""
    found = {one.verdict for one in judge_rule(rule, node_world(example_node(fragment), view))}
    return next(verdict for verdict in ("fail", "unknown", "pass", "skip") if verdict in found)


def judge_example(rule: Rule, example: Any, view: CatalogueView) -> str:
    """The verdict on one example: a fragment, or for group scope a list of fragments."""
    if rule.scope == "node":
        return verdict_of(rule, example, view)
    return judge_fragments(rule, example, view)


def check_examples(
    rule: Rule, tables: Mapping[str, Any] | None = None, rule_ids: tuple[str, ...] = ()
) -> Iterator[Shortfall]:
    """Every example with another verdict than expected, also with its facts removed. Raises
    InvalidNode."""
    view = catalogue_view(tables, rule_ids)
    for key, wanted in (("match", ("fail",)), ("near_miss", ("pass", "skip"))):
        for place, example in enumerate(rule.row["examples"][key]):
            found = judge_example(rule, example, view)
            if found not in wanted:
                yield Shortfall(rule.id, f"{key}[{place}]", " or ".join(wanted), found)
            if key == "match" and rule.scope == "node":
                yield from _check_losses(rule, example, f"{key}[{place}]", view)


def _check_losses(
    rule: Rule, example: Mapping[str, Any], name: str, view: CatalogueView
) -> Iterator[Shortfall]:
    for how, loss, damaged in losses(rule, example):
        try:
            found = verdict_of(rule, damaged, view)
        except InvalidNode:
            continue  # maps, such as a module's parameters, contain no nulls
        allowed = (
            ("unknown", "fail", "skip") if how == "removed from a map" else ("unknown", "fail")
        )
        if found not in allowed:
            yield Shortfall(rule.id, f"{name} with {loss} {how}", " or ".join(allowed), found)


def losses(rule: Rule, example: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(null | removed | removed from a map | timeout, the lost path, the example without it) for
    each fact path that decides the rule."""
    if _may_be_asked(rule):
        return
    sections = set()
    for path in sorted(rule.decision_reads):
        if (
            path[0] not in fact_shapes()
            or path[0] not in example
            or path[1:3] == ("probe", "status")
        ):
            continue
        sections.add(path[0])
        for how in ("null", "removed"):
            damaged = copy.deepcopy(dict(example))
            if _damage(damaged, [part for part in path if part != "**"], how == "removed"):
                _say_unread(damaged, path)
                yield (
                    (
                        "removed from a map"
                        if how == "removed" and shape_at(path[:-1]).kind == "map"
                        else how
                    ),
                    ".".join(path),
                    damaged,
                )
    for section in sorted(sections):
        damaged = copy.deepcopy(dict(example))
        damaged[section] = {"probe": {"status": "timeout", "error": f"{section} did not answer"}}
        yield "timeout", section, damaged


def _say_unread(example: dict[str, Any], path: tuple[str, ...]) -> None:
    """Records in the section itself that the fact could not be read: a null without this may mean
    that there is no such thing."""
    section = example[path[0]]
    field = ".".join(part for part in path[1:] if part != "**").replace(".*", "[*]")
    field = field.removesuffix("[*]")
    probe = {"status": "ok", **section.get("probe", {})}
    section["probe"] = {
        **probe,
        "unread": [
            *probe.get("unread", ()),
            {"field": field, "status": "error", "reason": "taken away"},
        ],
    }


def _may_be_asked(rule: Rule) -> bool:
    """True when the rule tests 'is known' or 'is unknown': then a lost fact may change the
    verdict."""
    sources = [one.source for one in (rule.applies, rule.when, rule.for_each) if one is not None]
    return any(
        one in text for text in sources for one in (" is known", " is not known", " is unknown")
    )


def _damage(holder: Any, path: list[str], remove: bool) -> bool:
    """Sets the value at the path to null, or removes it; in every item of a list. False if there
    was none."""
    head, rest = path[0], path[1:]
    if head == "*":
        return (
            any(_damage(one, rest, remove) for one in holder if rest)
            if isinstance(holder, list)
            else False
        )
    if not isinstance(holder, dict) or holder.get(head) is None:
        return False
    if rest and rest != ["*"]:
        return _damage(holder[head], rest, remove)
    if remove:
        del holder[head]
    else:
        holder[head] = None
    return True


def judge_fragments(rule: Rule, fragments: Sequence[Mapping[str, Any]], view: CatalogueView) -> str:
    """The verdict of a group rule on a list of example nodes."""
    nodes = [example_node(fragment, f"node{place + 1}") for place, fragment in enumerate(fragments)]
    ballots: dict[tuple[str, str], Ballot] = {}
    for node in nodes:
        name = peers_of(node.groups, node.policy)
        for one in compare_all(rule, node_world(node, view)):
            add_votes(
                ballots.setdefault((name, one.entry), Ballot(name, one.item)), [node.host], one
            )
    found = [
        verdict
        for node in nodes
        for (name, _), ballot in ballots.items()
        if name == peers_of(node.groups, node.policy)
        for verdict in (one.verdict for one in judge_group(rule, ballot, node.policy, view))
    ]
    if any(ballot.lacking for ballot in ballots.values()):
        found.append("unknown")
    return next(
        (verdict for verdict in ("fail", "unknown", "pass", "skip") if verdict in found), "skip"
    )
