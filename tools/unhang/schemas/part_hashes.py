"""Configuration hashes of many nodes: what a part of a document adds to its node's hash is worked out once for all nodes that have the part's bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from unhang.schemas.configuration import sections_type, text_of_section_alone

MOST_KNOWN = 512  # texts of one part
Part = tuple[str, ...]


class PartHashes:
    """parts: a section, or a field of one, in the order in which a document tells the bytes of its parts (judge/parts.py)."""

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


class _Remembered:
    """Texts of one part by its bytes. place: of its bytes among those of a document, None where it is no part."""

    def __init__(self, place: int | None) -> None:
        self.place = place
        self.known: dict[bytes, bytes] = {}

    def of(self, seen: Sequence[bytes | None], work: Callable[[], bytes]) -> bytes:
        data = seen[self.place] if seen and self.place is not None else None
        if data is None:
            return work()
        found = self.known.get(data)
        if found is None:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            found = self.known[data] = work()
        return found


class _Section:
    """One section, remembered as a whole, or field by field where its fields are parts."""

    def __init__(self, name: str, kind: Any, where: dict[Part, int]) -> None:
        self.name, self.encoded = name, name.encode()
        self.whole = _Remembered(where.get((name,)))
        self.structure: Any = next(one for one in kind.__args__ if one is not type(None))
        is_split = any(part[0] == name and len(part) > 1 for part in where)
        self.fields = [_Field(name, one, where) for one in msgspec.structs.fields(self.structure)] if is_split else []

    def text_of(self, section: Any, seen: Sequence[bytes | None]) -> bytes:
        return self.whole.of(seen, lambda: self._text(section, seen))

    def _text(self, section: Any, seen: Sequence[bytes | None]) -> bytes:
        if not (seen and self.fields):
            return text_of_section_alone(msgspec.convert(section, self.structure, from_attributes=True))
        return b"\n".join(filter(None, [one.text_of(section, seen) for one in self.fields]))


class _Field:
    """A field of a section that is a part. structure: of this field alone, for msgspec knows structures quickly and makes other types anew at each call."""

    def __init__(self, section: str, field: Any, where: dict[Part, int]) -> None:
        self.structure = msgspec.defstruct(f"Configuration_{section}_{field.name}_alone", [(field.name, field.type, None)], omit_defaults=True, gc=False)
        self.remembered = _Remembered(where.get((section, field.name)))

    def text_of(self, section: Any, seen: Sequence[bytes | None]) -> bytes:
        return self.remembered.of(seen, lambda: text_of_section_alone(msgspec.convert(section, self.structure, from_attributes=True)))
