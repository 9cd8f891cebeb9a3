"""A node's configuration: the facts that the schema marks `config` and `identity`, as one digest, and what differs between two looks. Values in, values out.

Samples and counters are left out while the facts are decoded, so that the digest of a large fleet's nodes costs little.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from unhang.schemas.shapes import Shape, fact_shapes

_ABOUT_READING = "probe"
_INDEX = re.compile(r"\[\d+\]")


def config_hash(sections: Any) -> str:
    """SHA-256 of the configuration in a node's sections, typed (judge.documents) or plain. Keys of maps count in sorted order."""
    return hashlib.sha256(_encoder().encode(_configuration(sections))).hexdigest()


def changed_facts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Each configuration fact that differs, as `driver.loaded.version: 545.23.08 then, 535.154.05 now`; [] for none. Sections as plain values.

    What was not read then and is read now is no change of the node.
    """
    then, present = (_plain(_configuration(one)) for one in (before, now))
    return [f"{path}: {_shown(old)} then, {_shown(new)} now" for path, old, new in _differences(then, present, "") if not _was_unread(before, path, old)]


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif old != new:
        yield path, old, new


def _was_unread(before: Mapping[str, Any], path: str, old: Any) -> bool:
    """Whether the first look could not read this fact: the section failed, or a row of `unread` covers it."""
    if old is not None:
        return False
    name, _, inside = path.partition(".")
    probe = (before.get(name) or {}).get(_ABOUT_READING) or {}
    inside = _INDEX.sub("[*]", inside)
    rows = [_INDEX.sub("[*]", str(row["field"])) for row in probe.get("unread") or () if row["status"] != "absent"]
    return probe.get("status") in ("denied", "timeout", "error") or any(inside == row or inside.startswith((f"{row}.", f"{row}[")) for row in rows)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"{len(value)} entries"
    return "nothing" if value is None else msgspec.json.encode(value).decode()[:200]


def _configuration(sections: Any) -> Any:
    return msgspec.convert(sections, _sections_type(), from_attributes=True)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(order="deterministic")


@cache
def _sections_type() -> type:
    """A structure of all sections that has no field for what is not configuration: the decoder passes over it."""
    return _structure(Shape("object", fact_shapes()), "Configuration")


def _structure(shape: Shape, name: str) -> type:
    kept = {key: below for key, below in shape.fields.items() if key != _ABOUT_READING and _is_kept(below)}
    return msgspec.defstruct(name, [(key, _type_of(below, f"{name}_{key}") | None, None) for key, below in kept.items()], gc=False)


def _is_kept(shape: Shape) -> bool:
    if shape.sample:
        return False
    if shape.kind == "object":
        return any(_is_kept(below) for below in shape.fields.values())
    return _is_kept(shape.item) if shape.kind == "list" and shape.item is not None else True


def _type_of(shape: Shape, name: str) -> Any:
    if shape.kind == "object":
        return _structure(shape, name)
    if shape.kind == "list" and shape.item is not None:
        return list[_type_of(shape.item, f"{name}_item") | None]  # type: ignore[misc]
    return Any
