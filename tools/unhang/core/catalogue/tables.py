"""Tables of the catalogue: facts of vendors as rows, each checked against the fields that its table
declares."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from unhang.core.schemas.check import check_schema
from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import ANY, FLAG, NUMBER, TEXT, Shape

CheckVersion = Callable[[object, str], str | None]
"""(text, order) -> why the text is no version of the order, or None."""
ABOUT_ROW = ("sources", "source", "confidence", "note", "as_of")
"""Fields that every row may have, whatever its table declares."""
_TYPES = {"text": "string", "number": "number", "flag": "boolean"}


class Table(dict[str, dict[str, Any]]):
    """The rows of a table by their key.

    row: the table as in its file. shape: of one of its rows.
    """

    def __init__(self, row: Mapping[str, Any], place: str = ""):
        super().__init__()
        self.row = row
        self.place = place
        self.shape = shape_of(row)


def shape_of(table: Mapping[str, Any]) -> Shape:
    """The shape of a row for expressions; a field that the table does not declare is of any
    kind."""
    keys = {type(row.get(table["key"])) for row in table["rows"]}
    key = NUMBER if keys == {int} else TEXT if keys == {str} else ANY
    return Shape(
        "object",
        {
            **{name: ANY for row in table["rows"] for name in row},
            table["key"]: key,
            **{name: _field_shape(one) for name, one in table.get("fields", {}).items()},
            "note": TEXT,
        },
    )


def _field_shape(field: Mapping[str, Any]) -> Shape:
    kind = field["kind"]
    if kind in ("texts", "numbers"):
        return Shape(
            "list", item=Shape("text", version=field.get("version")) if kind == "texts" else NUMBER
        )
    if kind == "text":
        return Shape("text", version=field.get("version"), values=tuple(field.get("values", ())))
    return {"date": TEXT, "number": NUMBER, "flag": FLAG}.get(kind, ANY)


def row_faults(
    table: Mapping[str, Any], row: Mapping[str, Any], check_version: CheckVersion
) -> Iterator[tuple[str, str]]:
    """(field, fault) for every value of a row that its table's declarations do not allow."""
    fields = table.get("fields")
    if "as_of" in row and (fault := date_fault(row["as_of"])):
        yield "as_of", fault
    if fields is None:
        return
    known = {table["key"], *fields, *ABOUT_ROW}
    for name in row:
        if name not in known:
            yield name, f"unknown field{nearest(name, known)}; the table has {', '.join(fields)}"
    for name, field in fields.items():
        if row.get(name) is None:
            if not field.get("optional") and "default" not in field:
                yield name, "is missing"
        elif fault := _value_fault(field, row[name], check_version):
            yield name, fault


def completed(table: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the defaults of its missing fields."""
    return {
        **{
            name: field["default"]
            for name, field in table.get("fields", {}).items()
            if "default" in field
        },
        **row,
    }


def _value_fault(field: Mapping[str, Any], value: Any, check_version: CheckVersion) -> str | None:
    kind = field["kind"]
    if kind == "date":
        return date_fault(value)
    place = {"type": _TYPES[kind.removesuffix("s")]}
    if "values" in field:
        place["enum"] = field["values"]
    several = kind in ("texts", "numbers")
    for fault in check_schema(value, {"type": "array", "items": place} if several else place):
        return fault.message[:200]
    versions = (value if several else [value]) if "version" in field else ()
    return next(filter(None, (check_version(one, field["version"]) for one in versions)), None)


def date_fault(value: Any) -> str | None:
    """The reason why a value is no date, or None if it is one."""
    try:
        if isinstance(value, str) and len(value) == 10:
            datetime.date.fromisoformat(value)
            return None
    except ValueError:
        pass
    return f"{value!r} is no date; write it as 2026-12-31"[:200]
