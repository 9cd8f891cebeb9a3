"""Data for files and options that Ansible loads, where it would run what is between {{ and }}."""

from __future__ import annotations

import json
from collections.abc import Mapping

from unhang.core.errors import UserError
from unhang.core.text import visible

TEMPLATE_MARKS = ("{{", "{%", "{#")


def data_for_ansible(value: object) -> str:
    """`value` as JSON (which is YAML too) that Ansible loads as data. Raises UserError for text
    that it would run or refuse to read."""
    if problem := why_not_plain(value):
        raise UserError(
            f"Ansible reads this text, and it {problem}, so it is not plain: {visible(value, 200)}"
        )
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def why_not_plain(value: object) -> str | None:
    """What makes a value more than data to Ansible: the mark of a template, or a character that
    YAML refuses. None for plain values."""
    if isinstance(value, Mapping):
        return next(filter(None, map(why_not_plain, (*value, *value.values()))), None)
    if isinstance(value, list | tuple):
        return next(filter(None, map(why_not_plain, value)), None)
    if not isinstance(value, str):
        return None
    if mark := next((one for one in TEMPLATE_MARKS if one in value), None):
        return f"holds {mark}, with which a template begins"
    odd = next((letter for letter in value if not letter.isprintable()), None)
    return None if odd is None else f"holds the character U+{ord(odd):04X}"
