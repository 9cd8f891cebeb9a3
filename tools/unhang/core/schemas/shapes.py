"""The shapes of facts and policy, from their schemas: the paths that exist, their kinds and their
version orders."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

SCHEMAS = Path(__file__).resolve().parent


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

    @functools.cached_property
    def is_scalar(self) -> bool:
        """True for a value without fields and items."""
        return self.kind in ("text", "number", "flag", "any")


TEXT, NUMBER, FLAG, ANY = Shape("text"), Shape("number"), Shape("flag"), Shape("any")
_KINDS = {"string": TEXT, "number": NUMBER, "integer": NUMBER, "boolean": FLAG}


@cache
def read_schema(name: str) -> dict[str, Any]:
    """A schema of this package by its file name without suffix, such as node-facts-1. x-defs names
    another one whose $defs it uses too."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8")
    schema: dict[str, Any] = yaml.load(text, loader)  # noqa: S506 -- either is the safe loader
    if other := schema.get("x-defs"):
        schema["$defs"] = {**read_schema(other)["$defs"], **schema.get("$defs", {})}
    return schema


@cache
def fact_shapes() -> dict[str, Shape]:
    """Section name -> its shape."""
    schema = read_schema("node-facts-1")
    sections = schema["properties"]["sections"]["properties"]
    return {name: _shape(place, schema["$defs"]) for name, place in sections.items()}


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


def resolved(place: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema node with its $ref replaced; keys beside the $ref win."""
    while "$ref" in place:
        target = definitions[place["$ref"].rsplit("/", 1)[-1]]
        place = {**target, **{key: value for key, value in place.items() if key != "$ref"}}
    return place


def _shape(place: dict[str, Any], definitions: dict[str, Any]) -> Shape:
    place = resolved(place, definitions)
    kinds = place.get("type", "string" if "enum" not in place else [])
    names = {kinds} if isinstance(kinds, str) else {*kinds} - {"null"}
    role = place.get("x-kind")
    marks: dict[str, Any] = {
        "sample": role in ("counter", "sample"),
        "counter": role == "counter",
        "config": role == "config",
        "identity": role == "identity",
        "version": place.get("x-version"),
        "not_compared": place.get("x-not-compared"),
        "costs": place.get("x-costs"),
        "unique": place.get("x-unique"),
        "null": place.get("x-null"),
        "known": tuple(place.get("examples", ())),
    }
    if "object" in names:
        if place.get("properties"):
            return Shape(
                "object",
                {name: _shape(below, definitions) for name, below in place["properties"].items()},
                null=place.get("x-null"),
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
        kind = _KINDS[names.pop()].kind if len(names) == 1 else "any"
    return Shape(kind, values=values, **marks)


def nearest(name: str, known: Iterable[object], least: float = 0.6) -> str:
    """' (did you mean …?)', or '' when nothing is near. least: how near, 1.0 for equal."""
    found = difflib.get_close_matches(str(name), [str(one) for one in known], 1, least)
    return f" (did you mean {found[0]}?)" if found else ""
