"""Every fact that the collector can give, and the rules whose verdict or words depend on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.schemas.shapes import Shape, fact_shapes
from unhang.judge.rules.compiled_catalogue import Catalogue


def fact_paths() -> list[str]:
    """Every fact, as gpus.devices[*].pcie.width_now; a map is one fact. Without the sections'
    probes."""
    return [
        path
        for name, shape in fact_shapes().items()
        for path in _leaves(shape, name)
        if ".probe." not in path
    ]


def _leaves(shape: Shape, path: str) -> Iterator[str]:
    if shape.kind == "object":
        for name, below in shape.fields.items():
            yield from _leaves(below, f"{path}.{name}")
    elif shape.kind == "list" and shape.item is not None and not shape.item.is_scalar:
        yield from _leaves(shape.item, f"{path}[*]")
    else:
        yield path


def rules_by_fact(catalogue: Catalogue) -> dict[str, list[str]]:
    """Path of a fact -> ids of the rules that use it; [] for facts that no rule uses."""
    found: dict[str, list[str]] = {path: [] for path in fact_paths()}
    for rule in catalogue.rules:
        for path in {
            one for read in rule.decision_reads | rule.text_reads for one in _named(read, found)
        }:
            found[path].append(rule.id)
    return {path: sorted(ids) for path, ids in found.items()}


def _named(read: tuple[str, ...], known: Mapping[str, Any]) -> Iterator[str]:
    """The facts of a read path: itself, or the map of which it reads an entry."""
    parts = [part for part in read if part != "**"]
    while parts:
        path = ".".join(parts).replace(".*", "[*]")
        for name in (path, path.removesuffix("[*]")):
            if name in known:
                yield name
                return
        parts.pop()
