"""Describes where a document violates its schema: path, found value, allowed values, and the value
that was probably meant."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unhang.core.schemas.reading import kinds_of, nearest, read_schema, resolved

# type in a schema: (its name for people, its types here)
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a text", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("yes or no", (bool,)),
    "object": ("a map", (dict,)),
    "array": ("a list", (list,)),
    "null": ("nothing", (type(None),)),
}
# type: (the end of the keywords that limit its size, the unit)
_SIZES = {
    "string": ("Length", " characters"),
    "array": ("Items", " items"),
    "object": ("Properties", " keys"),
    "number": ("imum", ""),
}
MOST_FAULTS = 50
Schema = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """One fault: its place in the document, and what is wrong."""

    path: tuple
    message: str


def check_schema(document: Any, schema: Schema | str) -> Iterator[Fault]:
    """Every fault of a document, at most MOST_FAULTS; of a value of a wrong type, only that.
    schema: itself, or its file name without suffix, such as policy-1."""
    if isinstance(schema, str):
        schema = read_schema(schema)
    found = _faults(document, schema, schema.get("$defs", {}), ())
    return itertools.islice(found, MOST_FAULTS)


def _faults(value: Any, place: Schema, definitions: Schema, path: tuple) -> Iterator[Fault]:
    place = resolved(place, definitions)
    kinds = kinds_of(place)
    if kinds and not any(_is_a(kind, value) for kind in kinds):
        yield Fault(path, _wrong_type(kinds, value))
        return
    yield from (Fault(path, text) for text in _faults_of_value(value, place))
    if "oneOf" in place and sum(_fits(value, one, definitions) for one in place["oneOf"]) != 1:
        wanted = " or ".join(f"{{{', '.join(one['properties'])}}}" for one in place["oneOf"])
        yield Fault(path, f"this must be {wanted}, and is {_shown(value)}")
    if "if" in place:
        branch = place.get("then" if _fits(value, place["if"], definitions) else "else", {})
        yield from _faults(value, branch, definitions, path)
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from _faults(one, place.get("items", {}), definitions, (*path, at))
    if isinstance(value, dict):
        yield from _faults_of_keys(value, place, definitions, path)


def _faults_of_value(value: Any, place: Schema) -> Iterator[str]:
    allowed = place.get("enum", [value])
    if (type(value), value) not in ((type(one), one) for one in allowed):
        allowed = [one for one in allowed if one is not None]
        yield (
            f"{_shown(value)}{nearest(str(value), allowed)} is not allowed; allowed are"
            f" {', '.join(map(str, allowed))}"
        )
    for kind, (end, unit) in _SIZES.items():
        if _is_a(kind, value):
            size = value if kind == "number" else len(value)
            least, most = place.get(f"min{end}", size), place.get(f"max{end}", size)
            if not least <= size <= most:
                limit = f"at least {least}" if size < least else f"at most {most}"
                yield f"{_shown(value)} is not allowed: {limit}{unit}"
    pattern = place.get("pattern", "")
    # a schema's patterns are ECMA 262's, whose $ is not before a last line feed
    if isinstance(value, str) and not re.search(pattern.replace("$", r"\Z"), value):
        such = f", such as {place['x-such']}" if "x-such" in place else ""
        yield f"{_shown(value)} does not match {pattern}{such}"


def _faults_of_keys(
    value: dict[Any, Any], place: Schema, definitions: Schema, path: tuple
) -> Iterator[Fault]:
    known, others = place.get("properties", {}), place.get("additionalProperties", True)
    for key in place.get("required", ()):
        if key not in value:
            yield Fault(path, f"the key {key} is missing")
    for key, one in value.items():
        for fault in _faults(key, place.get("propertyNames", {"type": "string"}), definitions, ()):
            yield Fault(path, f"the spelling of a key is not allowed: {fault.message}")
        if key in known or isinstance(others, dict):
            yield from _faults(one, known.get(key, others), definitions, (*path, key))
        elif not others:
            yield Fault(
                (*path, key),
                f"this key is unknown{nearest(key, known)}; allowed are {', '.join(known)}",
            )


def _is_a(kind: str, value: Any) -> bool:
    """True is no number."""
    return isinstance(value, _TYPES[kind][1]) and (kind == "boolean" or type(value) is not bool)


def _fits(value: Any, place: Schema, definitions: Schema) -> bool:
    return not any(_faults(value, place, definitions, ()))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        keys = ", ".join(map(str, list(value)[:6]))
        return f"a map with {keys}" if keys else "a map"
    return f"{value!r}"[:80] if value is not None else "nothing"


def _wrong_type(kinds: list[str], found: Any) -> str:
    wanted = " or ".join(_TYPES[kind][0] for kind in kinds if kind != "null")
    is_number = kinds == ["string"] and _is_a("number", found)
    hint = f"; write '{found}' in quotes" if is_number else ""
    return f"this must be {wanted}, and is {_shown(found)}{hint}"
