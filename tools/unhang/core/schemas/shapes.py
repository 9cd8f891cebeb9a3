"""The shapes of facts and policy, from their schemas: the paths that exist, their kinds and their
version orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from unhang.core.schemas.reading import kinds_of, read_schema, resolved


@dataclass(frozen=True)
class Shape:
    """One place in a document.

    kind: object, map (keys are data), list, text, number, flag, or any (a scalar of a kind that is
    not known before a node is judged).
    """

    kind: str
    fields: dict[str, Shape] = field(default_factory=dict, hash=False)
    item: Shape | None = None
    version: str | None = None
    values: tuple[object, ...] = ()
    known: tuple[str, ...] = ()  # usual values of a free text
    # differs at every reading and says nothing about the node's configuration
    sample: bool = False
    counter: bool = False  # a sample that only grows: errors, replays; mostly 0 on all nodes
    config: bool = False
    identity: bool = False  # names the thing, such as index, uuid, pci_address
    not_compared: object = None  # why one node may have it otherwise than its like
    costs: str | None = None  # what a node pays that has it otherwise, as `costs` of a rule
    unique: str | None = None  # what jobs pay if two things share it
    null: str | None = None  # its meaning

    @cached_property
    def is_scalar(self) -> bool:
        """True for a value without fields and items."""
        return self.kind not in ("object", "map", "list")


TEXT, NUMBER, FLAG, ANY = Shape("text"), Shape("number"), Shape("flag"), Shape("any")
_KINDS = {"string": "text", "number": "number", "integer": "number", "boolean": "flag"}


@cache
def fact_shapes() -> dict[str, Shape]:
    """Section name -> its shape."""
    schema = read_schema("node-facts-1")
    return _shape(schema["properties"]["sections"], schema["$defs"]).fields


@cache
def policy_shape() -> Shape:
    """The shape of a policy."""
    schema = read_schema("policy-1")
    return _shape(schema, schema["$defs"])


@cache
def every_fact() -> list[tuple[str, Shape]]:
    """(path, such as nccl.libraries[*].package; shape) of each place of a node's facts."""
    return every_place(fact_shapes())


def every_place(fields: dict[str, Shape]) -> list[tuple[str, Shape]]:
    """The same of any fields."""
    found = list(fields.items())
    for path, shape in found:
        found += [(f"{path}.{name}", one) for name, one in shape.fields.items()]
        found += [(f"{path}[*]", shape.item)] if shape.item else []
    return found


@cache
def null_meanings() -> dict[str, str]:
    """Path of a fact -> the meaning of a null there without a row in probe.unread."""
    return {path: shape.null for path, shape in every_fact() if shape.null}


def _shape(place: dict[str, Any], definitions: dict[str, Any]) -> Shape:
    place = resolved(place, definitions)
    names = {*kinds_of(place)} - {"null"} or {"string"}
    role = place.get("x-kind")
    named = ("version", "not_compared", "costs", "unique", "null")
    marks: dict[str, Any] = {
        **{name: place.get(f"x-{name.replace('_', '-')}") for name in named},
        "sample": role in ("counter", "sample"),
        "counter": role == "counter",
        "config": role == "config",
        "identity": role == "identity",
        "known": tuple(place.get("examples", ())),
    }
    if "object" in names:
        if place.get("properties"):
            return Shape(
                "object",
                {name: _shape(below, definitions) for name, below in place["properties"].items()},
                null=marks["null"],
            )
        inside = place.get("additionalProperties")
        return Shape(
            "map", item=_shape(inside, definitions) if isinstance(inside, dict) else ANY, **marks
        )
    if "array" in names:
        return Shape("list", item=_shape(place.get("items", {}), definitions), **marks)
    values = tuple(value for value in place.get("enum", ()) if value is not None)
    if values:
        kind = "text" if isinstance(values[0], str) else "number"
    else:
        kind = _KINDS[names.pop()] if len(names) == 1 else "any"
    return Shape(kind, values=values, **marks)
