"""Parses small texts of the kernel and of configuration files. Nothing here reads a file."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEXT_LIMIT = 4096  # the schema's limit for one text
# Python 3.11 and later convert no longer ones; before, the time grows with the square of the length
JSON_DIGITS = 4300
INTEGER_DIGITS = 20  # 2**64 has 20 digits; no kernel writes a larger number


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """One line without control characters (each becomes a space), stripped, at most `limit`
    characters."""
    text = text[: limit * 2]
    return "".join(character if character.isprintable() else " " for character in text).strip()[
        :limit
    ]


def clean_or_none(text: str, limit: int = TEXT_LIMIT) -> str | None:
    """As clean; None for an empty text."""
    return clean(text, limit) or None


def parse_integer(text: str, base: int = 10) -> int:
    """A whole number in the form of sysfs and procfs. Raises ValueError that quotes the text."""
    word = text.strip()
    if not word or len(word) > INTEGER_DIGITS or not word.isascii() or "_" in word:
        raise ValueError(f"this is not a number: {word[:40]!r}")
    try:
        return int(word, base)
    except ValueError:
        raise ValueError(f"this is not a number: {word[:40]!r}") from None


def parse_json(text: str) -> Any:
    """The value of a JSON text from a node; a whole number without end is infinite. Raises
    ValueError for anything else, deep nesting included."""
    try:
        return json.loads(text, parse_int=_json_integer)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _json_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= JSON_DIGITS else float(digits)


def integer_or_none(text: str, base: int = 10) -> int | None:
    """As parse_integer; None if the text is no number."""
    try:
        return parse_integer(text, base)
    except ValueError:
        return None


def parse_assignments(text: str) -> dict[str, str]:
    """{name: value} of NAME=value lines (os-release, grubenv, uevent), without quotes and
    comments."""
    values = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if not equals or not name or name.startswith("#"):
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        values[name.strip()] = value
    return values


def parse_meminfo(text: str) -> dict[str, int]:
    """{name: bytes, or a plain count where the line has no kB} of /proc/meminfo."""
    values = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        number = integer_or_none(fields[0]) if colon and fields else None
        if number is not None:
            values[name.strip()] = (
                number * 1024 if len(fields) > 1 and fields[1].lower() == "kb" else number
            )
    return values


MOST_CPUS = 8192


def parse_cpu_list(text: str) -> list[int]:
    """Sorted CPU numbers of "0-3,8". Raises ValueError if the text is no such list, or names more
    than MOST_CPUS."""
    numbers: set[int] = set()
    for piece in text.strip().split(","):
        if not piece.strip():
            continue
        first, dash, last = piece.partition("-")
        low = parse_integer(first)
        high = parse_integer(last) if dash else low
        if low < 0 or high - low >= MOST_CPUS or len(numbers) > MOST_CPUS:
            raise ValueError(f"this is not a CPU list: {text[:40]!r}")
        numbers.update(range(low, high + 1))
    return sorted(numbers)


def parse_systemd_settings(text: str, section: str) -> list[tuple[str, str]]:
    """[(name, value)] of one section of a systemd configuration file, in the order of the file.

    A line that ends in a backslash goes on in the next one that is no comment: systemd.syntax(7).
    """
    settings, inside, begun = [], False, ""
    for raw in text.splitlines():
        line = raw.strip()
        is_comment = line[:1] in ("#", ";")
        if begun and is_comment:
            continue
        if raw.endswith("\\") and not is_comment:
            begun += line[:-1] + " "
            continue
        line, begun = (begun + line).strip(), ""
        if line.startswith("[") and line.endswith("]"):
            inside = line[1:-1] == section
        elif inside and line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            if equals:
                settings.append((name.strip(), value.strip()))
    return settings


def parse_flag_word(text: str) -> bool | None:
    """True or False of systemd's yes/no words, None for another word."""
    word = text.strip().lower()
    if word in ("1", "yes", "y", "true", "t", "on"):
        return True
    return False if word in ("0", "no", "n", "false", "f", "off") else None


def release_key(release: str) -> list[tuple[int, int, str]]:
    """Sort key of kernel releases: 6.8.0-45-generic after 6.8.0-9-generic. Numbers before words."""
    pieces, number, word = [], "", ""
    for character in release[:256]:
        if character in "0123456789":
            if word:
                pieces.append((0, 0, word))
                word = ""
            number += character
            continue
        if number:
            pieces.append((1, int(number), ""))
            number = ""
        if character.isalpha():
            word += character
        elif word:
            pieces.append((0, 0, word))
            word = ""
    if number:
        pieces.append((1, int(number), ""))
    if word:
        pieces.append((0, 0, word))
    return pieces


def as_map(value: Any) -> dict[Any, Any]:
    """An object of a document, or {} for anything else that a node sent."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list of a document, or [] for anything else that a node sent."""
    return value if isinstance(value, list) else []


def as_maps(value: Any) -> list[dict[Any, Any]]:
    """The objects of a list, and nothing else that a node sent."""
    return [row for row in as_list(value) if isinstance(row, dict)]


def number_of(value: Any) -> float:
    """A number of a document, or 0 for anything else that a node sent."""
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18
        else 0.0
    )


def whole_or_none(value: Any) -> int | None:
    """A whole number of a document, None for anything else and for one without measure."""
    plain = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62
    return value if plain else None
