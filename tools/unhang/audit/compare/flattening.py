"""Flattens a section of a node's configuration to {path: value} for comparison. Rows of a list are
matched by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.core.schemas.shapes import Shape, fact_shapes

ROW_NAMES = (
    "name",
    "module",
    "release",
    "scope",
    "package",
    "path",
)  # fields that identify a row; without one, all rows of a list are compared together: gpus.devices[*]  # noqa: E501
# Facts that differ between any two nodes and say nothing about their configuration: addresses,
# places on a bus, line numbers.
OF_ONE_NODE = frozenset(
    (
        "addresses",
        "gids",
        "lid",
        "pci_address",
        "remote_pci_address",
        "evidence",
        "line",
        "clique",
        "cluster",
        "control",
        "build_id",
        "usable_interfaces",
        "probe",
    )
)


def flattened(name: str, section: Mapping[str, Any]) -> dict[str, str]:
    """{path: value as text} of a section (plain, as schemas.configuration.text_of_section gives
    it). Without nulls and the node's own names."""
    found: dict[str, set[str]] = {}
    for path, value in _leaves(section, fact_shapes().get(name), name):
        found.setdefault(path, set()).add(value)
    return {path: ", ".join(sorted(values)) for path, values in found.items()}


def compared_facts() -> list[str]:
    """Each section and each path below it that is compared, with [*] for the names of rows and *
    for keys that are data."""
    return [path for name, shape in fact_shapes().items() for path in _paths(shape, name)]


def _paths(shape: Shape, path: str) -> Iterator[str]:
    if shape.sample or shape.identity:
        return
    yield path
    for key, below in shape.fields.items():
        if key not in OF_ONE_NODE:
            yield from _paths(below, f"{path}.{key}")
    if shape.item is not None:
        yield from _paths(shape.item, f"{path}[*]" if shape.kind == "list" else f"{path}.*")


def _leaves(value: Any, shape: Shape | None, path: str) -> Iterator[tuple[str, str]]:
    if value is None or (shape is not None and (shape.sample or shape.identity)):
        return
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key not in OF_ONE_NODE:
                yield from _leaves(
                    below,
                    shape.fields.get(key, shape.item) if shape is not None else None,
                    f"{path}.{key}",
                )
    elif isinstance(value, list):
        yield from _of_list(value, shape.item if shape is not None else None, path)
    else:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)


def _of_list(rows: Sequence[Any], shape: Shape | None, path: str) -> Iterator[tuple[str, str]]:
    key = next(
        (
            one
            for one in ROW_NAMES
            if shape is not None and one in shape.fields and not shape.fields[one].identity
        ),
        None,
    )
    for row in rows:
        if not isinstance(row, Mapping):
            yield f"{path}[{row}]", "there"
        elif key is None:
            yield from _leaves(row, shape, f"{path}[*]")
        elif row.get(key) is not None:
            place = f"{path}[{row[key]}]"
            yield place, "there"
            yield from _leaves(
                {name: below for name, below in row.items() if name != key}, shape, place
            )
