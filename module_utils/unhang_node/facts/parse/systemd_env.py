"""Environment= and EnvironmentFile= of systemd units (systemd.exec(5)), DefaultEnvironment= of the
manager (systemd-system.conf(5))."""

from __future__ import annotations

from ...base.parse.assignment import Assignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "\\": "\\", '"': '"', "'": "'"}


def parse_unit(
    text: str, section: str = "Service", key: str = "Environment"
) -> tuple[list[Assignment], list[str]]:
    """([Assignment], [environment file]) of one unit file or drop-in, in its order.

    An empty Environment= resets the assignments before it: they are reported with value None. "-"
    before a file's name is removed. section, key: "Manager" and "DefaultEnvironment" for the
    manager's own files.
    """
    rows: list[Assignment] = []
    files: list[str] = []
    inside = False
    for number, line in _logical_lines(text):
        if line.startswith("[") and line.endswith("]"):
            inside = line[1:-1] == section
            continue
        name, equals, value = line.partition("=")
        if not inside or not equals:
            continue
        if name.strip() == key:
            if not value.strip():
                rows.extend(
                    Assignment(name=row.name, value=None, line=number)
                    for row in list(rows)
                    if row.value is not None
                )
            rows.extend(_assignment(word, number) for word in split_words(value) if "=" in word)
        elif name.strip() == "EnvironmentFile":
            files = files + [value.strip().lstrip("-")] if value.strip() else []
    return rows, files


def _assignment(word: str, number: int) -> Assignment:
    name, _equals, value = word.partition("=")
    computed = "%" in value.replace("%%", "")  # systemd expands specifiers such as %h
    return Assignment(
        name=name.strip(), value=value.replace("%%", "%"), line=number, certain=not computed
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) without comments, lines that end in a backslash joined by a blank."""
    number, pending = 0, ""
    for position, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not pending):
            continue
        number = number or position
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield number, (pending + line).strip()
        number, pending = 0, ""
    if pending.strip():
        yield number, pending.strip()


def split_words(text: str) -> list[str]:
    """Words of a unit's value, without quotes and C escapes."""
    words, word, quote, started = [], [], "", False
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and position + 1 < len(text):
            word.append(_ESCAPES.get(text[position + 1], "\\" + text[position + 1]))
            started = True
            position += 2
            continue
        if quote:
            if character == quote:
                quote = ""
            else:
                word.append(character)
        elif character in "\"'":
            quote, started = character, True
        elif character.isspace():
            if started:
                words.append("".join(word))
            word, started = [], False
        else:
            word.append(character)
            started = True
        position += 1
    if started:
        words.append("".join(word))
    return words


def parse_environment_file(text: str) -> list[Assignment]:
    """[Assignment] of a file that EnvironmentFile= names: NAME=value without quotes; "#" and ";"
    begin comments, nothing is expanded."""
    rows = []
    for number, line in _logical_lines(text):
        name, equals, value = line.partition("=")
        if equals and name.strip():
            value = value.strip()
            if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            rows.append(Assignment(name=name.strip(), value=value, line=number))
    return rows
