"""Decodes a node's facts part by part: a part whose bytes were met before, on whatever node, is what it was then, and is not decoded again.

A part is a section, or a field of a section that is most of a document (PARTED). Its bytes alone decide what it holds and whether it is allowed, so a part
that is taken from memory was checked like any other. How long reading a section took is new on every node, and is left out of its bytes.
What is shared between nodes is never changed by anyone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

PARTED = ("interconnect",)  # 144 links: alike on most nodes, beside the names of the GPUs
MOST_BYTES = 2 * 1024 * 1024  # of one part, kept as they came; what they hold takes some times as much
TRIED = 128  # different bytes of a part, of which hardly any came twice: it is new on every node
Part = tuple[str, ...]
MOST_LAYOUTS = 8  # orders of keys that are learned, of documents that come in many
_LASTED = re.compile(rb'(\{"probe":)?\{"status":"[a-z]{1,20}","duration_ms":((?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,6})?)(?=[,}])')


class NotInParts(Exception):
    """Facts that have to be decoded as a whole."""


@dataclass
class _Seen:
    """What is known of one part, by its bytes."""

    decode: Callable[[Any], Any]
    known: dict[bytes, tuple[bytes, Any]] = field(default_factory=dict)
    size: int = 0
    hits: int = 0
    misses: int = 0
    given_up: bool = False
    last: tuple[bytes, Any] = (b"", None)  # what was found last; no part is empty
    around: tuple[bytes, bytes] | None = None  # what stands before and behind the duration in `last`; None where it has none

    def again(self, data: bytes, start: int) -> tuple[bytes, Any, int] | None:
        """(its bytes, its value, where it ends) where what begins there is what was found last, but for the duration; None where it is not."""
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
        """(its bytes where they may come again, its value, its length). The bytes are the same object for each node that has them."""
        if self.given_up:
            return None, self.decode(raw), memoryview(raw).nbytes
        data = bytes(raw)
        lasted = _LASTED.match(data)
        key = data if lasted is None else data[: lasted.start(2)] + data[lasted.end(2) :]
        found = self.last if key == self.last[0] else self.known.get(key)  # comparing with those of the node before is cheaper than hashing
        self.around = None if lasted is None else (data[: lasted.start(2)], data[lasted.end(2) :])
        if found is not None:
            self.hits += 1
            self.last = found
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
        self.last = self.known[key] = key, value
        return key, value, len(data)


def _with_duration(value: Any, lasted: re.Match[bytes]) -> Any:
    """A section, or the probe of one, that differs from a known one in how long it took to read."""
    number = lasted[2].decode("ascii")
    probe = (value.probe if lasted[1] else value).__copy__()
    probe.duration_ms = float(number) if "." in number else int(number)
    if not lasted[1]:
        return probe
    section = value.__copy__()
    section.probe = probe
    return section


def _raw_twin(structure: Any, inside: Mapping[str, Any]) -> Any:
    """A structure with the same keys, of which none is decoded, but for `inside`: they fall into parts of their own. One that is missing is None."""
    fields = sorted(msgspec.structs.fields(structure), key=lambda one: not one.required)
    kinds = {one.name: inside[one.name] | None if one.name in inside else msgspec.Raw for one in fields}
    rows: list[tuple] = [(one.name, kinds[one.name]) if one.required else (one.name, kinds[one.name], None) for one in fields]
    return msgspec.defstruct("InParts", rows, forbid_unknown_fields=True, gc=False)


def _structure(kind: Any) -> Any:
    """The structure of `structure | None`."""
    return next((one for one in getattr(kind, "__args__", ()) if one is not type(None)), kind)


class _Object:
    """An object of which each key is a part, or an object again. Parts are remembered here."""

    def __init__(self, structure: Any, parted: tuple[str, ...] = ()):
        fields = msgspec.structs.fields(structure)
        self.made = structure
        self.names: list[Part] = []
        self.rows: list[tuple[str, int, Any, _Object | _Seen]] = []  # key, what it takes in writing, value where it is missing, what is below it
        for one in fields:
            below = _Object(_structure(one.type)) if one.name in parted else _Seen(msgspec.json.Decoder(one.type).decode)
            self.names += [(one.name, *part) for part in below.names] if isinstance(below, _Object) else [(one.name,)]
            self.rows.append((one.name, len(one.name) + len('"":,'), None if one.required else one.default, below))
        self.raw: Any = _raw_twin(structure, {name: below.raw for name, _, _, below in self.rows if isinstance(below, _Object)})

    def value(self, raw: Any, seen: list[bytes | None]) -> tuple[Any, int]:
        """(the object, how many bytes it takes in writing). seen: gets the bytes of each part that may come again."""
        values, size = [], len("{}") - len(",")
        for name, around, missing, below in self.rows:
            one = getattr(raw, name)
            if one is None:  # it is missing, or a null that the size will tell of
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
    """The order of keys in which one document came, and most others do: their parts are found without looking at what is in those that are known.

    What stands between two parts of this order is compared. A part that is not the one met last reaches to where the next one begins, and is decoded, so that
    it is JSON from its beginning to its end: then the whole document cannot be anything else than these keys with these values.
    """

    def __init__(self, data: bytes, sections: _Object, decode_collector: Callable[[Any], Any]):
        keys = msgspec.json.decode(data, type=_KeysOfDocument)
        self._sections, self._decode_collector = sections, decode_collector
        self._head, self._collector = data[: data.index(b'"collector":') + len(b'"collector":')], b""
        self._end = b"}}"
        self._steps: list[tuple[bytes, _Seen, int, int, int | None]] = []  # what stands before it, part, place in `names`, row, row below that
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
        """As Parts.decode; None for a document that has to be read in another way."""
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
            else:
                inside.setdefault(row, self._missing_in(row))[below] = value
        if data[position:] != self._end:
            return None
        for row, fields in inside.items():
            values[row] = self._sections.rows[row][3].made(*fields)  # type: ignore[union-attr]
        return self._sections.made(*values), tuple(seen)

    def _after_collector(self, data: bytes) -> int | None:
        """Where the collector ends, which most nodes have in common."""
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
        """A part that is not the one met last. following: the step after it."""
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
    """A document of which the order of keys is asked."""

    sections: dict[str, msgspec.Raw]


class Parts:
    """Remembers parts between nodes. document: the type of a facts document."""

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
        """(sections, the bytes of each part of `names` that may come again). Raises NotInParts, msgspec.DecodeError, UnicodeDecodeError.

        NotInParts: a document with spaces between its keys, or a key that stands twice, is one to decode as a whole.
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
        """The same of a document whose keys stand in any order."""
        raw: Any = self._document.decode(data)
        self._collector.decode(raw.collector)
        seen: list[bytes | None] = []
        sections, size = self._sections.value(raw.sections, seen)
        if self._around + len(raw.schema) + memoryview(raw.collector).nbytes + size != len(data):
            raise NotInParts
        return sections, tuple(seen)
