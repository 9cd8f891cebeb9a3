"""Takes many values out of a section in a few calls: two sections from which the same comes have the same value at each path."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from unhang.judge.extract import Extractor, has_fractions, is_plain
from unhang.judge.syntax import Path
from unhang.schemas.shapes import Shape

Take = Callable[[Any], Any]
_APART = object()  # says that values were taken one by one: no list is nothing else than a list of one item with nothing in it


def takes_of(shape: Shape, name: str, paths: list[Path]) -> list[Take]:
    """What reads all of these paths below a section: single values in one call, and each list, also each list in a list, in one."""
    with_fractions = [path for path in paths if has_fractions(shape, path)]
    others = [path for path in paths if path not in with_fractions]
    return [*_takes(shape, name, others), *(_spelt(take) for take in _takes(shape, name, with_fractions))]


def _spelt(take: Take) -> Take:
    return lambda section: repr(take(section))


def _takes(shape: Shape, name: str, paths: list[Path]) -> list[Take]:
    groups: dict[tuple[Path, ...], list[Path]] = {}
    rest: list[Path] = []
    for path in paths:
        if not path:
            continue  # whether the section is there tells its account
        lists, field = _lists(shape, path)
        if field:
            groups.setdefault(lists, []).append(field)
        else:
            rest.append(path)
    return ([_one_by_one(shape, name, rest)] if rest else []) + [_quick(shape, name, lists, fields) for lists, fields in groups.items()]


def _lists(shape: Shape, path: Path) -> tuple[tuple[Path, ...], Path]:
    """(paths to the lists on the way, each below the items of the one before; path to a single value below the last), () for anything else."""
    lists: list[Path] = []
    while "*" in path:
        at = path.index("*")
        for field in path[:at]:
            if shape.kind != "object" or field not in shape.fields:
                return (), ()
            shape = shape.fields[field]
        if shape.kind != "list" or shape.item is None or not at:
            return (), ()
        lists.append(path[:at])
        shape, path = shape.item, path[at + 1 :]
    return (tuple(lists), path) if path and is_plain(shape, path) else ((), ())


def _quick(shape: Shape, name: str, lists: tuple[Path, ...], fields: list[Path]) -> Take:
    """Fields of the section, or of each item of a list, in one call. Where an object on the way is null: its fields one by one, the rest in one."""
    groups: dict[Path, list[Path]] = {}
    for field in fields:
        groups.setdefault(field[:-1], []).append(field)
    below = tuple(part for path in lists for part in (*path, "*"))
    parts = [(_call(lists, group), _one_by_one(shape, name, [(*below, *field) for field in group])) for group in groups.values()]
    whole = _call(lists, fields)

    def take(section: Any) -> Any:
        try:
            return whole(section)
        except (AttributeError, TypeError):
            return (_APART, *[_either(section, *part) for part in parts])

    return take


def _either(section: Any, quick: Take, one_by_one: Take) -> Any:
    try:
        return quick(section)
    except (AttributeError, TypeError):
        return _APART, one_by_one(section)


def _call(lists: tuple[Path, ...], fields: list[Path]) -> Take:
    """Raises AttributeError, TypeError for a null on the way."""
    take: Take = attrgetter(*(".".join(field) for field in fields))
    for path in reversed(lists):
        take = _each(attrgetter(".".join(path)), take)
    return take


def _each(items: Take, take: Take) -> Take:
    return lambda holder: tuple(map(take, items(holder)))


def _one_by_one(shape: Shape, name: str, paths: list[Path]) -> Take:
    """Each value by itself, with how deep a null stands on the way to it."""
    extractor = Extractor({name: shape}, [(name, *path) for path in paths])

    def take(section: Any) -> Any:
        return tuple(extractor.values(_Holder(name, section)))

    return take


class _Holder:
    """A section under its name, as the sections of a node hold it."""

    def __init__(self, name: str, section: Any):
        setattr(self, name, section)
