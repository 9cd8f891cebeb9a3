"""The variables that a shell start-up file sets, as far as its text shows. Nothing is run.

Understood: NAME=value, export, declare -x, typeset -x, unset, quotes, several on a line,
TaskProlog's `echo export NAME=value`. A value that the shell computes ($, backquotes), and an
assignment under a condition, in a loop, in a function or after a return, has certain=False.
"""

from __future__ import annotations

import re

from ...base.parse.assignment import Assignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    ShellWord = tuple[str, bool]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPENING = frozenset(["if", "case", "for", "while", "until", "select", "{", "(", "function"])
_CLOSING = frozenset(["fi", "esac", "done", "}", ")"])
_MIDDLE = frozenset(["then", "else", "elif", "do", "!"])
_LEAVING = frozenset(["return", "exit", "exec"])
_EXPORTS = frozenset(["export", "declare", "typeset", "readonly", "local"])
_PRINTS = frozenset(["echo", "print", "printf"])
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)(\w+)\1")
_ALL_EXPORTED = re.compile(r"^\s*set\s+(-a\b|-o\s+allexport)", re.M)
MAX_LINES = 20000


def parse_shell(text: str) -> list[Assignment]:
    """[Assignment] of a file that sh or bash sources, in its order."""
    rows = list(_walk(text))
    exported = {row.name for row, kind in rows if kind == "exported"} | {
        row.name for row, kind in rows if kind == "named"
    }
    everything = _ALL_EXPORTED.search(text) is not None
    # A variable that is never exported stays in the shell, unless the shell inherited it exported.
    return [
        Assignment(
            name=row.name,
            value=row.value,
            line=row.line,
            certain=row.certain and (kind == "exported" or everything or row.name in exported),
        )
        for row, kind in rows
        if kind in ("exported", "plain")
    ]


def parse_task_prolog(text: str) -> list[Assignment]:
    """[Assignment] of a Slurm TaskProlog: only what it prints as `export NAME=value` or `unset
    NAME` reaches the task."""
    return [row for row, kind in _walk(text) if kind == "printed"]


def _walk(text: str) -> Iterator[tuple[Assignment, str]]:
    """(Assignment, kind) in the order of the file; kind as _assignments gives it."""
    blocks: list[str] = []
    # blocks: "function" or "block", innermost last; returned: the file may have ended by a return
    returned, until = False, None
    for number, line in _logical_lines(text):
        if until is not None:
            until = None if line.strip() == until else until
            continue
        heredoc = _HEREDOC.search(line)
        until = heredoc.group(2) if heredoc and "#" not in line[: heredoc.start()] else None
        for command, joined in _commands(line):
            words = _without_keywords(command, blocks)
            if not words:
                continue
            if words[0][0] in _LEAVING and "function" not in blocks:
                returned = True
            sure = not (joined or blocks or returned)
            for row, kind in _assignments(words, number):
                yield (
                    Assignment(
                        name=row.name, value=row.value, line=row.line, certain=row.certain and sure
                    ),
                    kind,
                )


