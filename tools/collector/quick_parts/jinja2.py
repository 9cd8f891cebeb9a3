"""Replaces Jinja on a node: the judge's compiler needs only syntax trees, and all of them were parsed when this file was built."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

from unhang_quick import data


class TemplateSyntaxError(Exception):
    """Never raised here: the build refuses templates that do not parse."""

    message = ""


class Node:
    """A node of a syntax tree; its fields are those of Jinja's class of that name."""

    def __init__(self, fields):
        self.__dict__.update(fields)
        self._fields = fields

    def iter_child_nodes(self):
        """Every node directly below."""
        for value in self._fields.values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Node):
                    yield one


nodes = ModuleType("jinja2.nodes")
for _name in data.NODE_NAMES:
    setattr(nodes, _name, type(str(_name), (Node,), {}))
setattr(nodes, "Node", Node)  # noqa: B010 - a module made here has no attributes that could be known


def grown(tree):
    """The nodes of a tree as the build wrote it: [name, {field: value}], lists of them, or plain values under ["=", value]."""
    if tree and tree[0] == "=":
        return tree[1]
    if tree and tree[0] == "[":
        return [grown(one) for one in tree[1]]
    return getattr(nodes, tree[0])({name: grown(value) for name, value in tree[1].items()})


class Environment:
    """Stands for the parser of templates: looks the tree up."""

    def __init__(self, **_options):
        pass

    def parse(self, source):
        """The tree of a template."""
        return grown(data.TEMPLATES[source])


class Parser:
    """Stands for the parser of expressions: looks the tree up."""

    def __init__(self, _environment, source, state=None):
        self.source = source
        self.stream = SimpleNamespace(eos=True, current=None)

    def parse_expression(self):
        """The tree of an expression."""
        return grown(data.EXPRESSIONS[self.source])


parser = ModuleType("jinja2.parser")
setattr(parser, "Parser", Parser)  # noqa: B010
sys.modules["jinja2.nodes"], sys.modules["jinja2.parser"] = nodes, parser
