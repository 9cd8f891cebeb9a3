"""Extracts a node's values at all paths that rules read, without its own facts: part by part, each part once for all nodes with the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from unhang.audit.judge.extract import Extractor, has_fractions
from unhang.audit.judge.section_keys import takes_of
from unhang.audit.judge.syntax import Path
from unhang.schemas.shapes import fact_shapes

MOST_SLICES = 512  # of one part
MOST_VALUES = 500_000
Part = tuple[str, ...]


@dataclass(eq=False, frozen=True)
class Slice:
    """The values of one part, in the order of its paths. Nodes with equal values share the same object."""

    values: tuple[Any, ...]


@dataclass
class _Part:
    """One part of a document, and the cache of its extracted values by its bytes and by its signature."""

    name: str
    place: int | None  # index of its bytes among those of a document
    paths: list[Path]
    with_account: bool  # the part contains the section's account of its own reading
    by_bytes: dict[bytes, Slice] = field(default_factory=dict)
    by_signature: dict[Any, Slice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = fact_shapes()[self.name]
        self.takes = takes_of(shape, self.name, [path[1:] for path in self.paths])
        self.extractor = Extractor(fact_shapes(), self.paths)
        self.paths = self.extractor.paths
        self.spelt = [has_fractions(shape, path[1:]) for path in self.paths]
        self.get = attrgetter(self.name)


class Vectors:
    """Extracts values. parts: the parts of a document (parts.py)."""

    def __init__(self, paths: Iterable[Path], parts: Sequence[Part]):
        """paths: only paths of facts."""
        paths = sorted(set(paths))
        split = {part[0] for part in parts if len(part) > 1}
        below: dict[Part, list[Path]] = {}
        for path in paths:
            name = path[0]
            below.setdefault((name, "probe") if name in split else (name,), [])
            part = (name, path[1] if len(path) > 1 else "probe") if name in split else (name,)
            below.setdefault(part, []).append(path)
        where = {part: place for place, part in enumerate(parts)}
        self.parts = [_Part(part[0], where.get(part), inside, len(part) == 1 or part[1] == "probe") for part, inside in below.items()]
        self.place: dict[Path, int] = {}
        self.account_place: dict[str, int] = {}
        self.length = 0
        for one in self.parts:
            self.place |= {path: self.length + number for number, path in enumerate(one.paths)}
            self.length += len(one.paths)
            if one.with_account:
                self.account_place[one.name] = self.length
                self.length += 1
        self._numbers: dict[Any, int] = {}

    def of(self, sections: Any, seen: Sequence[bytes | None] = ()) -> tuple[Slice, ...]:
        """A node's configuration, as slices. seen: the bytes of its parts, as far as they are known. Equal for two nodes only if all values are."""
        found = []
        for part in self.parts:
            data = seen[part.place] if seen and part.place is not None else None
            if data is None:
                found.append(self._slice(part, sections))
                continue
            one = part.by_bytes.get(data)
            if one is None:
                if len(part.by_bytes) >= MOST_SLICES:
                    part.by_bytes.clear()
                one = part.by_bytes[data] = self._slice(part, sections)
            found.append(one)
        return tuple(found)

    def vector(self, slices: Sequence[Slice]) -> list[Any]:
        """The values at all paths, by `place`; long values are replaced by numbers."""
        return [value for one in slices for value in one.values]

    def full(self) -> bool:
        """Whether the cache is so large that it must be emptied."""
        return len(self._numbers) > MOST_VALUES

    def forget(self) -> None:
        """Empties the cache of values and their numbers."""
        self._numbers = {}
        for part in self.parts:
            part.by_bytes.clear()
            part.by_signature.clear()

    def _slice(self, part: _Part, sections: Any) -> Slice:
        section = part.get(sections)
        account = account_of(section) if part.with_account else None
        key = (account, None) if section is None else (account, *[take(section) for take in part.takes])
        found = part.by_signature.get(key)
        if found is None:
            if len(part.by_signature) >= MOST_SLICES:
                part.by_signature.clear()
            found = part.by_signature[key] = self._taken(part, sections, account)
        return found

    def _taken(self, part: _Part, sections: Any, account: Any) -> Slice:
        numbers = self._numbers
        values = [repr(value) if spelt else value for value, spelt in zip(part.extractor.values(sections), part.spelt, strict=True)]
        values += [account] if part.with_account else []
        return Slice(tuple([numbers.setdefault(value, len(numbers)) if type(value) is tuple else value for value in values]))


def account_of(section: Any) -> Any:
    """A section's report about its own reading; None if there is none."""
    if section is None:
        return ("no section",)
    probe = section.probe
    if not probe.unread and probe.status == "ok":
        return None
    rows = probe.unread or ()
    return (probe.status, probe.error, tuple([(row.field, row.status, row.reason) for row in rows]), _named_items(section, rows))


def _named_items(section: Any, rows: Iterable[Any]) -> tuple[Any, ...]:
    """The paths of the items of lists in which a row names an item by its path, as environments[/opt/a].python, because its index differs from node to node."""
    lists = dict.fromkeys(row.field.partition("[")[0] for row in rows if _NAMED.search(row.field or ""))
    return tuple([(name, _paths_in(section, name)) for name in lists])


def _paths_in(section: Any, name: str) -> Any:
    holder = section
    for part in name.split("."):
        holder = holder.get(part) if isinstance(holder, dict) else getattr(holder, part, None)
    return _paths(holder) if isinstance(holder, list) else None


def _paths(items: list[Any]) -> tuple[Any, ...]:
    """The path of each item, and of items in its own lists."""
    found = []
    for one in items:
        lists = [getattr(one, name) for name in getattr(one, "__struct_fields__", ()) if isinstance(getattr(one, name), list)]
        found.append((getattr(one, "path", None), *[_paths(inside) for inside in lists]))
    return tuple(found)


_NAMED = re.compile(r"\[(?!\*\]|[0-9]+\])")
