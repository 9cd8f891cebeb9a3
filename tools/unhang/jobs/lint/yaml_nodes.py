"""The YAML of a file as nodes with their places; no value is constructed, and aliases are not
expanded. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import yaml

from unhang.jobs.lint.placed import Text, placed

LARGEST = 1 << 20  # letters
DEEPEST = 100
MOST_BRACKETS_OPEN = 1000  # libyaml takes a time that grows with the square of their number
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OF_TEMPLATE = re.compile(r"^[ \t]*\{[{%].*[}%]\}[ \t]*$", re.MULTILINE)
_IN_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_BRACKET = re.compile(r"[\[\]{}]")


class DocumentsRead(NamedTuple):
    """documents: those before the fault. line: where the text is not valid; None if it is
    valid, and also if it was not read. is_read: whether it was."""

    documents: tuple[Any, ...] = ()
    line: int | None = None
    is_read: bool = True


@lru_cache(maxsize=2)
def read_yaml(text: str) -> DocumentsRead:
    """The documents of a file. Not read: larger than LARGEST, deeper than DEEPEST, not UTF-8."""
    if len(text) > LARGEST or _is_deep(text):
        return DocumentsRead(is_read=False)
    documents: list[yaml.Node] = []
    try:
        documents.extend(one for one in yaml.compose_all(text, _LOADER) if one is not None)
    except (yaml.scanner.ScannerError, yaml.parser.ParserError) as problem:
        at = problem.problem_mark or problem.context_mark
        return DocumentsRead(
            tuple(documents), min(at.line if at else 0, text.rstrip().count("\n")) + 1
        )
    except (yaml.YAMLError, ValueError):
        return DocumentsRead(tuple(documents), is_read=False)
    return DocumentsRead(tuple(documents))


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


def values_of(text: str) -> list[Any]:
    """The documents as maps, lists and texts with their places; merged keys are among a map's own,
    and a part that has itself in it is None there."""
    made: dict[int, Any] = {}
    read = read_yaml(text)
    if (read.line or not read.is_read) and "{{" in text:  # a template: its own lines are left out
        blank = _OF_TEMPLATE.sub("", text)
        read = read_yaml(_IN_TEMPLATE.sub(lambda one: "$".ljust(len(one[0]), "_"), blank))
    return [_value(one, text, made) for one in read.documents]


def _value(node: yaml.Node, text: str, made: dict[int, Any], key: yaml.Node | None = None) -> Any:
    if isinstance(node, yaml.ScalarNode):
        start = key or node
        shown = text[start.start_mark.index : node.end_mark.index].strip()
        line = node.start_mark.line + 1 + ((node.style or "") in "|>" and bool(node.style))
        return placed(node.value, line, shown, node.tag.rpartition(":")[2])
    if id(node) in made:
        return made[id(node)]
    made[id(node)] = None
    found: Any
    if isinstance(node, yaml.MappingNode):
        found = Map()
        for name, value in node.value:
            child = _value(value, text, made, name)
            if name.value == "<<":
                for one in child if isinstance(child, list) else [child]:
                    found |= {k: v for k, v in (one or {}).items() if k not in found}
            else:
                found[placed(str(name.value)[:200], name.start_mark.line + 1)] = child
        found.line = node.start_mark.line + 1
        found.text = text[node.start_mark.index : node.end_mark.index]
    else:
        found = [_value(one, text, made) for one in node.value]
    made[id(node)] = found
    return found


class Map(dict[Any, Any]):
    """A map of YAML. text: as the file has it."""

    line = 0
    text = ""


def parts_of(kind: type, *values: Any) -> Iterator[Any]:
    """The values of a type and those inside of them, each once, in the order of the text."""
    waiting, seen = [*values][::-1], set()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and one is not None:
            seen.add(id(one))
            if isinstance(one, kind):
                yield one
            inner = [*one.values()] if isinstance(one, dict) else one
            waiting += inner[::-1] if isinstance(inner, list) else ()


def texts_in(*values: Any) -> dict[str, Text]:
    """The fields of maps and of those inside of them that have a text."""
    pairs = (pair for part in parts_of(Map, *values) for pair in part.items())
    return {name: one for name, one in pairs if isinstance(one, Text)}


def inside(value: Any, *names: str) -> Any:
    """The value of a field of a field; an empty map if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return Map() if value is None else value


def items(value: Any) -> list[Any]:
    """The items of a list; none of anything else."""
    return value if isinstance(value, list) else []


def maps(value: Any) -> list[Map]:
    """The maps of a list, or a map itself."""
    return [one for one in items(value) or [value] if isinstance(one, Map)]
