"""Reads node files strictly and fast: typed structures made from the schema, so that a wrong type
names its path.

Strict means: no NaN, no key twice in the envelope, no unknown key, no wrong type, at most
MAX_NODE_BYTES. A node file that violates one of these is `invalid` as a whole: the rest of a
document with a wrong structure proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import msgspec

from unhang.core.schemas.reading import kinds_of, read_schema, resolved
from unhang.core.schemas.shapes import fact_shapes
from unhang.core.strict_json import NotStrict, parse_strictly
from unhang_node.base.version import VERSION

MAX_NODE_BYTES = 4 * 1024 * 1024
MAX_TEXT = 4096
MAX_ITEMS = 4096
ENVELOPE = ("schema", "host", "groups", "policy", "status", "message", "facts")
# an old node may have been read by the one-file collector: its facts are judged all the same
READ = ("ok", "python_too_old")
NOT_COLLECTED = {"earlier", "clock_ahead_s"}  # of the node: the judge adds them
STATUSES = ("ok", "unreachable", "failed", "timeout", "invalid", "python_too_old")


class InvalidNode(ValueError):
    """A node file that cannot be judged; the message is one line that names the place."""


@dataclass(frozen=True)
class NodeDocument:
    """One node of a run. sections: the typed structure, None if the node was not read. unwritten:
    facts of sections that it has, which an older collector does not write. collected_at: by the
    node's clock; is_live: while the run went on."""

    host: str
    groups: tuple[str, ...]
    policy: dict[str, Any]
    status: str
    message: str | None
    sections: Any
    unwritten: tuple[str, ...] = ()
    collected_at: str = ""
    is_live: bool = False


class _Types:
    """Typed structures of the whole document, made from the schema. Lenient ones need no required
    keys: for fragments in examples."""

    def __init__(self, strict: bool):
        schema = read_schema("node-facts-1")
        self.strict = strict
        self.definitions = schema["$defs"]
        self.made: dict[int, Any] = {}
        self.document = self.structure(schema, "Facts")
        self.sections = self.structure(schema["properties"]["sections"], "Facts_sections")

    def of(self, place: dict[str, Any], name: str) -> Any:
        """The type of one node of the schema."""
        place = resolved(place, self.definitions)
        if "enum" in place:
            return Literal[tuple(place["enum"])]
        kinds = kinds_of(place)
        made = self.of_kind(place, name, set(kinds))
        return made | None if "null" in kinds else made

    def of_kind(self, place: dict[str, Any], name: str, kinds: set[str]) -> Any:
        """The type of a node of the schema that is not null."""
        if "object" in kinds:
            return self.structure(place, name)
        if "array" in kinds:
            most = msgspec.Meta(max_length=place.get("maxItems", MAX_ITEMS))
            item = self.of(place["items"], name + "_item")
            return Annotated[list[item], most]  # type: ignore[valid-type]
        if "string" in kinds:
            return Annotated[str, msgspec.Meta(max_length=place.get("maxLength", MAX_TEXT))]
        if "boolean" in kinds:
            return bool
        return int if "integer" in kinds else int | float

    def structure(self, place: dict[str, Any], name: str) -> Any:
        """A structure, or a map when its keys are data."""
        if not place.get("properties"):
            return dict[str, self.of(place.get("additionalProperties", {}), name)]  # type: ignore[misc]
        key = id(place["properties"])
        if key not in self.made:
            needed = set(place.get("required", ())) if self.strict else set()
            fields: list[tuple] = []
            for field, below in place["properties"].items():
                kind = self.of(below, f"{name}_{field}")
                # A missing key is read as None in either case; an explicit null must be allowed by
                # the schema, except in fragments.
                may_lack = () if field in needed else (None,)
                fields.append((field, kind if self.strict else kind | None, *may_lack))
            self.made[key] = msgspec.defstruct(
                name, fields, forbid_unknown_fields=True, gc=False, kw_only=True
            )
        return self.made[key]


@cache
def _types(strict: bool) -> _Types:
    return _Types(strict)


@cache
def _facts_decoder() -> msgspec.json.Decoder:
    return msgspec.json.Decoder(_types(True).document | None)


