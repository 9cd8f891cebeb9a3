"""Which command a person means by the words that were typed, and its module."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from unhang.base.errors import UserError
from unhang.base.project import repair_advice
from unhang.commands import COMMANDS, HIDDEN, OLD_NAMES, OLD_OPTIONS, SHORT_NAMES


def command_and_arguments(typed: Sequence[str]) -> tuple[str, list[str], str]:
    """(the command's name as in COMMANDS, its arguments, a line about an old name or ""). Unknown words stay as they are."""
    for (command, option), new in OLD_OPTIONS.items():
        if typed[0] == command and option in typed:
            return new, [one for one in typed[1:] if one != option], _renamed(f"{command} {option}", new)
    for count in (2, 1):
        words, rest = " ".join(typed[:count]), list(typed[count:])
        if words in OLD_NAMES:
            name, options, _ = command_and_arguments(OLD_NAMES[words].split())
            return name, [*options, *rest], _renamed(words, OLD_NAMES[words])
        if (name := SHORT_NAMES.get(words, words)) in {**COMMANDS, **HIDDEN}:
            return name, rest, ""
    return typed[0], list(typed[1:]), ""


def _renamed(old: str, new: str) -> str:
    return f"unhang: `unhang {old}` is now `unhang {new}`; the next release has only the new name"


def load_command(name: str) -> Any:
    """The module of a command. Raises UserError if it, or what it needs, is not installed."""
    module = f"unhang.commands.{re.sub('[- ]', '_', name)}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name == module:
            raise UserError(f"this installation has no command {name!r}; the one-file program has a part of them, a wheel or a checkout has all") from None
        raise UserError(f"expected the Python package {problem.name}, found none beside {sys.executable}; {repair_advice()}") from None
