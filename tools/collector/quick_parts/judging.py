"""Judges the facts of this node by the rules compiled into this file, with the judge's own code;
this module prepares its input."""

from __future__ import annotations

from functools import lru_cache

from unhang_quick import data

from unhang.core.run.documents import to_fragment
from unhang.core.schemas.shapes import Shape, policy_shape
from unhang.judge.rules.node_rules import (
    CatalogueView,
    NodeView,
    finding_texts,
    judge_rule,
    node_world,
)
from unhang.judge.rules.rules import compile_rule, node_names
from unhang.judge.rules.values import RuleStopped, Undecided


class Table(dict):
    """Rows by key; shape: of one row, None when the table declares no fields."""

    shape = None


def shape_from(packed):
    """A Shape from the build's JSON."""
    if packed is None:
        return None
    marks = {
        name: packed[name]
        for name in ("version", "sample", "counter", "identity")
        if name in packed
    }
    fields = {name: shape_from(one) for name, one in packed.get("fields", {}).items()}
    return Shape(
        packed["kind"],
        fields,
        shape_from(packed.get("item")),
        values=tuple(packed.get("values", ())),
        **marks,
    )


@lru_cache(maxsize=None)
def tables_here():
    """The tables that the rules read."""
    found = {}
    for name, (rows, shape) in data.TABLES.items():
        found[name] = Table(rows)
        found[name].shape = shape_from(shape)
    return found


@lru_cache(maxsize=None)
def rules_here():
    """The rules of this file, by the judge's own compiler."""
    names = node_names(tables_here())
    return [compile_rule(row, tables_here(), names) for row in data.RULES]


KINDS = {
    "text": (str,),
    "number": (int, float),
    "flag": (bool,),
    "object": (dict,),
    "map": (dict,),
    "list": (list,),
}


def policy_fault(policy, shape=None, path="unhang_policy"):
    """A text about the first unknown key, or value of a wrong kind, in a policy; None without one.
    A rule is skipped if its key is missing, so a misspelt key would pass unnoticed."""
    shape = shape or policy_shape()
    kinds = KINDS.get(shape.kind)
    if kinds and (
        not isinstance(policy, kinds) or (isinstance(policy, bool) and shape.kind != "flag")
    ):
        return "{} must be {} {}, and is {!r}".format(
            path, "an" if shape.kind == "object" else "a", shape.kind, policy
        )[:300]
    for key in policy if shape.kind == "object" else ():
        if key not in shape.fields:
            return "{}.{}: this key is unknown; allowed are {}".format(
                path, key, ", ".join(shape.fields)
            )
        fault = policy_fault(policy[key], shape.fields[key], "{}.{}".format(path, key))
        if fault:
            return fault
    return None


def judge(facts, policy, today, host="", groups=(), rule_ids=None):
    """[{rule, severity, title, verdict, where, expected, found}] of every rule and item. facts:
    unhang/node-facts/1.

    rule_ids: only these rules; all of this file by default.
    """
    tables = tables_here()
    view = CatalogueView(tables, tuple(data.RULE_IDS), today)
    world = node_world(
        NodeView(host, tuple(groups), policy, "ok", "", "", to_fragment(facts["sections"])), view
    )
    found = []
    for rule in rules_here():
        if rule_ids is not None and rule.id not in rule_ids:
            continue
        for judged in judge_rule(rule, world):
            # of a row of a table in which others are errors
            if judged.severity in ("warning", "info"):
                continue
            finding = {
                "rule": rule.id,
                "severity": judged.severity or rule.severity,
                "title": rule.row["title"],
                "verdict": judged.verdict,
            }
            finding.update(where=judged.item, items=judged.items)
            if judged.verdict in ("fail", "unknown"):
                texts = finding_texts(rule, world, judged, items_of(rule, world))
                finding.update(
                    expected=texts.get("expected", ""),
                    found=texts.get("found", ""),
                    do=texts.get("remedy.person", ""),
                )
            found.append(finding)
    return found


def items_of(rule, world):
    """{path: item} of the rule's for_each; {} where its list was not read."""
    if rule.for_each is None:
        return {}
    try:
        return {
            item.path: item
            for item in world.items(rule.for_each.evaluate(world))
            if getattr(item, "path", None)
        }
    except (Undecided, RuleStopped):
        return {}
