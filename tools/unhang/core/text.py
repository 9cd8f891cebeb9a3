"""Makes text from nodes safe for its reader. It is untrusted until it has passed through the
function of the reader; docs/security.md has who uses which.

    visible             a terminal, and every line for people: no control characters, no reordering
    marks, no endless strings
    cell_for_csv        a spreadsheet, which would compute what begins like a formula
    text_for_sarif      a message in SARIF, in which [text](address) would be a link

Markup is not handled here: the HTML template escapes, the terminal renderer takes no markup at all.
"""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.core.quotes import leading_words

CUT_AT = 600
# wide ones too: Excel computes them
_FORMULA = re.compile(r"((?:^|[;\t|])[\s\"]*)([=+@\uff1d\uff0b\uff20\uff0d-])")
STACKED_MARKS = 2  # more combining marks than this on one letter paint over the lines around it

# the quick check reads it with Python 3.8
_PLAIN = dict(zip("·×–—‘’“”µ", "-x--''\"\"u"))  # noqa: B905
_PLAIN.update({"…": "...", "→": "->", "°": " deg "})


def visible(value: object, limit: int = CUT_AT) -> str:
    """`value` as one line: unprintable characters become escapes (`\\x1b`, `\\u202e`), and a text
    that is too long is cut with a mark."""
    text = value if isinstance(value, str) else plain_value(value)
    size = len(text)
    if size > limit:
        text = leading_words(text, limit)
    if not text.isascii() or not text.isprintable():
        text = _unstacked("".join(_shown(letter) for letter in text))
    return text if size <= limit else f"{text}… (cut, {size:,} characters)"


def plain_value(value: object) -> str:
    """A fact for a person: true, null, 535.104.05, else compact JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    except (ValueError, RecursionError):
        return "(a value that cannot be shown)"


def cell_for_csv(text: str) -> str:
    """The text with an apostrophe before what a spreadsheet would compute: at the beginning, and
    behind a sign at which another country's one splits cells, inside the quotes of later cells too.
    A comma needs none: the CSV writer quotes the cell, and who splits at other signs does not split
    there."""
    return _FORMULA.sub(r"\1'\2", text)


def text_for_sarif(text: str) -> str:
    """The text without the sign by which a viewer finds a link (SARIF 2.1.0, 3.11.6)."""
    return text.replace("](", "] (")


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    if unicodedata.category(letter) == "Zs":
        return " "
    if letter in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[letter]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unstacked(text: str) -> str:
    kept: list[str] = []
    marks = 0
    for letter in text:
        marks = marks + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        if marks <= STACKED_MARKS:
            kept.append(letter)
    return "".join(kept)


def ascii_only(text: str) -> str:
    """For terminals with ASCII only: usual signs get their plain form, other characters their
    escape."""
    if text.isascii():
        return text
    for sign, plain in _PLAIN.items():
        text = text.replace(sign, plain)
    return text.encode("ascii", "backslashreplace").decode("ascii")


def wrapped(text: str, width: int, indent: int = 0, start: str = "") -> list[str]:
    """Lines of at most `width` columns, the later ones indented, by default below the text behind
    `start`; a word is never broken, so that it can be copied."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=start,
        subsequent_indent=" " * (indent or len(start)),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start]


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 node`, `2 nodes`, `1,024 nodes`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(parts: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def flat(variables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """(path, value) of each key of a policy or of a role's variables, as a person writes it."""
    for name, value in variables.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def brief(value: Any) -> str:
    """A fact in a line: empty, a text unchanged, or a few values of a list; the caller cuts what is
    too long."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return listed([brief(one) for one in value], 6)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {brief(one)}" for key, one in list(value.items())[:6]) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
