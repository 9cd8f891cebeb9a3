"""The HCL of a job of Nomad as maps, lists and texts with their places, like those of YAML. What
HCL computes stays as it is written, in ${...}. Text in, values out."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import tree_sitter_hcl
from tree_sitter import Language, Node, Parser

from unhang.jobs.lint.placed import placed
from unhang.jobs.lint.shell import LARGEST, raw_of
from unhang.jobs.lint.yaml_nodes import DEEPEST, DocumentsRead, Map, values_of

_HCL = Language(tree_sitter_hcl.language())
_AROUND = ("expression", "literal_value", "collection_value", "template_expr")
_ESCAPED = re.compile(r"\\(.)")


def documents_of(text: str, kind: str) -> list[Any]:
    """The documents of a file of YAML, or the job of one of HCL."""
    return [*read_hcl(text).documents] if kind == "nomad" else values_of(text)


@lru_cache(maxsize=2)
def read_hcl(text: str) -> DocumentsRead:
    """The body of a file of HCL. Not read: larger than LARGEST."""
    source = text.encode("utf-8", "replace")
    if len(source) > LARGEST:
        return DocumentsRead(is_read=False)
    at = root = Parser(_HCL).parse(source).root_node
    while at.has_error and not at.is_error and not at.is_missing:
        at = next(one for one in at.children if one.has_error or one.is_missing)
    return DocumentsRead((_value(root, 0),), at.start_point[0] + 1 if root.has_error else None)


def _value(node: Node, depth: int, shown: str = "") -> Any:
    """Blocks of one name as a list of maps, in which `name` is the label of the block."""
    while node.type in _AROUND and len(node.named_children) == 1:
        node = node.named_children[0]
    raw, line = raw_of(node), node.start_point[0] + 1
    if depth > DEEPEST:
        return None
    if node.type == "tuple":
        inner = [one for one in node.named_children if one.type == "expression"]
        return [_value(one, depth + 1) for one in inner]
    if node.type in ("config_file", "body", "block", "object"):
        return _map(node, depth + 1)
    if node.type == "heredoc_template":
        return placed("\n".join(raw.split("\n")[1:-1]) + "\n", line + 1, shown)
    if node.type in ("string_lit", "quoted_template"):
        raw = _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], raw[1:-1])
    elif node.type not in ("numeric_lit", "bool_lit"):
        raw = f"${{{raw}}}"
    return placed(raw, line, shown)


def _map(node: Node, depth: int) -> Map:
    found = Map()
    found.line, found.text = node.start_point[0] + 1, raw_of(node)
    for one in node.named_children:
        parts = one.named_children
        if one.type in ("attribute", "object_elem") and len(parts) > 1:
            key = placed(raw_of(parts[0]).strip('"'), parts[0].start_point[0] + 1)
            found[key] = _value(parts[-1], depth, raw_of(one))
        elif one.type == "block":
            found.setdefault(raw_of(parts[0]), []).append(_value(one, depth))
        elif one.type == "body":
            found |= _map(one, depth)
        elif one.type == "string_lit":
            found["name"] = _value(one, depth)
    return found