def decode_node(data: bytes) -> NodeDocument:
    """One node file. Raises InvalidNode."""
    if len(data) > MAX_NODE_BYTES:
        raise InvalidNode(
            f"the answer is {len(data)} bytes long, at most {MAX_NODE_BYTES} are read"
        )
    cut = data.find(b'"facts":')
    if cut < 0:
        return _decode_slowly(data)
    try:
        head = _decode_head(data[:cut] + b'"facts":null}')
        return _document(head, _facts_decoder().decode(_facts_in(data, cut + 8)), data)
    except (InvalidNode, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # finds the exact fault, or reads a file whose keys are in another order
        return _decode_slowly(data)


def decode_plain(data: bytes) -> dict[str, Any]:
    """One node file as plain values, read as strictly as by the judge, but without checking the
    types of facts. Raises InvalidNode."""
    cut = data.find(b'"facts":')
    try:
        head = _decode_head(data[:cut] + b'"facts":null}') if cut >= 0 else {}
        facts = msgspec.json.decode(_facts_in(data, cut + 8))
    except (InvalidNode, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # finds the exact fault, or reads a file whose keys are in another order
        return _check_head(strict_json(data))
    return {**head, "facts": facts}


def _facts_in(data: bytes, start: int) -> bytes:
    """The text from `start` to the brace that closes the document."""
    data = data.rstrip()
    if not data.endswith(b"}"):
        raise InvalidNode("the document does not end in }")
    return data[start:-1]


def _document(head: dict[str, Any], facts: Any, data: bytes) -> NodeDocument:
    if head["status"] == "ok" and facts is None:
        raise InvalidNode("status is ok, but facts is null")
    sections = facts.sections if facts is not None and head["status"] in READ else None
    by = None if sections is None else facts.collector
    return NodeDocument(
        head["host"],
        tuple(head["groups"]),
        head["policy"],
        head["status"],
        head["message"],
        sections,
        () if by is None or by.version == VERSION else tuple(_unwritten(data)),
        "" if by is None else by.collected_at or "",
        by is not None and by.collected_via == "ansible" and not by.recorded,
    )


def _unwritten(data: bytes) -> Iterator[str]:
    """A collector writes every fact that it has, if only as null."""
    sections = msgspec.json.decode(data)["facts"]["sections"]
    for name, shape in fact_shapes().items():
        if name in sections and sections[name]["probe"]["status"] == "ok":
            lacking = shape.fields.keys() - sections[name].keys() - NOT_COLLECTED
            yield from (f"{name}.{field}" for field in sorted(lacking))


def strict_json(data: bytes) -> Any:
    """JSON as parse_strictly reads it. Raises InvalidNode."""
    try:
        return parse_strictly(data)
    except NotStrict as problem:
        raise InvalidNode(one_text(problem)) from None


def _decode_head(data: bytes) -> dict[str, Any]:
    return _check_head(strict_json(data))


def _check_head(head: Any) -> dict[str, Any]:
    if not isinstance(head, dict):
        raise InvalidNode(f"this must be an object, and is {type(head).__name__}")
    if missing := [key for key in ENVELOPE if key not in head]:
        raise InvalidNode(f"the key {missing[0]!r} is missing")
    if more := [key for key in head if key not in ENVELOPE]:
        raise InvalidNode(f"the key {more[0][:80]!r} is unknown; allowed are {', '.join(ENVELOPE)}")
    if head["schema"] != "unhang/node/1":
        raise InvalidNode(f"schema must be 'unhang/node/1', and is {str(head['schema'])[:80]!r}")
    if head["status"] not in STATUSES:
        raise InvalidNode(
            f"status must be one of {', '.join(STATUSES)}, and is {str(head['status'])[:80]!r}"
        )
    if not isinstance(head["host"], str) or not head["host"]:
        raise InvalidNode("host must be a text")
    if not isinstance(head["groups"], list) or not all(
        isinstance(group, str) for group in head["groups"]
    ):
        raise InvalidNode("groups must be a list of texts")
    if not isinstance(head["policy"], dict):
        raise InvalidNode("policy must be an object")
    if not (head["message"] is None or isinstance(head["message"], str)):
        raise InvalidNode("message must be a text or null")
    return head


def _decode_slowly(data: bytes) -> NodeDocument:
    envelope = strict_json(data)
    head = _check_head(envelope)
    return _document(head, to_facts(head.pop("facts")), data)


def to_facts(facts: Any) -> Any:
    """A node-facts document from plain values. Raises InvalidNode with path, expected and found
    type."""
    return _converted(facts, _types(True).document | None, "facts")


def to_fragment(sections: Any) -> Any:
    """Sections of an example: required keys may be missing. Raises InvalidNode."""
    return _converted(sections, _types(False).sections, "")


def _converted(value: Any, kind: Any, place: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        text, _, path = str(problem).partition(" - at `$")
        path = re.sub(r"^\.", "", path.rstrip("`"))
        where = ".".join(part for part in (place, path) if part)
        raise InvalidNode(f"{where}: {one_text(text)}" if where else one_text(text)) from None
    except RecursionError:
        raise InvalidNode("objects nest too deeply") from None


def one_text(problem: object) -> str:
    """An exception's text on one line, without control characters, shortened."""
    text = " ".join(str(problem).split())
    return "".join(character if character.isprintable() else " " for character in text)[
        :300
    ].replace("`", "")
