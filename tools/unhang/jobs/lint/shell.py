"""Reads shell scripts by their grammar: each command with its words, their lines, and the variables
that are known where it is run. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from math import prod
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from unhang.jobs.lint.placed import Text, placed

LARGEST = 384 * 1024
MOST_COMMANDS = 4000
LONGEST_WORD = 20_000
Held = Mapping[str, list[Text]]
"""Variables with a known value, an array with its words."""
_SHELL = Language(tree_sitter_bash.language())
_OF_SOME = ("if_statement", "case_statement", "while_statement", "for_statement")
_EXPANSIONS = ("simple_expansion", "expansion", "arithmetic_expansion")
_EXPANSION = re.compile(r"\$\{?(?P<name>\w+)(?P<all>\[[@*]\])?(?::?-(?P<default>[^}$]*))?\}?")
_FACTOR = re.compile(r"\s*\$?\{?(\w+)\}?\s*")
# some nodes leave here
_LEAVES = re.compile(r"(?:RANK|NODEID|PROCID|INDEX|HOSTNAME)\b.*\b(?:exit|return)\b", re.DOTALL)


class Command(NamedTuple):
    """words: without assignments; a variable with an unknown value stays as `$NAME`. raw: values
    as they are written. of_some: whether a condition or a function decides who runs it. together:
    whether the script goes on without waiting."""

    line: int
    shown: str
    words: list[Text]
    held: Held
    raw: Mapping[str, Text]
    of_some: bool = False
    together: bool = False
    writes: bool = False


class Script(NamedTuple):
    """written: here documents by the name of their file. assigned: values as they are written, each
    beside the kind of statement: command for a prefix, declaration_command for an export."""

    commands: list[Command]
    written: Mapping[str, Text]
    assigned: list[tuple[str, Text, str]]


@lru_cache(maxsize=4)
def _parsed(source: bytes) -> Tree:
    return Parser(_SHELL).parse(source)


def read_shell(text: str, given: Held, first: int = 1) -> Script:
    """The commands of a script whose first line has the number `first`; none of one that is too
    large. given: variables with which it starts."""
    source = text.encode("utf-8", "replace")
    reading = _Reading(source if len(source) <= LARGEST else b"", first, given)
    commands = [*islice(reading.commands(), MOST_COMMANDS)]
    return Script(commands, reading.written, reading.assigned)


def _raw(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


class _Reading:
    def __init__(self, source: bytes, first: int, held: Held):
        self.tree, self.first = _parsed(source), first
        self.held: dict[str, list[Text]] = {**held}
        self.raw: dict[str, Text] = {}
        self.written: dict[str, Text] = {}
        self.assigned: list[tuple[str, Text, str]] = []

    def commands(self) -> Iterator[Command]:
        waiting = [(self.tree.root_node, False)]
        narrowed = False
        while waiting:
            node, of_some = waiting.pop()
            kind, children = node.type, node.named_children
            of_some |= narrowed or kind in (*_OF_SOME, "function_definition")
            if kind == "variable_assignment":
                self._assign(node, of_some)
            elif kind == "variable_name" and node.parent and node.parent.type == "unset_command":
                self.assigned.append((_raw(node), self._placed("", node), "unset_command"))
            elif kind == "command":
                yield self._command(node, of_some)
            elif kind == "redirected_statement":
                self._write(node)
                waiting += [(one, of_some) for one in children[:1]]
            else:
                if kind == "for_statement" and children:
                    self.held.pop(_raw(children[0]), None)
                tested = kind == "list" and children and children[0].type == "test_command"
                if kind in ("if_statement", "list") and _LEAVES.search(_raw(node)):
                    narrowed = True
                waiting += [(one, of_some or bool(tested)) for one in reversed(children)]

    def _write(self, node: Node) -> None:
        """A file that a here document fills."""
        parts = [node, *node.named_children]
        inner = [one for part in parts for one in part.named_children]
        names = [one.named_children[-1] for one in inner if one.type == "file_redirect"]
        for body in (one for one in inner if one.type == "heredoc_body"):
            self.written |= {self._text(one): self._placed(_raw(body), body) for one in names}

    def _assign(self, node: Node, of_some: bool = False) -> None:
        name, value = _raw(node.named_children[0]), node.child_by_field_name("value")
        parts = value.named_children if value and value.type == "array" else [value]
        words = [word for one in parts if one for word in self._words(one, split=False)]
        raw = _raw(value) if value else ""
        shown = placed(raw, self._line(node), f"{name}={raw}")
        self.assigned.append((name, shown, node.parent.type if node.parent else ""))
        if of_some or sum(map(len, words)) > LONGEST_WORD:
            self.held.pop(name, None)
        else:
            self.held[name], self.raw[name] = words, shown

    def _command(self, node: Node, of_some: bool) -> Command:
        before, words = (self.held, self.raw), []
        self.held, self.raw = dict(self.held), dict(self.raw)
        for one in node.named_children:
            if one.type == "variable_assignment":
                self._assign(one)
            elif "redirect" not in one.type:
                words += self._words(one)
        around = node.parent
        writes = around is not None and around.type == "redirected_statement"
        whole = around if around and writes else node
        together = whole.next_sibling is not None and whole.next_sibling.type == "&"
        text = " ".join(_raw(node).replace("\\\n", " ").split())
        held, raw = self.held, self.raw
        self.held, self.raw = before
        writes = writes and not _raw(whole).endswith(("&1", "&2"))
        return Command(self._line(node), text, words, held, raw, of_some, together, writes)

    def _words(self, node: Node, *, split: bool = True) -> list[Text]:
        """A word; several for an array, and for a variable without quotes."""
        alone = node.type in ("command_name", "string") and len(node.named_children) == 1
        found = _EXPANSION.fullmatch(_raw(node.named_children[0] if alone else node))
        held = self.held.get(found["name"]) if found else None
        if held and found and found["all"]:
            return held
        if held and split and node.type != "string":
            return [placed(part, one) for one in held for part in one.split()]
        return [self._placed(self._text(node), node)]

    def _text(self, node: Node) -> str:
        raw, parts = _raw(node), []
        if node.type in _EXPANSIONS:
            return self._value(node.type, raw)
        if node.type in ("raw_string", "command_substitution"):
            return raw.strip("'")
        source, quoted = node.text or b"", node.type == "string"
        at, end = int(quoted), len(source) - quoted
        for one in node.named_children:
            start = one.start_byte - node.start_byte
            parts += [source[at:start].decode("utf-8", "replace"), self._text(one)]
            at = one.end_byte - node.start_byte
        rest = source[at:end].decode("utf-8", "replace")
        return "".join([*parts, re.sub(r"\\(\n|.)", lambda one: one[1].strip("\n") or " ", rest)])

    def _value(self, kind: str, raw: str) -> str:
        if kind == "arithmetic_expansion":
            factors = [_FACTOR.fullmatch(one) for one in raw.strip("$()[]").split("*")]
            numbers = [self._held(one[1]) or one[1] if one else "" for one in factors]
            known = all(one.isdecimal() and len(one) < 6 for one in numbers)
            return str(prod(map(int, numbers))) if known else raw
        found = _EXPANSION.fullmatch(raw)
        if found is None:
            return raw
        default = found["default"] if found["name"].startswith("SLURM_") else None
        return self._held(found["name"]) or default or raw

    def _held(self, name: str) -> str:
        return " ".join(self.held.get(name, ()))[:LONGEST_WORD]

    def _placed(self, text: str, node: Node) -> Text:
        found: Text = placed(text, self._line(node))
        return found

    def _line(self, node: Node) -> int:
        return node.start_point[0] + self.first


def variable(held: Held, name: str) -> Text | None:
    """A variable's value with the place of its assignment; None if it is not known or computed."""
    words = held.get(name, [])
    text = " ".join(words)
    return placed(text, words[0].line, f"{name}={text}") if text and "$" not in text else None
