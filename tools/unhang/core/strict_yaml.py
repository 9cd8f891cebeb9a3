"""Reads YAML for rules and policies: no aliases, no tags, no duplicate keys, bounded in size and
depth; every value has its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from unhang.core.strict_json import NotStrict, read_bounded

MAX_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 40
MAX_NODES = 200_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_KINDS = "str int float bool null seq map timestamp"
_TAGS = {f"tag:yaml.org,2002:{name}" for name in _KINDS.split()}


@dataclass(frozen=True)
class Place:
    """Line and column of a value, counted from 1."""

    line: int
    column: int


class YamlFault(ValueError):
    """A file that is not accepted; the message is one line, file:line: what."""


def load_yaml(path: Path) -> tuple[Any, Mapping[tuple, Place]]:
    """(content, path in the content -> place). Raises YamlFault."""
    try:
        data = read_bounded(path, MAX_BYTES)
    except OSError as problem:
        raise YamlFault(f"{path}: cannot be read: {problem.strerror}") from None
    except NotStrict as problem:
        raise YamlFault(f"{path}: {problem}") from None
    return parse_yaml(data, str(path))


def parse_yaml(data: bytes, name: str) -> tuple[Any, Mapping[tuple, Place]]:
    """The same for bytes; `name` is used in messages. Raises YamlFault."""
    try:
        text = data.decode("utf-8")
        _refuse_bombs(text, name)
        root = yaml.compose(text, _LOADER)
    except UnicodeDecodeError as problem:
        raise YamlFault(f"{name}: is not UTF-8 (byte {problem.start})") from None
    except yaml.MarkedYAMLError as problem:
        line = problem.problem_mark.line + 1 if problem.problem_mark else 1
        raise YamlFault(
            f"{name}:{line}: YAML: {' '.join(str(problem.problem or problem.context).split())}"
        ) from None
    except yaml.YAMLError as problem:
        raise YamlFault(f"{name}: YAML: {' '.join(str(problem).split())[:200]}") from None
    except RecursionError:
        raise YamlFault(f"{name}: nests too deeply") from None
    places: dict[tuple, Place] = {}
    return (None if root is None else _value(root, (), places, name)), places


def _refuse_bombs(text: str, name: str) -> None:
    """Aliases are how a small file becomes a large one; nothing here needs them."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, _LOADER)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise YamlFault(f"{name}:{line}: aliases and anchors (* and &) are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise YamlFault(f"{name}:{line}: nests more than {MAX_DEPTH} deep")
        if count > MAX_NODES:
            raise YamlFault(f"{name}:{line}: holds more than {MAX_NODES} values")


def _value(node: yaml.Node, path: tuple, places: dict[tuple, Place], name: str) -> Any:
    places[path] = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    if node.tag not in _TAGS:
        raise YamlFault(f"{name}:{places[path].line}: the tag {node.tag} is not allowed")
    if isinstance(node, yaml.MappingNode):
        return _map(node, path, places, name)
    if isinstance(node, yaml.SequenceNode):
        return [_value(one, (*path, place), places, name) for place, one in enumerate(node.value)]
    return _scalar(node, places[path].line, name)


def _map(
    node: yaml.MappingNode, path: tuple, places: dict[tuple, Place], name: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlFault(f"{name}:{line}: a key must be a text")
        key = str(key_node.value)
        if key in found:
            raise YamlFault(f"{name}:{line}: the key {key!r} occurs twice")
        found[key] = _value(value_node, (*path, key), places, name)
        places[(*path, key)] = Place(line, key_node.start_mark.column + 1)
    return found


def _scalar(node: yaml.Node, line: int, name: str) -> Any:
    if node.tag.endswith((":str", ":timestamp")):
        return node.value  # a date stays the text that it is
    if node.tag.endswith((":int", ":float")) and not _NUMBER.fullmatch(node.value):
        # YAML 1.1 reads 010 as 8, 1:30:00 as 5400 and 1_000 as 1000; whoever wrote it meant a text
        # or another number.
        raise YamlFault(
            f"{name}:{line}: {str(node.value)[:60]!r} would be read as another number; write a text"
            " in quotes, a number in plain decimal digits"
        )
    try:
        return _LOADER("").construct_object(node)
    except (ValueError, yaml.YAMLError):
        raise YamlFault(f"{name}:{line}: {str(node.value)[:60]!r} is not a value") from None