def _without_keywords(words: list[ShellWord], blocks: list[str]) -> list[ShellWord]:
    """The words after the shell's own keywords; `blocks` is changed as they open and close."""
    words = list(words)
    is_function = False
    while words:
        word = words[0][0]
        if word in _CLOSING:
            if blocks:
                blocks.pop()
        elif word in _OPENING:
            if word == "function":
                is_function = True
                words = words[1:]  # the function's name
            else:
                blocks.append("function" if is_function else "block")
        elif word.endswith("()") or (len(words) > 1 and words[1][0] == "()"):
            is_function = True
            words = words[1:] if word.endswith("()") else words[2:]
            continue
        elif word not in _MIDDLE and not (
            blocks and word.endswith(")") and "(" not in word
        ):  # the second is a pattern of `case`
            break
        words = words[1:]
    if is_function and (not blocks or blocks[-1] != "function"):
        blocks.append("function")  # the function's brace is on the next line and is read there
    elif words == [] and blocks[-2:] == ["function", "block"]:
        blocks.pop()
    return words


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, line) with lines that end in a backslash joined."""
    number, pending = 0, ""
    for position, line in enumerate(text.splitlines()[:MAX_LINES], 1):
        number = number or position
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending += line[:-1]
            continue
        yield number, pending + line
        number, pending = 0, ""
    if pending:
        yield number, pending


def _commands(line: str) -> Iterator[tuple[list[ShellWord], bool]]:
    """([(word, computed)], joined by && or ||) of each simple command on a line, without quotes."""
    word: list[str] = []
    words, computed, started, joined = [], False, False, False
    position, size = 0, len(line)
    while position <= size:
        character = line[position] if position < size else "\n"
        if character in " \t\n;&|" or (character == "#" and not started):
            if started:
                words.append(("".join(word), computed))
                word, computed, started = [], False, False
            if character == "#" or position == size:
                break
            if character in ";&|":
                if words:
                    yield words, joined
                words = []
                pair = line[position : position + 2]
                joined = pair in ("&&", "||") or (joined and character != ";")
                position += 1 if pair in ("&&", "||", ";;") else 0
            position += 1
            continue
        started = True
        taken, here, position = _piece(line, position)
        word.append(taken)
        computed = computed or here
    if started:  # the quoted text ends on a later line
        words.append(("".join(word), True))
    if words:
        yield words, joined


def _piece(line: str, position: int) -> tuple[str, bool, int]:
    """(text, computed, next position) of one quoted part or one character of a word."""
    character = line[position]
    if character == "'":
        end = line.find("'", position + 1)
        end = len(line) if end < 0 else end
        return line[position + 1 : end], False, end + 1
    if character == "\\":
        return line[position + 1 : position + 2], False, position + 2
    if character == '"':
        return _double_quoted(line, position + 1)
    if character == "$" and line[position + 1 : position + 2] == "(":
        end = line.rfind(")", position)
        end = len(line) if end < 0 else end + 1
        return line[position:end], True, end
    if character == "`":
        end = line.find("`", position + 1)
        end = len(line) if end < 0 else end + 1
        return line[position:end], True, end
    if character == "$" and line[position + 1 : position + 2] == "{":
        end = line.find("}", position)
        end = len(line) if end < 0 else end + 1
        return line[position:end], True, end
    return character, character == "$", position + 1


def _double_quoted(line: str, position: int) -> tuple[str, bool, int]:
    pieces, computed = [], False
    while position < len(line) and line[position] != '"':
        if line[position] == "\\" and line[position + 1 : position + 2] in ('"', "\\", "$", "`"):
            pieces.append(line[position + 1])
            position += 2
            continue
        computed = computed or line[position] in "$`"
        pieces.append(line[position])
        position += 1
    return "".join(pieces), computed, position + 1


def _assignments(words: list[ShellWord], number: int) -> Iterator[tuple[Assignment, str]]:
    """(Assignment, kind) of one simple command; kind is exported, plain, named (exported without a
    value) or printed."""
    if not words:
        return
    first = words[0][0]
    if first in _PRINTS:
        yield from _printed(words[1:], number)
        return
    if first == "unset":
        for word, computed in words[1:]:
            if _NAME.fullmatch(word):
                yield (
                    Assignment(name=word, value=None, line=number, certain=not computed),
                    "exported",
                )
        return
    exports = first in _EXPORTS
    if not exports and not all("=" in word for word, _computed in words):
        return  # a command, possibly after assignments that are valid for it alone
    for word, computed in words[1:] if exports else words:
        name, equals, value = word.partition("=")
        bare = name.rstrip("+")
        if not _NAME.fullmatch(bare):
            continue
        if equals:
            yield (
                Assignment(
                    name=bare, value=value, line=number, certain=not (computed or name != bare)
                ),
                "exported" if exports else "plain",
            )
        elif exports:
            yield Assignment(name=bare, value=None, line=number, certain=False), "named"


def _printed(words: list[ShellWord], number: int) -> Iterator[tuple[Assignment, str]]:
    """`echo export NAME=value` and `echo "export NAME=value"`, the lines by which a TaskProlog sets
    variables."""
    text = " ".join(word for word, _computed in words).strip()
    computed = any(each for _word, each in words)
    found = re.match(
        r"(?:-\w+\s+)?(export\s+([A-Za-z_]\w*)=(.*)|unset\s+([A-Za-z_]\w*))$",
        text.replace("\\n", ""),
    )
    if found and found.group(2):
        yield (
            Assignment(
                name=found.group(2), value=found.group(3), line=number, certain=not computed
            ),
            "printed",
        )
    elif found:
        yield (
            Assignment(name=found.group(4), value=None, line=number, certain=not computed),
            "printed",
        )
