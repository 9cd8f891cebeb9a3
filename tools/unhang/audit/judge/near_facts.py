"""Which facts an author may have meant by a path that does not exist: their exact paths. Values in,
values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jinja2 import nodes

from unhang.audit.rules.expression import ExpressionError, parsed
from unhang.core.schemas.shapes import Shape, fact_shapes, policy_shape
from unhang_node.facts.sections.limits import SYSCTLS

Path = tuple[str, ...]
MOST = 3
KEYS = {("limits", "sysctls"): SYSCTLS}
"""The keys of maps of which the collector reads a fixed list."""


def near_facts(expression: str, item: Path = ()) -> list[str]:
    """Facts that are near to the paths of an expression that do not exist, the nearest first; [] if
    none is. item: the path of what the expression calls item, such as gpus.devices.*"""
    try:
        tree = parsed(expression)
    except ExpressionError:
        return []
    known = list(_facts())
    paths = {(*item, *path[1:]) if path[0] == "item" else path for path in _paths(tree)}
    missing = sorted(path for path in paths if not _exists(path))
    near = [
        one
        for path in missing
        for one in sorted(_near(path, known), key=lambda one: _distance(path, one))[:MOST]
    ]
    return list(dict.fromkeys(map(written, near)))


def written(path: Path) -> str:
    """The path as a rule writes it: limits.sysctls['vm.swappiness']; [*] for the items of a
    list."""
    steps = (
        "[*]" if part == "*" else f".{part}" if part.isidentifier() else f"['{part}']"
        for part in path[1:]
        if part != "**"
    )
    return path[0] + "".join(steps)


def _paths(tree: nodes.Node) -> Iterator[Path]:
    """The longest paths that an expression writes."""
    path = _path(tree)
    if path:
        yield path
        return
    for below in tree.iter_child_nodes():
        yield from _paths(below)


def _path(node: nodes.Node) -> Path:
    """The parts of a node that is a path, () for another one."""
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        above, name = _path(node.node), node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        above, name = _path(node.node), str(node.arg.value)
    else:
        return ()
    return (*above, name) if above else ()


def _facts() -> Iterator[Path]:
    """The paths of all values in the facts and the policy."""
    roots: Mapping[str, Shape] = {**fact_shapes(), "policy": policy_shape()}
    for name, shape in roots.items():
        yield from _below((name,), shape)


def _below(path: Path, shape: Shape) -> Iterator[Path]:
    if path in KEYS:
        yield from ((*path, key) for key in KEYS[path])
    elif path[-1] != "probe":
        yield path
    for name, field in shape.fields.items():
        yield from _below((*path, name), field)
    if shape.kind == "list" and shape.item is not None:
        yield from _below((*path, "*"), shape.item)


def _exists(path: Path) -> bool:
    """Whether a rule can read this path, or it is no path of a fact at all."""
    roots: Mapping[str, Shape] = {**fact_shapes(), "policy": policy_shape()}
    shape = roots.get(path[0])
    if path[0] in ("tables", "today", "rule_ids", "host", "groups", "item"):
        return True
    for part in path[1:]:
        if shape is None:
            return False
        shape = shape.item if part == "*" or shape.kind == "map" else shape.fields.get(part)
    return shape is not None


def _near(asked: Path, known: list[Path]) -> Iterator[Path]:
    """Facts whose path has each word of the asked path's last part, one of them in its own last
    part."""
    last = _words(asked[-1:])
    for path in known:
        if last and last <= _words(path) and _words(path[-1:]) & last:
            yield path


def _distance(asked: Path, path: Path) -> tuple[int, int, Path]:
    """Fewer words that only one of both has come first."""
    return len(_words(asked) ^ _words(path)), len(path), path


def _words(path: Path) -> set[str]:
    """The words of a path, without the s of a plural."""
    return {
        word.removesuffix("s") for part in path for word in re.findall(r"[a-z0-9]+", part.lower())
    }
