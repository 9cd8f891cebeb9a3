"""What of a node's facts is its configuration, by the marks of the schema, and a hash of it. Plans, history and admission speak of the same one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from unhang.schemas.shapes import Shape, fact_shapes

# A row that is there only while a job runs: its libraries, its environment, its container.
_OF_A_PROCESS = (("origin", "mapped"), ("where", "container"), ("source", "process"))
_LEFT_OUT = object()


def configuration(facts: Mapping[str, Any]) -> dict[str, Any]:
    """{section: fields} of a facts document (unhang/node-facts/1): what is marked `config` or `identity`.

    Left out: counters, samples, what was not read (null), and rows that a running process brought. Lists are sorted: the order of reading does not count.
    """
    sections = facts.get("sections") or {}
    kept = {name: _kept(sections[name], shape) for name, shape in fact_shapes().items() if isinstance(sections.get(name), Mapping)}
    return {name: value for name, value in kept.items() if value is not _LEFT_OUT}


def config_hash(facts: Mapping[str, Any]) -> str:
    """sha256:… of the configuration; equal for two looks at a node of which no marked fact has changed."""
    return hash_of(configuration(facts))


def section_hashes(facts: Mapping[str, Any]) -> dict[str, str]:
    """{section: sha256:…}, so that one can say where the configuration differs."""
    return {name: hash_of(value) for name, value in configuration(facts).items()}


def hash_of(value: Any) -> str:
    """sha256:… of a JSON value, whatever the order of its keys."""
    return "sha256:" + hashlib.sha256(_canonical(value).encode("utf-8", "replace")).hexdigest()


def _kept(value: Any, shape: Shape) -> Any:
    if value is None or not _marked(shape):
        return _LEFT_OUT
    if isinstance(value, Mapping) and shape.kind == "object":
        if any(value.get(name) == mark for name, mark in _OF_A_PROCESS):
            return _LEFT_OUT
        rows = {name: _kept(below, shape.fields[name]) for name, below in value.items() if name in shape.fields and name != "probe"}
        return {name: below for name, below in rows.items() if below is not _LEFT_OUT} or _LEFT_OUT
    if isinstance(value, list) and shape.item is not None:
        items = [kept for kept in (_kept(one, shape.item) for one in value) if kept is not _LEFT_OUT]
        return sorted(items, key=_canonical)
    return value


def _marked(shape: Shape) -> bool:
    """Whether anything at or below this place is configuration."""
    if shape.sample:
        return False
    if shape.kind == "list":
        return shape.item is not None and _marked(shape.item)
    return shape.kind != "object" or any(_marked(below) for name, below in shape.fields.items() if name != "probe")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
