"""Reads shell scripts by their grammar: each command with its words, their lines, and the variables
that are known where it is run. Text in, values out."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from unhang.jobs.lint.placed import Text, placed

LARGEST = 384 * 1024
MOST_COMMANDS = 4000
LONGEST_WORD = 20_000
Held = Mapping[str, list[Text]]
"""Variables with a known value, an array with its words."""
Loop = Mapping[str, Sequence[object]]
_SHELL = Language(tree_sitter_bash.language())
_OF_SOME = ("if_statement", "case_statement", "while_statement", "for_statement")
_EXPANSIONS = ("simple_expansion", "expansion", "arithmetic_expansion")
_LOOPS = ("for_statement", "c_style_for_statement", "while_statement")
_ASSIGNED = "variable_name variable_assignment"
_PLAIN = ("word", "simple_expansion", "expansion")
EXPANSION = re.compile(
    r"\$\{?(?P<sign>[!#]?)(?P<name>\w+)(?:\[(?P<index>[@*]|\d{1,4})\])?(?::?[-=](?P<default>[^}$]*))?\}?"
)
_OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
}
_LONGEST_SUM = 200
_OF_NODE = ("RANK", "NODEID", "PROCID", "INDEX", "HOSTNAME")  # ends of its variables


class Command(NamedTuple):
    """words: without assignments; a variable with an unknown value stays as `$NAME`. raw: values
    as they are written. of_some: whether a condition or a function decides who runs it. together:
    whether the script goes on without waiting. exported: the variables that programs inherit. loop:
    what changes in each turn of the loop around it, with its values, none if these are unknown; no
    loop if a condition inside of it decides."""

    line: int
    shown: str
    words: list[Text]
    held: Held
    raw: Mapping[str, Text]
    of_some: bool = False
    together: bool = False
    writes: bool = False
    exported: Mapping[str, Text] = MappingProxyType({})
    loop: Loop = MappingProxyType({})


class Script(NamedTuple):
    """written: here documents by the name of their file. assigned: values as they are written, each
    beside the kind of statement: command for a prefix, declaration_command for an export. words:
    all, with the names of variables but of assigned ones."""

    commands: list[Command]
    written: Mapping[str, Text]
    assigned: list[tuple[str, Text, str]]
    exported: Set[str] = frozenset()
    words: Set[str] = frozenset()


@lru_cache(maxsize=4)
def _parsed(source: bytes) -> Tree:
    return Parser(_SHELL).parse(source)


def read_shell(text: str, given: Held, first: int = 1) -> Script:
    """The commands of a script whose first line has the number `first`; none of one that is too
    large. given: variables with which it starts."""
    source = text.encode("utf-8", "replace")
    reading = _Reading(source if len(source) <= LARGEST else b"", first, given)
    commands = [*islice(reading.commands(), MOST_COMMANDS)]
    exported, words = reading.exported.keys(), {*reading.words()}
    return Script(commands, reading.written, reading.assigned, exported, words)


def raw_of(node: Node) -> str:
    """The text of a node as the file has it."""
    return (node.text or b"").decode("utf-8", "replace")


class _Reading:
    def __init__(self, source: bytes, first: int, held: Held):
        self.tree, self.first = _parsed(source), first
        self.held: dict[str, list[Text]] = {**held}
        self.raw: dict[str, Text] = {}
        self.exported: dict[str, Text] = {}
        self.exports_all = False
        self.written: dict[str, Text] = {}
        self.assigned: list[tuple[str, Text, str]] = []

    def commands(self) -> Iterator[Command]:
        waiting: list[tuple[Node, bool, dict[str, Sequence[object]]]] = [
            (self.tree.root_node, False, {})
        ]
        narrowed = False
        while waiting:
            node, of_some, loop = waiting.pop()
            kind, children = node.type, node.named_children
            of_some |= narrowed or kind in (*_LOOPS, *_OF_SOME)
            if kind == "variable_assignment":
                self._assign(node, of_some, loop)
            elif kind == "variable_name" and node.parent and node.parent.type == "unset_command":
                self.assigned.append((raw_of(node), self._placed("", node), "unset_command"))
                for held in (self.held, self.raw, self.exported):
                    held.pop(raw_of(node), None)
            elif kind == "variable_name":
                name = raw_of(node)
                self.exported[name] = self.raw.get(name) or self._placed("", node)
            elif kind == "command":
                yield self._command(node, of_some, loop)
                narrowed |= raw_of(children[0]) in ("exit", "return") and _is_of_some_nodes(node)
            elif kind == "redirected_statement":
                self._write(node)
                waiting += [(one, of_some, loop) for one in children[:1]]
            else:
                tested = kind == "list" and children and children[0].type == "test_command"
                if kind in _LOOPS:
                    # what a loop changes includes what the loops in it change
                    changed = {} if loop else dict(_changed(node))
                    counted = dict.fromkeys((one for one in changed if changed[one]), ())
                    loop = {**loop, **counted, **self._turns(node)}
                    for one in (*loop, *changed):
                        self.held.pop(one, None)
                elif tested or kind in _OF_SOME:
                    loop = {}
                skipped = kind == "c_style_for_statement"
                waiting += [
                    (one, of_some or bool(tested), loop) for one in reversed(children[skipped:])
                ]

    def words(self) -> Iterator[str]:
        """All words, also in strings, and names but those that it assigns; of a path the last."""
        for node in _parts(self.tree.root_node):
            around = node.parent.type if node.parent else ""
            is_word = node.type != "comment" and f"{node.type} {around}" != _ASSIGNED
            if is_word and not node.named_children:
                words = raw_of(node).strip("'\"").split()
                yield from (one.rpartition("/")[2] for one in words)

    def _turns(self, loop: Node) -> dict[str, Sequence[object]]:
        """The variables of a loop with their values, none if these are unknown."""
        first, *others = [*loop.named_children, loop]
        if loop.type == "while_statement":
            names = [raw_of(one) for one in first.named_children[1:]]
            return dict.fromkeys(filter(str.isidentifier, names), ())
        if loop.type == "for_statement":
            values = others[:-2]
            words: Sequence[object] = [word for one in values for word in self._words(one)]
            if values and values[0].type in ("brace_expression", "command_substitution"):
                words = self._sequence(values[0])
            return {raw_of(first): words if _is_known(words) else ()}
        name, *bounds = [*first.named_children, *others[0].named_children[1:]]
        ends_at = [one for one in map(self._number, bounds) if one is not None]
        is_known = len(ends_at) == len(bounds) == 2 and "=" not in raw_of(others[0])
        return {raw_of(name): range(*ends_at) if is_known else ()}

    def _sequence(self, node: Node) -> Sequence[object]:
        """The numbers of {0..7} and of $(seq 0 7); none if they are not known."""
        inner = node.named_children
        if inner[0].type == "command":
            inner = inner[0].named_children[1:]
        ends = [one for one in map(self._number, inner) if one is not None]
        return range(ends[0], ends[1] + 1) if len(ends) == len(inner) == 2 else ()

    def _write(self, node: Node) -> None:
        """A file that a here document fills."""
        parts = [node, *node.named_children]
        inner = [one for part in parts for one in part.named_children]
        redirects = [one.named_children for one in inner if one.type == "file_redirect"]
        for body in (one for one in inner if one.type == "heredoc_body"):
            self.written |= {
                self._text(one): self._placed(raw_of(body), body)
                for *_, one in filter(None, redirects)
            }

    def _assign(self, node: Node, of_some: bool, loop: dict[str, Sequence[object]]) -> None:
        name, value = raw_of(node.named_children[0]), node.child_by_field_name("value")
        around = node.parent.type if node.parent else ""
        parts = value.named_children if value and value.type == "array" else [value]
        words = [word for one in parts if one for word in self._words(one, split=False)]
        raw = raw_of(value) if value else ""
        shown = placed(raw, self._line(node), f"{name}={raw}")
        self.assigned.append((name, shown, around))
        if around != "variable_assignment" and (self.exports_all or around in _EXPORTING):
            self.exported[name] = shown
        if loop and value and not {*loop, name}.isdisjoint(map(raw_of, _parts(value))):
            loop[name] = ()
        if of_some or sum(map(len, words)) > LONGEST_WORD:
            self.held.pop(name, None)
        else:
            self.held[name], self.raw[name] = words, shown

    def _command(self, node: Node, of_some: bool, loop: dict[str, Sequence[object]]) -> Command:
        before, words = (self.held, self.raw, self.exported), []
        self.held, self.raw, self.exported = (
            dict(self.held),
            dict(self.raw),
            dict(self.exported),
        )
        for one in node.named_children:
            if one.type == "variable_assignment":
                self._assign(one, False, {})
            elif "redirect" not in one.type:
                words += self._words(one)
        around = node.parent
        writes = around is not None and around.type == "redirected_statement"
        whole = around if around and writes else node
        together = whole.next_sibling is not None and whole.next_sibling.type == "&"
        text = " ".join(raw_of(node).replace("\\\n", " ").split())
        held, raw, exported = self.held, self.raw, self.exported
        self.held, self.raw, self.exported = before
        if words[:1] == ["set"] and len(words) > 1:
            self.exports_all |= "allexport" in words or "a" in words[1].partition("-")[2]
        writes = writes and not raw_of(whole).endswith(("&1", "&2"))
        shared = (of_some, together, writes, exported, loop)
        return Command(self._line(node), text, words, held, raw, *shared)

    def _words(self, node: Node, *, split: bool = True) -> list[Text]:
        """A word; several for an array, and for a variable without quotes."""
        alone = node.type in ("command_name", "string") and len(node.named_children) == 1
        found = EXPANSION.fullmatch(raw_of(node.named_children[0] if alone else node))
        held = self.held.get(found["name"]) if found else None
        if held and found and found["index"] in ("@", "*") and not found["sign"]:
            return held
        if held and found and found["index"] and found["sign"] == "!" and _is_known(held):
            return [placed(str(one), held[0]) for one in range(len(held))]
        if held and split and node.type != "string":
            return [placed(part, one) for one in held for part in one.split()]
        text = self._placed(self._text(node), node)
        first = node.named_children[0] if node.type == "concatenation" else node
        if first.type == "raw_string" and " " in text:  # also with "$more" of this script behind it
            text.how = "raw"
        return [text]

    def _text(self, node: Node) -> str:
        raw, parts = raw_of(node), []
        if node.type in _EXPANSIONS:
            return self._value(node)
        if node.type == "command_substitution":
            return self._counted(node) or raw
        if node.type == "raw_string":
            return raw.strip("'")
        source, quoted = node.text or b"", node.type == "string"
        at, end = int(quoted), len(source) - quoted
        for one in node.named_children:
            start = one.start_byte - node.start_byte
            parts += [source[at:start].decode("utf-8", "replace"), self._text(one)]
            at = one.end_byte - node.start_byte
        rest = source[at:end].decode("utf-8", "replace")
        return "".join([*parts, re.sub(r"\\(\n|.)", lambda one: one[1].strip("\n") or " ", rest)])

    def _counted(self, node: Node) -> str:
        """The lines that `wc -l` counts; "" if they are not known."""
        words = [self._text(one) for one in _parts(node) if one.type in _PLAIN]
        if words[:1] == ["scontrol"] and words[-2:] == ["wc", "-l"]:
            return self._held("SLURM_NNODES")
        written = self.written.get(words[-1], "") if words[:2] == ["wc", "-l"] else ""
        return str(len([*filter(str.strip, written.splitlines())])) if written else ""

    def _value(self, node: Node) -> str:
        raw = raw_of(node)
        if node.type == "arithmetic_expansion":
            computed = self._number(node)
            return raw if computed is None else str(computed)
        found = EXPANSION.fullmatch(raw)
        if found is None:
            return raw
        name, index, held = found["name"], found["index"], self.held.get(found["name"])
        if found["sign"]:
            known = held and index and found["sign"] == "#" and _is_known(held)
            return str(len(held or ())) if known else raw
        if index and index.isdecimal():
            known = held and int(index) < len(held) and _is_known(held)
            return held[int(index)] if held and known else raw
        default = found["default"] if name.startswith("SLURM_") else None
        return self._held(name) or default or raw

    def _number(self, node: Node) -> int | None:
        """The value of a part of an arithmetic expression; None if it is not known."""
        raw, children = raw_of(node), node.named_children
        if len(raw) > _LONGEST_SUM:
            return None
        if node.type == "binary_expression" and len(children) == 2:
            left, right = map(self._number, children)
            sign = raw_of(node.children[1])
            is_known = None not in (left, right) and sign in _OPERATORS
            if not is_known or (right == 0 and sign in "/%"):
                return None
            return int(_OPERATORS[sign](left, right))
        if len(children) == 1:
            return self._number(children[0])
        text = self._held(raw) or raw
        return int(text) if text.isdecimal() and len(text) < 6 else None

    def _held(self, name: str) -> str:
        return " ".join(self.held.get(name, ()))[:LONGEST_WORD]

    def _placed(self, text: str, node: Node) -> Text:
        found: Text = placed(text, self._line(node))
        return found

    def _line(self, node: Node) -> int:
        return node.start_point[0] + self.first


_EXPORTING = ("declaration_command", "command")


def _is_known(words: Sequence[object]) -> bool:
    """Whether these are all words of an array: an unknown one may be several."""
    return not any("$" in one or "`" in one or "*" in one for one in map(str, words))


def _parts(node: Node) -> Iterator[Node]:
    """A node and those inside of it, in the order of the text."""
    waiting = [node]
    while waiting:
        yield (one := waiting.pop())
        waiting += one.named_children[::-1]


def _changed(loop: Node) -> Iterator[tuple[str, bool]]:
    """The variables that a loop changes, and whether they get another value in each turn."""
    for one in islice(_parts(loop), LONGEST_WORD):
        sign, name = one.next_sibling, raw_of(one)
        if one.type == "variable_name" and sign and sign.type in ("=", "+=", "++", "--", "-="):
            yield name, sign.type != "=" or name in map(raw_of, _parts(sign.next_sibling or sign))


def _is_of_some_nodes(node: Node) -> bool:
    """Whether a node's own number or name decides if it gets there."""
    around = node.parent
    while around and around.type not in ("if_statement", "list"):
        around = around.parent
    names = islice(_parts(around), LONGEST_WORD) if around else ()
    return any(raw_of(one).endswith(_OF_NODE) for one in names if one.type == "variable_name")


def varies(text: object, names: Iterable[str]) -> bool:
    """Whether a text names one of these variables."""
    return not read_shell(str(text), {}).words.isdisjoint(names)


def variable(held: Held, name: str) -> Text | None:
    """A variable's value with the place of its assignment; None if it is not known or computed."""
    words = held.get(name, [])
    text = " ".join(words)
    return placed(text, words[0].line, f"{name}={text}") if text and "$" not in text else None
