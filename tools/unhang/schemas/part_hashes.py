"""Configuration hashes of many nodes: each part is hashed once for all nodes with the same bytes."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from unhang.schemas.configuration import json_of_section_alone, sections_type, text_of_section_alone

MOST_KNOWN = 512  # texts of one part
TRIED = 64  # after so many sections with hardly a repetition, a section counts as different on every node
Part = tuple[str, ...]


class PartHashes:
    """parts: sections, or fields of one, in the order of the parts of a document (judge/parts.py)."""

    def __init__(self, parts: Sequence[Part]) -> None:
        where = {part: place for place, part in enumerate(parts)}
        self._sections = [_Section(one.name, one.type, where) for one in msgspec.structs.fields(sections_type())]

    def hash_of(self, sections: Any, seen: Sequence[bytes | None] = ()) -> str:
        """configuration.hash_of_sections of typed sections. seen: the bytes of each part, None for one that is not remembered; () where none is."""
        pieces: list[bytes] = []
        for one in self._sections:
            section = getattr(sections, one.name)
            if section is not None and (text := one.text_of(section, seen)):
                pieces += (one.encoded, text)
        return "sha256:" + hashlib.sha256(b"\n".join(pieces)).hexdigest()


class _Remembered(ABC):
    """Cache of the texts of one part by its bytes. place: index of its bytes among those of a document, None if it is no part."""

    def __init__(self, place: int | None) -> None:
        self.place = place
        self.known: dict[bytes, bytes] = {}

    def text_of(self, section: Any, seen: Sequence[bytes | None]) -> bytes:
        """The part's contribution to the hash of a node with this section; b"" for none."""
        data = seen[self.place] if seen and self.place is not None else None
        if data is None:
            return self.text_anew(section, seen)
        found = self.known.get(data)
        if found is None:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            found = self.known[data] = self.text_anew(section, seen)
        return found

    @abstractmethod
    def text_anew(self, section: Any, seen: Sequence[bytes | None]) -> bytes:
        """The same for a part that is not in the cache."""


class _Alike:
    """Cache of the texts of a section whose bytes differ on every node, by its configuration, because many sections differ only in samples."""

    def __init__(self) -> None:
        self.known: dict[bytes, bytes] = {}
        self.hits = self.misses = 0

    def text_of(self, section: Any) -> bytes:
        if self.misses >= TRIED and 4 * self.hits < self.misses:
            return text_of_section_alone(section)
        key = json_of_section_alone(section)
        found = self.known.get(key)
        self.hits += found is not None
        if found is None:
            self.misses += 1
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            found = self.known[key] = text_of_section_alone(section)
        return found


class _Section(_Remembered):
    """One section, cached as a whole, or field by field if its fields are parts."""

    def __init__(self, name: str, kind: Any, where: dict[Part, int]) -> None:
        super().__init__(where.get((name,)))
        self.name, self.encoded = name, name.encode()
        self.alike = _Alike()
        self.structure: Any = next(one for one in kind.__args__ if one is not type(None))
        is_split = any(part[0] == name and len(part) > 1 for part in where)
        self.fields = [_Field(name, one, where) for one in msgspec.structs.fields(self.structure)] if is_split else []

    def text_anew(self, section: Any, seen: Sequence[bytes | None]) -> bytes:
        if not (seen and self.fields):
            return self.alike.text_of(msgspec.convert(section, self.structure, from_attributes=True))
        return b"\n".join(filter(None, [one.text_of(section, seen) for one in self.fields]))


class _Field(_Remembered):
    """A field of a section that is a part. structure: of this field alone, because msgspec caches only structures and builds other types again at each call."""

    def __init__(self, section: str, field: Any, where: dict[Part, int]) -> None:
        super().__init__(where.get((section, field.name)))
        self.structure = msgspec.defstruct(f"Configuration_{section}_{field.name}_alone", [(field.name, field.type, None)], omit_defaults=True, gc=False)

    def text_anew(self, section: Any, seen: Sequence[bytes | None]) -> bytes:
        return text_of_section_alone(msgspec.convert(section, self.structure, from_attributes=True))
