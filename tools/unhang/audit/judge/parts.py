"""Decodes a node's facts part by part: if a part with the same bytes was decoded before, on any node, its cached value is used.

A part is a section, or a field of a section that is most of a document (PARTED). Its bytes alone decide its value and whether it is valid, so a cached part
has been checked like any other. The duration of reading a section differs on every node, so it is not part of the bytes. Values that nodes share are never
changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

PARTED = ("interconnect",)  # 144 links, which are equal on most nodes, beside the names of the GPUs
MOST_BYTES = 2 * 1024 * 1024  # raw bytes that are cached of one part; their decoded values take several times as much
TRIED = 128  # after so many different values of a part with hardly a repetition, the part counts as different on every node
Part = tuple[str, ...]
MOST_LAYOUTS = 8  # number of key orders that are learned
_LASTED = re.compile(rb'(\{"probe":)?\{"status":"[a-z]{1,20}","duration_ms":((?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,6})?)(?=[,}])')


class NotInParts(Exception):
    """The facts must be decoded as a whole."""


@dataclass
class _Seen:
    """The cache of one part, by its bytes."""

    decode: Callable[[Any], Any]
    known: dict[bytes, tuple[bytes, Any]] = field(default_factory=dict)
    size: int = 0
    hits: int = 0
    misses: int = 0
    given_up: bool = False
    last: tuple[bytes, Any] = (b"", None)  # the value that was found last, which is tried first; no part is empty
    around: tuple[bytes, bytes] | None = None  # the bytes before and after the duration in `last`; None if it has none

    def again(self, data: bytes, start: int) -> tuple[bytes, Any, int] | None:
        """(its bytes, its value, its end) if the bytes from `start` are `last`, apart from the duration; else None."""
        key, value = self.last
        if self.around is None:
            if not key or not data.startswith(key, start):
                return None
            self.hits += 1
            return key, value, start + len(key)
        before, behind = self.around
        number = start + len(before)
        lasted = _LASTED.match(data, start) if data.startswith(before, start) else None
        if lasted is None or lasted.start(2) != number or not data.startswith(behind, lasted.end(2)):
            return None
        self.hits += 1
        return key, _with_duration(value, lasted), lasted.end(2) + len(behind)

    def of(self, raw: Any) -> tuple[bytes | None, Any, int]:
        """(its bytes, if they are cached, its value, its length). The bytes are the same object for every node with them."""
        if self.given_up:
            return None, self.decode(raw), memoryview(raw).nbytes
        data = bytes(raw)
        lasted = _LASTED.match(data)
        key = data if lasted is None else data[: lasted.start(2)] + data[lasted.end(2) :]
        found = self.last if key == self.last[0] else self.known.get(key)  # a comparison with the previous node's bytes is cheaper than a hash
        if found is not None:
            self.hits += 1
            self._keep_last(found, data, lasted)
            return found[0], found[1] if lasted is None else _with_duration(found[1], lasted), len(data)
        value = self.decode(data)
        self.misses += 1
        if self.misses >= TRIED and 4 * self.hits < self.misses:
            self.known.clear()
            self.last, self.around, self.given_up = (b"", None), None, True
            return None, value, len(data)
        if self.size + len(key) > MOST_BYTES:
            self.known.clear()
            self.size = 0
        self.size += len(key)
        found = self.known[key] = key, value
        if not self.last[0]:  # a value that came once may never come again: the next node is more often equal to an earlier one
            self._keep_last(found, data, lasted)
        return key, value, len(data)

    def _keep_last(self, found: tuple[bytes, Any], data: bytes, lasted: re.Match[bytes] | None) -> None:
        self.last = found
        self.around = None if lasted is None else (data[: lasted.start(2)], data[lasted.end(2) :])


def _with_duration(value: Any, lasted: re.Match[bytes]) -> Any:
    """A section, or the probe of one, that differs from a cached one only in the duration."""
    number = lasted[2].decode("ascii")
    probe = (value.probe if lasted[1] else value).__copy__()
    probe.duration_ms = float(number) if "." in number else int(number)
    if not lasted[1]:
        return probe
    section = value.__copy__()
    section.probe = probe
    return section


def _raw_twin(structure: Any, inside: Mapping[str, Any]) -> Any:
    """A structure with the same keys, whose values are not decoded, except `inside`, which is divided into parts. A missing key is None."""
    fields = sorted(msgspec.structs.fields(structure), key=lambda one: not one.required)
    kinds = {one.name: inside[one.name] | None if one.name in inside else msgspec.Raw for one in fields}
    rows: list[tuple] = [(one.name, kinds[one.name]) if one.required else (one.name, kinds[one.name], None) for one in fields]
    return msgspec.defstruct("InParts", rows, forbid_unknown_fields=True, gc=False)


def _structure(kind: Any) -> Any:
    """The structure of `structure | None`."""
    return next((one for one in getattr(kind, "__args__", ()) if one is not type(None)), kind)


class _Object:
    """An object each of whose keys is a part or another object. Its parts are cached here."""

    def __init__(self, structure: Any, parted: tuple[str, ...] = ()):
        fields = msgspec.structs.fields(structure)
        self.made = structure
        self.names: list[Part] = []
        self.rows: list[tuple[str, int, Any, _Object | _Seen]] = []  # key, length of its text, value if it is missing, what is below it
        for one in fields:
            below = _Object(_structure(one.type)) if one.name in parted else _Seen(msgspec.json.Decoder(one.type).decode)
            self.names += [(one.name, *part) for part in below.names] if isinstance(below, _Object) else [(one.name,)]
            self.rows.append((one.name, len(one.name) + len('"":,'), None if one.required else one.default, below))
        self.raw: Any = _raw_twin(structure, {name: below.raw for name, _, _, below in self.rows if isinstance(below, _Object)})

    def value(self, raw: Any, seen: list[bytes | None]) -> tuple[Any, int]:
        """(the object, its length in bytes). seen: receives the bytes of each cached part."""
        values, size = [], len("{}") - len(",")
        for name, around, missing, below in self.rows:
            one = getattr(raw, name)
            if one is None:  # the key is missing, or null: the size shows which
                values.append(missing)
                seen += [None] * (len(below.names) if isinstance(below, _Object) else 1)
                continue
            if isinstance(below, _Object):
                value, length = below.value(one, seen)
            else:
                data, value, length = below.of(one)
                seen.append(data)
            size += around + length
            values.append(value)
        return self.made(*values), size


class _Layout:
    """The order of keys of a document, which most documents share: parts are found by it without parsing those that are cached. The bytes between two parts
    are compared. A part that differs from the last one extends to the beginning of the next part and is decoded, so that it is valid JSON: then the whole
    document can only consist of these keys and values.
    """

    def __init__(self, data: bytes, sections: _Object, decode_collector: Callable[[Any], Any]):
        keys = msgspec.json.decode(data, type=_KeysOfDocument)
        self._sections, self._decode_collector = sections, decode_collector
        self._head, self._collector = data[: data.index(b'"collector":') + len(b'"collector":')], b""
        self._end = b"}}"
        self._steps: list[tuple[bytes, _Seen, int, int, int | None]] = []  # bytes before it, part, place in `names`, row, row below that
        rows, before = {name: number for number, (name, *_) in enumerate(sections.rows)}, b',"sections":{'
        for name, raw in keys.sections.items():
            before, below = before + b'"%s":' % name.encode(), sections.rows[rows[name]][3]
            if isinstance(below, _Seen):
                self._steps.append((before, below, sections.names.index((name,)), rows[name], None))
                before = b","
                continue
            inside, before = {one: number for number, (one, *_) in enumerate(below.rows)}, before + b"{"
            for one in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]):
                before += b'"%s":' % one.encode()
                part = below.rows[inside[one]][3]
                assert isinstance(part, _Seen)
                self._steps.append((before, part, sections.names.index((name, one)), rows[name], inside[one]))
                before = b","
            before = b"},"
        self._end = before.replace(b",", b"") + self._end

    def decode(self, data: bytes) -> tuple[Any, tuple[bytes | None, ...]] | None:
        """As Parts.decode; None for a document with another order of keys."""
        position = self._after_collector(data)
        values, inside = [missing for _, _, missing, _ in self._sections.rows], dict[int, list[Any]]()
        seen: list[bytes | None] = [None] * len(self._sections.names)
        if position is None:
            return None
        for number, (before, part, place, row, below) in enumerate(self._steps):
            if not data.startswith(before, position):
                return None
            found = part.again(data, position + len(before)) or self._new(data, position + len(before), part, number + 1)
            if found is None:
                return None
            seen[place], value, position = found
            if below is None:
                values[row] = value
            elif row in inside:
                inside[row][below] = value
            else:
                inside[row] = self._missing_in(row)
                inside[row][below] = value
        if data[position:] != self._end:
            return None
        for row, fields in inside.items():
            values[row] = self._sections.rows[row][3].made(*fields)  # type: ignore[union-attr]
        return self._sections.made(*values), tuple(seen)

    def _after_collector(self, data: bytes) -> int | None:
        """The end of the part `collector`, which most nodes have in common."""
        start = len(self._head)
        if self._collector and data.startswith(self._collector):
            return len(self._collector)
        end = data.find(self._steps[0][0], start) if data.startswith(self._head) and self._steps else -1
        if end < 0:
            return None
        try:
            self._decode_collector(data[start:end])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        self._collector = data[:end]
        return end

    def _new(self, data: bytes, start: int, part: _Seen, following: int) -> tuple[bytes | None, Any, int] | None:
        """Decodes a part that differs from the last one. following: the step after it."""
        end = data.find(self._steps[following][0], start) if following < len(self._steps) else len(data) - len(self._end)
        if end < start:
            return None
        try:
            key, value, _ = part.of(data[start:end])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return key, value, end

    def _missing_in(self, row: int) -> list[Any]:
        return [missing for _, _, missing, _ in self._sections.rows[row][3].rows]  # type: ignore[union-attr]


class _KeysOfDocument(msgspec.Struct):
    """A document from which only the order of its keys is read."""

    sections: dict[str, msgspec.Raw]


class Parts:
    """Decodes documents and caches parts between nodes. document: the type of a facts document."""

    def __init__(self, document: Any):
        types = {one.name: one.type for one in msgspec.structs.fields(document)}
        self._sections = _Object(types["sections"], PARTED)
        rows = [("schema", types["schema"]), ("collector", msgspec.Raw), ("sections", self._sections.raw)]
        self._document = msgspec.json.Decoder(msgspec.defstruct("FactsInParts", rows, forbid_unknown_fields=True, gc=False))
        self._collector = msgspec.json.Decoder(types["collector"])
        self._around = len(b'{"schema":"","collector":,"sections":}')
        self.names = self._sections.names
        self._layout: _Layout | None = None
        self._learned = 0

    def decode(self, data: bytes) -> tuple[Any, tuple[bytes | None, ...]]:
        """(sections, the bytes of each cached part of `names`). Raises NotInParts, msgspec.DecodeError, UnicodeDecodeError. NotInParts: a document with
        spaces between its keys, or with a duplicate key, must be decoded as a whole.
        """
        found = None if self._layout is None else self._layout.decode(data)
        if found is not None:
            return found
        sections, seen = self._decode_any(data)
        if self._learned < MOST_LAYOUTS:
            self._learned += 1
            self._layout = _Layout(data, self._sections, self._collector.decode)
        return sections, seen

    def _decode_any(self, data: bytes) -> tuple[Any, tuple[bytes | None, ...]]:
        """The same for a document with any order of keys."""
        raw: Any = self._document.decode(data)
        self._collector.decode(raw.collector)
        seen: list[bytes | None] = []
        sections, size = self._sections.value(raw.sections, seen)
        if self._around + len(raw.schema) + memoryview(raw.collector).nbytes + size != len(data):
            raise NotInParts
        return sections, tuple(seen)
