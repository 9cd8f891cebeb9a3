"""The audit's findings on one node whose facts are given: rules of the catalogue, judged under a
policy."""

from __future__ import annotations

from unhang.core.run.documents import to_fragment
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.node_rules import NodeView, judge_rule, node_world
from unhang_node.facts.collect import collect

CATALOGUE = load_catalogue()
VIEW = catalogue_view(CATALOGUE.tables, tuple(rule.id for rule in CATALOGUE.rules), "2026-11-20")


def rules_of(sections, policy=None, verdict="fail"):
    """Ids of the node rules with this verdict."""
    node = NodeView("node1", ("training",), policy or {}, "ok", "", "", to_fragment(sections))
    world = node_world(node, VIEW)
    return {
        rule.id
        for rule in CATALOGUE.rules
        if rule.scope == "node"
        for one in judge_rule(rule, world)
        if one.verdict == verdict
    }


def sections_of(rootfs, **more):
    """The facts of a planted tree, with those sections of `more` that files cannot show."""
    document = collect({"rootfs": [str(rootfs)], "collected_via": "local"}, lambda: None)
    sections = document["sections"]
    for name, fields in more.items():
        sections[name] = {**sections.get(name, {}), "probe": {"status": "ok"}, **fields}
    return sections
