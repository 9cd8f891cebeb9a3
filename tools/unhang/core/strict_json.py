"""Reads JSON from nodes and files strictly: refuses what the standard forbids or does not
define."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unhang.core.bounded_reads import read_at_most

MAX_DEPTH = 100
LONGEST_NUMBER = 400  # digits; the largest number that JSON readers agree on has 309


class NotStrict(ValueError):
    """The text is no strict JSON; the message is one line that names the place or the value."""


def parse_strictly(text: bytes | str, *, half_characters: bool = False) -> Any:
    """A JSON value. Raises NotStrict: NaN, infinities, a key twice, half a character (a lone
    surrogate), bytes that are not UTF-8, nesting without end.

    half_characters: let lone surrogates through, for who writes them as ? anyway.
    """
    try:
        whole = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(
            whole,
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except RecursionError:
        raise NotStrict("objects nest too deeply") from None
    except UnicodeDecodeError as problem:
        raise NotStrict(f"this is not valid JSON: byte {problem.start} is not UTF-8") from None
    except NotStrict:
        raise
    except ValueError as problem:
        raise NotStrict(f"this is not valid JSON: {problem}") from None
    _check(value, half_characters)
    return value


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """All of a regular file. Raises OSError, and NotStrict for one that is larger; a pipe or a
    device is never waited for."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotStrict("it is not a regular file")
    with path.open("rb", buffering=0) as source:
        data = read_at_most(source, most_bytes + 1, expected_bytes=found.st_size + 1)
    if len(data) > most_bytes:
        raise NotStrict(
            f"the file is larger than {most_bytes} bytes; at most {most_bytes} are read"
        )
    return data


def value_at(document: Any, path: Iterable[str]) -> Any:
    """The value at a path of keys, None if a part of it is missing."""
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise NotStrict(f"the key {twice[:80]!r} occurs twice in one object")
    return members


def _no_constant(name: str) -> Any:
    raise NotStrict(f"{name} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotStrict(f"the number {digits[:40]} is too large")
    return number


def _bounded(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise NotStrict(f"the number {digits[:40]}… is too large")
    return int(digits)


def _check(value: Any, half_characters: bool) -> None:
    """Checks the depth, and texts that UTF-8 cannot encode: JSON may escape half of a surrogate
    pair, and writing that again fails."""
    waiting = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, str):
            if not (one.isascii() or half_characters):
                _check_text(one)
        elif isinstance(one, (dict, list)):
            if depth > MAX_DEPTH:
                raise NotStrict("objects nest too deeply")
            if isinstance(one, dict):
                waiting += [(key, depth) for key in one]
                one = one.values()
            waiting += [(inside, depth + 1) for inside in one]


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise NotStrict(f"a text has half a character: {text[problem.start]!r}") from None
