"""Adds waivers to the text of a policy file. Text in, text out: every other byte stays, comments
included; a file in which a waiver cannot be added that way is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.ansible.group_policies import VARIABLE
from unhang.core.errors import UserError
from unhang.core.strict_yaml import Place, YamlFault, parse_yaml

_ONLY_KEY = re.compile(r"\s*[a-z_]+:\s*(#.*)?")
Row = Mapping[str, Any]


def render_rows(rows: Sequence[Row], indent: int) -> str:
    """The rows as items of a YAML list. Every value is quoted, so that none is read as another
    type."""
    lines = []
    for row in rows:
        named = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in row.items()]
        lines += [" " * indent + "- " + named[0], *(" " * (indent + 2) + one for one in named[1:])]
    return "".join(f"{line}\n" for line in lines)


def with_waivers(text: str, rows: Sequence[Row], name: str) -> str:
    """The text with those rows that it lacks, in front of its other waivers. Raises UserError if
    the file has no unhang_policy in block style, or the result would not be read as meant."""
    try:
        content, places = parse_yaml(text.encode(), name)
    except YamlFault as problem:
        raise UserError(f"the policy cannot be read: {problem}") from None
    policy = content.get(VARIABLE) if isinstance(content, dict) else None
    if not isinstance(policy, dict) or not policy:
        raise UserError(f"{name} has no {VARIABLE} with keys of a policy")
    known = policy.get("waivers")
    new = [row for row in rows if row not in (known or [])]
    if not new:
        return text
    lines = text.splitlines(keepends=True)
    path = (VARIABLE, "waivers") if known else (VARIABLE,)
    first = (*path, 0) if known else (VARIABLE, next(iter(policy)))
    at, indent = _room(lines, places[path], places[first], name)
    head = "" if known else " " * indent + "waivers:\n"
    made = "".join(
        [*lines[:at], head + render_rows(new, indent + (0 if known else 2)), *lines[at:]]
    )
    wanted = {**content, VARIABLE: {**policy, "waivers": [*new, *(known or [])]}}
    try:
        is_as_meant = parse_yaml(made.encode(), name)[0] == wanted
    except YamlFault:
        is_as_meant = False
    if not is_as_meant:
        raise UserError(
            f"{name} must have one key or list item a line, and has another form of YAML"
        )
    return made


def _room(lines: Sequence[str], key: Place, first: Place, name: str) -> tuple[int, int]:
    """(number of the line before which new lines belong, columns of their indent). key: the key of
    a block; first: what is first in it."""
    line = lines[key.line - 1].rstrip("\r\n")
    if "\r" in "".join(lines) or first.line <= key.line or not _ONLY_KEY.fullmatch(line):
        raise UserError(
            f"{name}:{key.line}: a key must be alone in its line, with its values below"
        )
    begun = lines[first.line - 1]
    return key.line, len(begun) - len(begun.lstrip(" "))
