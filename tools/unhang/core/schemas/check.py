"""Describes where a document violates its schema: path, found value, allowed values, and the value
that was probably meant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unhang.core.errors import UserError
from unhang.core.schemas.shapes import nearest, resolved

_TYPES = {
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "yes or no",
    "dict": "a map",
    "list": "a list",
    "NoneType": "nothing",
}
_SCHEMA_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "object": "a map",
    "array": "a list",
}
# {pattern: its meaning for people}
_MATCHING = {
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}$": "2026-12-31",
    "^[a-z0-9]+(-[a-z0-9]+)*$": "nccl-p2p-disabled",
}
MOST_FAULTS = 50


@dataclass(frozen=True)
class Fault:
    """One fault: its place in the document, and what is wrong."""

    path: tuple
    message: str


# by the schema's identity; the schema is kept, so that its identity stays its own
_VALIDATORS: dict[int, tuple[dict[str, Any], Any]] = {}


def _validator(schema: dict[str, Any]) -> Any:
    try:
        import jsonschema_rs  # 15 MB that a watcher which checks no document need not load
    except ImportError:  # a role of the collection, in an environment with ansible-core alone
        raise UserError(
            f"the Python package jsonschema-rs is not installed for {sys.executable}; next:"
            f" {sys.executable} -P -m pip install jsonschema-rs"
        ) from None

    if id(schema) not in _VALIDATORS:
        _VALIDATORS[id(schema)] = (schema, jsonschema_rs.validator_for(schema))
    return _VALIDATORS[id(schema)][1]


def check_schema(document: Any, schema: dict[str, Any]) -> Iterator[Fault]:
    """Every fault of a document, at most MOST_FAULTS."""
    for number, error in enumerate(_validator(schema).iter_errors(document)):
        if number >= MOST_FAULTS:
            return
        yield from _faults(document, schema, error)


def _faults(document: Any, schema: dict[str, Any], error: Any) -> Iterator[Fault]:
    path = tuple(error.instance_path)
    keyword = str(error.schema_path[-1]) if error.schema_path else ""
    place = _follow(schema, list(error.schema_path[:-1]))
    found = _at(document, path)
    if keyword == "additionalProperties" and isinstance(found, dict) and place.get("properties"):
        for key in found:
            if key not in place["properties"]:
                yield Fault(
                    (*path, key),
                    f"this key is unknown{nearest(key, place['properties'])}; allowed are"
                    f" {', '.join(place['properties'])}",
                )
        return
    if keyword in ("oneOf", "anyOf"):
        yield Fault(path, f"this must be {_alternatives(place, schema)}, and is {_shown(found)}")
        return
    yield Fault(path, _message(keyword, place, found, str(error.message)))


def _follow(schema: dict[str, Any], path: list[Any]) -> dict[str, Any]:
    """The schema node at a schema path, references followed."""
    place: Any = schema
    for part in path:
        if part == "$ref":
            continue
        if isinstance(place, dict):
            place = resolved(place, schema.get("$defs", {}))
        try:
            place = place[int(part) if isinstance(place, list) else part]
        except (KeyError, IndexError, TypeError, ValueError):
            return {}
    return resolved(place, schema.get("$defs", {})) if isinstance(place, dict) else {}


def _at(document: Any, path: tuple) -> Any:
    for part in path:
        document = document[part]
    return document


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _TYPES[type(value).__name__] + (
            f" with {', '.join(map(str, list(value)[:6]))}"
            if isinstance(value, dict) and value
            else ""
        )
    return f"{value!r}"[:80] if value is not None else "nothing"


def _kind_and_value(value: Any) -> str:
    """a number 3, a text 'x', a map with a, b; a null is just `nothing`."""
    shown = _shown(value)
    kind = _TYPES.get(type(value).__name__, "something else")
    return shown if shown.startswith(kind) else f"{kind} {shown}"


def _message(keyword: str, place: dict[str, Any], found: Any, message: str) -> str:
    if keyword == "type":
        wanted = place.get("type", [])
        names = [
            _SCHEMA_TYPES.get(one, one)
            for one in ([wanted] if isinstance(wanted, str) else wanted)
            if one != "null"
        ]
        hint = (
            f"; write '{found}' in quotes"
            if wanted == "string"
            and isinstance(found, (int, float))
            and not isinstance(found, bool)
            else ""
        )
        return f"this must be {' or '.join(names)}, and is {_kind_and_value(found)}{hint}"
    if keyword == "enum":
        allowed = [one for one in place.get("enum", ()) if one is not None]
        return (
            f"{_shown(found)}{nearest(str(found), allowed)} is not allowed; allowed are"
            f" {', '.join(map(str, allowed))}"
        )
    if keyword == "required":
        missing = [
            key
            for key in place.get("required", ())
            if not isinstance(found, dict) or key not in found
        ]
        # the validator reports each key separately
        named = [key for key in missing if message.startswith(f'"{key}" ')] or missing
        return f"the key {named[0] if named else '?'} is missing"
    if keyword == "pattern":
        pattern = str(place.get("pattern"))
        such = f", such as {_MATCHING[pattern]}" if pattern in _MATCHING else ""
        return f"{_shown(found)} does not match {pattern}{such}"
    if keyword == "propertyNames" or "propertyNames" in message:
        return f"the spelling of a key is not allowed: {message[:120]}"
    return f"{_shown(found)} is not allowed: {message[:160]}"


def _alternatives(place: dict[str, Any], schema: dict[str, Any]) -> str:
    choices = [
        resolved(one, schema.get("$defs", {}))
        for one in place.get("oneOf") or place.get("anyOf") or ()
    ]
    return " or ".join(
        (
            "{" + ", ".join(one.get("properties", {})) + "}"
            if one.get("properties")
            else str(one.get("type", one))
        )
        for one in choices
    )
