"""What a rule is refused for among the rules and tables of its catalogue. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.catalogue.explains import explained_by
from unhang.judge.rules.clashing_advice import clashing_rules
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import (
    TODAY,
    catalogue_view,
    judge_example,
    verdict_of,
)
from unhang.judge.rules.node_rules import CatalogueView, finding_texts, judge_rule, node_world
from unhang.judge.rules.rules import Rule

ON_EVERY_EXAMPLE = {"run_status", "message", "host", "groups", "policy_error"}
"""Keys of an example that no path of a rule shows."""
_GAP = re.compile(r"could not be written|not known \(|\{\{|(?<!\S)None(?!\S)|^\s*[,;]")
# 8 GiB GiB: the filter of a quoted value writes the unit, and the sentence again
_TWICE = re.compile(r"(?<![\w.-])([A-Za-z]{2,}) \1(?![\w.-])")


def view_of(catalogue: Catalogue) -> CatalogueView:
    """The view that the catalogue's rules have of it."""
    return catalogue_view(catalogue.tables, tuple(rule.id for rule in catalogue.rules))


def faults_among_rules(rule: Rule, catalogue: Catalogue) -> Iterator[str]:
    """One line for each fault of a rule whose examples are as they should be."""
    view = view_of(catalogue)
    yield from _text_faults(rule, view)
    if rule.scope == "node" and verdict_of(rule, {}, view) == "fail":
        yield "when: there is a finding on a node of which nothing is known, and there must be none"
    if (
        rule.scope == "node"
        and rule.reads_facts
        and (found := verdict_of(rule, {"run_status": "ok"}, view)) not in ("unknown", "skip")
    ):
        yield (
            f"when: there is a decision on a node of which nothing was read, {found}, and there"
            " must be none"
        )
    rows = {one.id: one.row for one in catalogue.rules}
    # A rule that is itself at fault is not there: its own fault is reported.
    for other in sorted(explained_by(rows, rule.id) & rows.keys()):
        if rule.scope != "node" and rows[other]["scope"] != rule.scope:
            yield (
                f"explains: {other} is of scope {rows[other]['scope']}, and only rules of scope"
                f" {rule.scope} may be listed"
            )
    for other in clashing_rules(rule, catalogue.rules, view):
        yield f"remedy.policy: this contradicts {other}, and both fire on one node"
    if _advises_ended_branch(rule, catalogue):
        yield "remedy.policy.driver.version: the branch has ended, and gets no fixes"


def fires_too(rule: Rule, catalogue: Catalogue) -> set[str]:
    """Ids of the other rules of its kind that fire on its examples, that `also` does not name and
    that do not say that they explain it."""
    view = view_of(catalogue)
    others = [
        one
        for one in catalogue.rules
        if one.scope == rule.scope
        and one.id not in (rule.id, *rule.row.get("also", ()))
        and rule.id not in one.row.get("explains", ())
    ]
    examples = rule.row["examples"]["match"] + rule.row["examples"]["near_miss"]
    firing = _firing_on_node if rule.scope == "node" else _firing_on_nodes
    return {name for example in examples for name in firing(example, others, view)}


def _firing_on_node(
    example: Mapping[str, Any], rules: list[Rule], view: CatalogueView
) -> Iterator[str]:
    """A rule that reads nothing of the example is not judged: it finds nothing on an empty node."""
    world = node_world(example_node(example), view)
    for rule in rules:
        reads = ON_EVERY_EXAMPLE | {path[0] for path in rule.decision_reads}
        if reads & set(example) and any(one.verdict == "fail" for one in judge_rule(rule, world)):
            yield rule.id


def _firing_on_nodes(examples: list[Any], rules: list[Rule], view: CatalogueView) -> Iterator[str]:
    yield from (rule.id for rule in rules if judge_example(rule, examples, view) == "fail")


def _text_faults(rule: Rule, view: CatalogueView) -> Iterator[str]:
    """Texts of findings that lack a value that they quote, or have a word twice."""
    for place, example in enumerate(rule.row["examples"]["match"] if rule.scope == "node" else ()):
        for field, text in _texts(rule, example, view):
            if _GAP.search(text) or _TWICE.search(text):
                yield (
                    f"{field}: in match[{place}] the text lacks a value that it quotes, or has a"
                    f" word twice: {text!r}"
                )


def _texts(
    rule: Rule, example: Mapping[str, Any], view: CatalogueView
) -> Iterator[tuple[str, str]]:
    world = node_world(example_node(example), view)
    listed = world.items(rule.for_each.evaluate(world)) if rule.for_each is not None else ()
    items = {item.path: item for item in listed if hasattr(item, "path")}
    for one in judge_rule(rule, world):
        if one.verdict == "fail":
            yield from finding_texts(rule, world, one, items).items()


def _advises_ended_branch(rule: Rule, catalogue: Catalogue) -> bool:
    version = ((rule.row["remedy"].get("policy") or {}).get("driver") or {}).get("version")
    branch = catalogue.tables.get("driver_branches", {}).get(str(version).split(".")[0], {})
    return version is not None and branch.get("eol", "9999") <= TODAY
