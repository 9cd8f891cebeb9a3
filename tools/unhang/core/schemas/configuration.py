"""The configuration part of a node's facts, by the schema's marks, and its hash. Plans, history and
admission all use it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import astuple

from unhang.core.schemas.shapes import Shape, fact_shapes

# Marks of rows that exist only while a job runs: its libraries, its environment, its container.
_OF_A_PROCESS = (("origin", "mapped"), ("where", "container"), ("source", "process"))
_INDEX = re.compile(r"\[\d+\]")
_encode = msgspec.json.Encoder(order="deterministic").encode


def config_hash(facts: Mapping[str, Any]) -> str:
    """sha256:… of the configuration of a facts document (unhang/node-facts/1); equal for two
    readings of a node if no marked fact has changed.

    Fields marked `config` or `identity` count, without values that were not read (null) and rows of
    a running process. The order of reading does not.
    """
    return hash_of_sections(facts.get("sections") or {})


def hash_of_sections(sections: Any) -> str:
    """The same from only the sections, plain or typed by the judge's reader."""
    pieces: list[bytes] = []
    for name, section in _sections(sections):
        pieces += (name.encode(), text_of_section_alone(section))
    return "sha256:" + hashlib.sha256(b"\n".join(pieces)).hexdigest()


def section_hashes(facts: Mapping[str, Any]) -> dict[str, str]:
    """{section: sha256:…}, to show where the configuration differs."""
    sections = _sections(facts.get("sections") or {})
    return {
        name: "sha256:" + hashlib.sha256(b"\n".join(_pieces(section))).hexdigest()
        for name, section in sections
    }


class UnreadField(msgspec.Struct, gc=False):
    """A fact of a section that could not be read."""

    field: str
    status: str


class Probe(msgspec.Struct, gc=False):
    """How a section was read."""

    status: str | None = None
    unread: list[UnreadField] | None = None


@cache
def probed_sections_type() -> type:
    """A structure of all sections with only their configuration and `probe`, for readers that need
    nothing else of a document."""
    fields = []
    for name, shape in fact_shapes().items():
        bare = _structure(shape, f"Configuration_{name}")
        fields.append(
            (
                name,
                msgspec.defstruct(
                    f"Probed_{name}",
                    [("probe", Probe | None, None)],
                    bases=(bare,),
                    omit_defaults=True,
                    gc=False,
                )
                | None,
                None,
            )
        )
    return msgspec.defstruct("ProbedConfiguration", fields, gc=False)


def digest_of_section(section: Any) -> bytes | None:
    """16 bytes over the configuration of one section of probed_sections_type; None when there is
    none in it. `probe` does not count."""
    pieces = _pieces(section)
    return hashlib.blake2b(b"\n".join(pieces), digest_size=16).digest() if pieces else None


