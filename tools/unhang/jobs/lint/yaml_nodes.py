"""The YAML of a file as nodes with their places; no value is constructed, and aliases are not
expanded. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import yaml

LARGEST = 1 << 20  # letters
DEEPEST = 100
MOST_BRACKETS_OPEN = 1000  # libyaml takes a time that grows with the square of their number
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BRACKET = re.compile(r"[\[\]{}]")


class YamlRead(NamedTuple):
    """documents: those before the fault. line: where the text is no valid YAML; None if it is
    valid, and also if it was not read. is_read: whether it was."""

    documents: tuple[yaml.Node, ...] = ()
    line: int | None = None
    is_read: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether the documents are all of the text."""
        return self.is_read and self.line is None


@lru_cache(maxsize=2)
def read_yaml(text: str) -> YamlRead:
    """The documents of a file. Not read: larger than LARGEST, deeper than DEEPEST, not UTF-8."""
    if len(text) > LARGEST or _is_deep(text):
        return YamlRead(is_read=False)
    documents: list[yaml.Node] = []
    try:
        documents.extend(one for one in yaml.compose_all(text, _LOADER) if one is not None)
    except (yaml.scanner.ScannerError, yaml.parser.ParserError) as problem:
        at = problem.problem_mark or problem.context_mark
        return YamlRead(tuple(documents), min(at.line if at else 0, text.rstrip().count("\n")) + 1)
    except (yaml.YAMLError, ValueError):
        return YamlRead(tuple(documents), is_read=False)
    return YamlRead(tuple(documents))


def _is_deep(text: str) -> bool:
    """Whether the text nests too deeply: composing it would need a call for each level."""
    opened = accumulate(
        (1 if one in "[{" else -1 for one in _BRACKET.findall(text)),
        lambda depth, more: max(0, depth + more),
        initial=0,
    )
    if max(opened) > MOST_BRACKETS_OPEN:
        return True
    depth = 0
    try:
        for event in yaml.parse(text, _LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                event, yaml.CollectionEndEvent
            )
            if depth > DEEPEST:
                return True
    except (yaml.YAMLError, ValueError):
        return False  # composing finds it again, and reports it
    return False


def nodes_of(documents: Iterable[yaml.Node]) -> Iterator[yaml.Node]:
    """Each node once, in the order of the text."""
    waiting, seen = [*documents][::-1], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += children_of(node)[::-1]


def children_of(node: yaml.Node | None) -> list[yaml.Node]:
    """The items of a list, the values of a map."""
    if isinstance(node, yaml.MappingNode):
        return [value for _, value in node.value]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def fields_of(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """The values of a map by their keys; {} for anything else."""
    return (
        {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        if isinstance(node, yaml.MappingNode)
        else {}
    )


def number_of(node: yaml.Node | None) -> int:
    """A whole number; 0 for anything else."""
    return (
        int(node.value)
        if isinstance(node, yaml.ScalarNode) and node.value.isdecimal() and len(node.value) < 6
        else 0
    )
