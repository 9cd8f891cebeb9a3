"""Which facts differ between two versions of a section. Rows of a list are matched by their names,
so that one more row is one change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.core.schemas.configuration import was_unread
from unhang.core.schemas.shapes import Shape, fact_shapes

# fields that identify a row, if the schema marks no identity
NAMES = ("name", "uuid", "pci_address", "guid", "path", "module", "index", "id")
_PLAIN_KEY = re.compile(r"[\w.:/@+-]{1,80}")
Change = tuple[str, Any, Any]  # path, before, now; None means no value


def changes_of_section(
    section: str, before: Mapping[str, Any], now: Mapping[str, Any]
) -> list[Change]:
    """Each fact that differs. A fact that one of the two runs could not read is no change. before,
    now: results of text_of_section."""
    shape = fact_shapes().get(section)
    old, new = (
        {key: value for key, value in one.items() if key != "probe"} for one in (before, now)
    )
    found = _differences(old, new, shape, section)
    return [
        (path, was, present) for path, was, present in found
        if not (was is None and was_unread({section: before},
        path)) and not (present is None and was_unread({section: now}, path))
    ]  # fmt: skip


def _differences(old: Any, new: Any, shape: Shape | None, path: str) -> Iterator[Change]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            below = shape.fields.get(key, shape.item) if shape is not None else None
            yield from _differences(old.get(key), new.get(key), below, f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        yield from _in_lists(old, new, shape.item if shape is not None else None, path)
    elif old != new:
        yield path, old, new


def _in_lists(
    old: Sequence[Any], new: Sequence[Any], shape: Shape | None, path: str
) -> Iterator[Change]:
    if key := _naming(old, new, shape):
        then, present = ({str(row[key]): row for row in rows} for rows in (old, new))
        for name in sorted({*then, *present}):
            yield from _differences(
                then.get(name),
                present.get(name),
                shape,
                f"{path}[{name if _PLAIN_KEY.fullmatch(name) else repr(name)}]",
            )
    elif len(old) == len(new) and any(isinstance(row, (dict, list)) for row in (*old, *new)):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, shape, f"{path}[{number}]")
    else:
        gone, more = [row for row in old if row not in new], [row for row in new if row not in old]
        if gone or more:
            yield path, gone or None, more or None


def _naming(old: Sequence[Any], new: Sequence[Any], shape: Shape | None) -> str | None:
    """The key that identifies rows in both lists; None when there is none."""
    marked = (
        [name for name, below in shape.fields.items() if below.identity]
        if shape is not None
        else []
    )
    for key in dict.fromkeys((*marked, *NAMES)):
        if all(_is_key(rows, key) for rows in (old, new)):
            return key
    return None


def _is_key(rows: Sequence[Any], key: str) -> bool:
    values = [row.get(key) if isinstance(row, Mapping) else None for row in rows]
    return all(isinstance(value, (str, int)) for value in values) and len(
        {str(value) for value in values}
    ) == len(values)