def text_of_section(section: Any) -> bytes:
    """JSON of such a section and its `probe`, rows in the order of reading and without rows of
    running processes."""
    fields = {
        name: value
        for name in section.__struct_fields__
        if (value := getattr(section, name)) is not None
    }
    return _encode(
        {
            name: _of_the_node(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
    )


def changed_facts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Each fact of the configuration that differs, as `driver.loaded.version: 545.23.08 then,
    535.154.05 now`; [] for none. Sections as plain values.

    A fact that was not read then and is read now is no change of the node, nor is a fact that an
    older collector does not have: a collector writes every fact that it has.
    """
    then, present = (
        {name: _plain(section) for name, section in _sections(one)} for one in (before, now)
    )
    return [
        f"{path}: {_shown(old)} then, {_shown(new)} now"
        for path, old, new in _differences(then, present, "")
        if not (old is None and (was_unread(before, path) or _is_unwritten(before, path)))
    ]


def _is_unwritten(sections: Mapping[str, Any], path: str) -> bool:
    """Whether a fact of the schema is not in the document of which it would be a part, not even as
    null. Rows of lists and keys that are data are none."""
    name, *inside = path.split(".")
    at, shape = sections.get(name), fact_shapes().get(name)
    for key in inside:
        if not isinstance(at, Mapping) or shape is None or key not in shape.fields:
            return False
        if key not in at:
            return True
        at, shape = at[key], shape.fields[key]
    return False


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if {type(old), type(new)} in ({dict}, {dict, type(None)}):
        old, new = old or {}, new or {}
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif old != new:
        yield path, old, new


def was_unread(sections: Mapping[str, Any], path: str) -> bool:
    """Whether a reading lacks this fact: its section failed, or a row of `unread` covers it.
    sections: plain, with their probes."""
    name, _, inside = path.partition(".")
    probe = (sections.get(name) or {}).get("probe") or {}
    inside = _INDEX.sub("[*]", inside)
    rows = [
        _INDEX.sub("[*]", str(row["field"]))
        for row in probe.get("unread") or ()
        if row["status"] != "absent"
    ]
    return probe.get("status") in ("denied", "timeout", "error") or any(
        inside == row or inside.startswith((f"{row}.", f"{row}[")) for row in rows
    )


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"{len(value)} entries"
    return "nothing" if value is None else canonical(value)[:200]


def _sections(sections: Any) -> list[tuple[str, Any]]:
    """(name, its configuration) of each section that has any."""
    whole: Any = msgspec.convert(sections, sections_type(), from_attributes=True)
    return [
        (name, section)
        for name in whole.__struct_fields__
        if (section := getattr(whole, name)) is not None
        and any(getattr(section, field) is not None for field in section.__struct_fields__)
    ]


def _pieces(section: Any) -> list[bytes]:
    """The section's fields that have a value, each with its text; rows of a list in the order of
    theirs, for the order of reading does not count."""
    found: list[bytes] = []
    for name, value in zip(_field_names(_kind(section)), astuple(section), strict=True):
        if value is not None and name != b"probe":
            text = _encode(value) if type(value) is not list else _rows(value) if value else b""
            found += (name, text) if text else (name,)
    return found


def text_of_section_alone(section: Any) -> bytes:
    """What a section of sections_type(), or a structure of some of its fields, adds to a hash; b""
    for nothing."""
    return b"\n".join(_pieces(section))


def _rows(value: list[Any]) -> bytes:
    return b"\n".join(sorted(map(_encode, _of_the_node(value))))


def _plain(section: Any) -> dict[str, Any]:
    """The section's fields as plain values, rows in the order of reading."""
    fields = {name: getattr(section, name) for name in section.__struct_fields__}
    return {
        name: msgspec.to_builtins(_of_the_node(value) if isinstance(value, list) else value)
        for name, value in fields.items()
    }


def _of_the_node(rows: list[Any]) -> list[Any]:
    """The rows without those of running processes."""
    first = rows[0] if rows else None
    kind: Any = (
        type(first)
        if first is not None
        else next((type(row) for row in rows if row is not None), None)
    )
    marks = _marks_of_a_process(kind) if kind is not None else ()
    return (
        [
            row
            for row in rows
            if row is None or not any(getattr(row, name) == mark for name, mark in marks)
        ]
        if marks
        else rows
    )


@cache
def _marks_of_a_process(kind: type) -> tuple[tuple[str, str], ...]:
    """(field, value) that marks rows of this type which exist only while a job runs."""
    return tuple(
        (name, mark)
        for name, mark in _OF_A_PROCESS
        if issubclass(kind, msgspec.Struct) and name in kind.__struct_fields__
    )


@cache
def _field_names(kind: type[msgspec.Struct]) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in kind.__struct_fields__)


def _kind(value: Any) -> Any:
    """The type of a value, as a key of the cache."""
    return type(value)


@cache
def sections_type() -> type:
    """A structure of all sections that has no field for what is not configuration."""
    return _structure(Shape("object", fact_shapes()), "Configuration")


def _structure(shape: Shape, name: str) -> type:
    kept = {key: below for key, below in shape.fields.items() if key != "probe" and _marked(below)}
    fields = [(key, _type_of(below, f"{name}_{key}") | None, None) for key, below in kept.items()]
    return msgspec.defstruct(name, fields, omit_defaults=True, gc=False)


def _type_of(shape: Shape, name: str) -> Any:
    if shape.kind == "object":
        return _structure(shape, name)
    if shape.kind == "list" and shape.item is not None:
        return list[_type_of(shape.item, f"{name}_item") | None]  # type: ignore[misc]
    return Any


def _marked(shape: Shape) -> bool:
    """Whether anything at or below this place is configuration."""
    if shape.sample:
        return False
    if shape.kind == "list":
        return shape.item is not None and _marked(shape.item)
    return shape.kind != "object" or any(
        _marked(below) for name, below in shape.fields.items() if name != "probe"
    )


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
