"""The schemas of this package as they are written, and the known word that is nearest to one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parent


@cache
def read_schema(name: str) -> dict[str, Any]:
    """A schema of this package by its file name without suffix, such as node-facts-1. x-defs names
    another one whose $defs it uses too."""
    import yaml  # the quick check reads them otherwise

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8")
    schema: dict[str, Any] = yaml.load(text, loader)  # noqa: S506 -- either is the safe loader
    if other := schema.get("x-defs"):
        schema["$defs"] = {**read_schema(other)["$defs"], **schema.get("$defs", {})}
    return schema


def resolved(place: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema node with its $ref replaced; keys beside the $ref win."""
    while "$ref" in place:
        target = definitions[place["$ref"].rsplit("/", 1)[-1]]
        place = {**target, **{key: value for key, value in place.items() if key != "$ref"}}
    return place


def kinds_of(place: dict[str, Any]) -> list[str]:
    """The types of a schema node, null among them."""
    kinds = place.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def nearest(name: str, known: Iterable[object], least: float = 0.6) -> str:
    """' (did you mean …?)', or '' when nothing is near. least: how near, 1.0 for equal."""
    found = difflib.get_close_matches(str(name), [str(one) for one in known], 1, least)
    return f" (did you mean {found[0]}?)" if found else ""
