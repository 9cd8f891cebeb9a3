"""The list `unreadable` of the language of rules: sections that ended in an error, and parts of
which more than half of the fields could not be read; and the sections without what little such a
part did answer, which no other rule judges. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from copy import copy
from functools import cache
from typing import Any, NamedTuple

from unhang.core.gpu_verbs import fact_of
from unhang.core.schemas.shapes import TEXT, Shape, every_fact, fact_shapes
from unhang.judge.rules.values import Fact, Unknown

UNREADABLE = Shape(
    "object",
    {"section": TEXT, "name": TEXT, "because": TEXT, "paths": Shape("list", item=TEXT)},
)
"""name: `GPU 7 (0000:db:00.0)`; because: how much of it was not read, and the first reason; paths:
of the parts, [] for sections."""
_PART = re.compile(r"(\w+)\[([^\]]+)\]\.(.+)")
_NAMES = ("index", "pci_address", "name", "path")  # of these a part's name is made
_KEPT = {*_NAMES, "uuid", "error"}


class _Part(NamedTuple):
    section: str
    list_name: str
    key: str  # an index, a path, or * for all items
    unread: int
    asked: int
    reason: str

    def path(self, items: Any) -> str:
        """As in expressions: gpus.devices[7], also where the collector wrote the item's path."""
        places = (str(at) for at, one in enumerate(items or ()) if fact_of(one, "path") == self.key)
        return f"{self.section}.{self.list_name}[{next(places, self.key)}]"


@cache
def reads() -> frozenset[tuple[str, ...]]:
    """The facts that decide it: states of the sections, and what names their parts."""
    found: set[tuple[str, ...]] = {(name, "probe", "status") for name in fact_shapes()}
    for name, shape in fact_shapes().items():
        for field, one in shape.fields.items():
            if one.item is not None and one.item.kind == "object":
                found |= {(name, field, "*", part) for part in _NAMES if part in one.item.fields}
    return frozenset(found)


def unreadable(sections: Any) -> list[Any]:
    """Facts of the shape UNREADABLE: one for all sections with the same error, one for all parts of
    a list with the same reason; an Unknown for a section that was not read otherwise."""
    found: list[Any] = []
    failed: dict[str, list[str]] = {}
    alike: dict[tuple[str, str, str], list[_Part]] = {}
    for name in fact_shapes():
        probe = getattr(getattr(sections, name, None), "probe", None)
        if probe is None:
            continue
        if probe.status == "error":
            failed.setdefault(probe.error or "no reason", []).append(name)
        elif probe.status not in ("ok", "absent", None):
            found.append(Unknown("unread", name, probe.status, probe.error or ""))
        for part in _parts(name, probe.unread or ()):
            alike.setdefault((name, part.list_name, part.reason), []).append(part)
    whole = [_fact(names[0], ", ".join(names), error, []) for error, names in failed.items()]
    return whole + [_of_parts(sections, same) for same in alike.values()] + found


def without_silent_parts(sections: Any, found: Iterable[Any]) -> Any:
    """The sections, in which a part that `found` names as unreadable has its names and nothing
    else, with a row of its section that says why. What is given stays as it is."""
    for one in found:
        for path in one.value["paths"] if isinstance(one, Fact) else ():
            section, list_name, key = re.split(r"[.\[]", path[:-1], maxsplit=2)
            sections, own = copy(sections), copy(getattr(sections, section))
            setattr(sections, section, own)
            items = enumerate(getattr(own, list_name) or ())
            named = (_named_only(item) if key in (str(at), "*") else item for at, item in items)
            setattr(own, list_name, [*named])
            own.probe = copy(own.probe)
            row = copy(own.probe.unread[0])
            row.field, row.status = path.partition(".")[2], "error"
            row.reason = one.value["because"]
            own.probe.unread = [*own.probe.unread, row]
    return sections


def _named_only(item: Any) -> Any:
    own = copy(item)
    for name in getattr(own, "__struct_fields__", None) or vars(own) if own else ():
        if name not in _KEPT:
            setattr(own, name, None)
    return own


def _fact(section: str, name: str, because: str, paths: list[str]) -> Fact:
    facts = {"section": section, "name": name, "because": because, "paths": paths}
    return Fact(facts, UNREADABLE, paths[0] if paths else section)


def _of_parts(sections: Any, same: list[_Part]) -> Fact:
    first = same[0]
    items = getattr(getattr(sections, first.section), first.list_name)
    names = [_name(one, items) for one in same]
    name = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    because = f"{first.unread} of {first.asked} fields not read, the first: {first.reason}"
    return _fact(first.section, name, because, [one.path(items) for one in same])


def _name(part: _Part, items: Any) -> str:
    if part.key == "*":
        return "all GPUs" if part.section == "gpus" else f"all {part.section}.{part.list_name}"
    path = part.path(items)
    place = path.rpartition("[")[2][:-1]
    at = int(place) if place.isdecimal() else -1
    item = items[at] if items and 0 <= at < len(items) else None
    known = next((v for v in (fact_of(item, one) for one in _NAMES[1:]) if v is not None), None)
    name = f"GPU {place}" if part.section == "gpus" else path
    return f"{name} ({known})" if known is not None else name


def _parts(section: str, rows: Iterable[Any]) -> Iterator[_Part]:
    """The parts of a section of which more than half of the fields that they have was not read. A
    field that is absent, or that needs root, is not counted."""
    of_list: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        if found := _PART.fullmatch(row.field or ""):
            name, key, field = found.groups()
            of_list.setdefault(name, {}).setdefault(key, []).append((field, row))
    for name, by_key in of_list.items():
        leaves = _leaves(section, name)
        for key, own in by_key.items():
            given = own if key == "*" else [*by_key.get("*", ()), *own]
            failed = [one for one in given if one[1].status in ("error", "timeout")]
            unread = _below(leaves, failed)
            asked = len(
                leaves - _below(leaves, [one for one in given if one not in failed]) | unread
            )
            if 2 * len(unread) > asked:
                yield _Part(section, name, key, len(unread), asked, failed[0][1].reason)


def _below(leaves: frozenset[tuple[str, ...]], rows: list[Any]) -> set[tuple[str, ...]]:
    fields = [tuple(field.split(".")) for field, _ in rows]
    return {leaf for leaf in leaves for field in fields if leaf[: len(field)] == field}


@cache
def _leaves(section: str, name: str) -> frozenset[tuple[str, ...]]:
    above = f"{section}.{name}[*]."
    below = ((path.partition(above)[2], shape) for path, shape in every_fact())
    return frozenset(
        tuple(field.split("."))
        for field, shape in below
        if field and "[" not in field and shape.kind != "object"
    )
