"""The texts of findings and the places that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.core.gpu_verbs import fact_of
from unhang.core.schemas.shapes import ANY
from unhang.judge.rules import forced_nccl
from unhang.judge.rules.node_rules import Judged, finding_texts
from unhang.judge.rules.rules import Rule
from unhang.judge.rules.syntax import Path, shape_at
from unhang.judge.rules.values import RuleStopped, Undecided, World

Description = tuple[dict[str, str], dict[str, Any]]


def quoted(rule: Rule) -> frozenset[Path]:
    """The facts that the texts of a rule and the places of its findings quote."""
    items = None if rule.for_each is None else rule.for_each.kind.items().path
    about_nccl = forced_nccl.is_about_nccl(rule)
    reads = rule.text_reads | (forced_nccl.READS if about_nccl else frozenset())
    if items is None:
        return reads
    above = (*items[:-2], "name")
    return reads.union(
        ((*items, name) for name in rule.where_fields),
        [above] if shape_at(above) is not ANY else [],
    )


def described(rule: Rule, judged: Judged, world: World, items: Mapping[str, Any]) -> Description:
    """The texts of a finding on the node of this world, and its place. items: of the rule's list,
    by path."""
    item = getattr(items.get(judged.item or ""), "value", None)
    where = where_of(rule, judged, item)
    texts = finding_texts(rule, world, judged, items)
    nccl = getattr(world.roots.get("nccl"), "value", None)
    if judged.verdict == "fail":
        person = texts.get("remedy.person", "")
        advice = forced_nccl.with_first_step(rule, nccl, item, person)
        texts |= {"remedy.person": advice} if advice != person else {}
    # several devices may have the same value
    device = None if "value" in where else _name_above(rule, judged.item, world)
    return texts, where | ({"name": device} if device is not None else {})


def items_of(rule: Rule, world: World) -> dict[str, Any]:
    """{path: item} of the rule's list; {} if it was not read."""
    assert rule.for_each is not None
    world.begin()
    try:
        return {
            one.path: one
            for one in world.items(rule.for_each.evaluate(world))
            if hasattr(one, "path")
        }
    except (Undecided, RuleStopped):
        return {}


def where_of(rule: Rule, judged: Judged, value: Any) -> dict[str, Any]:
    """The item of a finding: its path and the fields that name it, or the text itself. value: of
    the item."""
    if judged.items > 1:
        return {"items": judged.items}
    if judged.item is None:
        return {}
    if isinstance(value, str):
        return {"path": judged.item, "value": value}
    named = ((name, fact_of(value, name)) for name in rule.where_fields)
    kept = {name: one for name, one in named if not isinstance(one, (list, dict, type(None)))}
    return {"path": judged.item, **kept}


def _name_above(rule: Rule, path: str | None, world: World) -> str | None:
    """The name of the object that holds this item, if the item has none: a port has only a number,
    and people know it by its device."""
    if (
        path is None
        or "name" in rule.where_fields
        or rule.for_each is None
        or rule.for_each.kind.items().path is None
    ):
        return None
    holder: Any = world.roots
    for part in path.split(".")[:-1]:
        name, _, index = part.partition("[")
        holder = fact_of(holder, name)
        holder = getattr(holder, "value", holder)
        holder = holder[int(index[:-1])] if index and isinstance(holder, list) else holder
    found = getattr(holder, "name", None)
    return found if isinstance(found, str) else None
