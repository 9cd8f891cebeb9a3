"""Which command a person means by the words that were typed, and its module."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from unhang.commands import COMMANDS, HIDDEN, SHORT_NAMES
from unhang.core.errors import UserError
from unhang.core.project import repair_advice


def command_and_arguments(typed: Sequence[str]) -> tuple[str, list[str]]:
    """(the command's name as in COMMANDS, its arguments). Unknown words stay as they are."""
    for count in (2, 1):
        words = " ".join(typed[:count])
        if (name := SHORT_NAMES.get(words, words)) in {**COMMANDS, **HIDDEN}:
            return name, list(typed[count:])
    return typed[0], list(typed[1:])


def load_command(name: str) -> Any:
    """The module of a command. Raises UserError if it, or what it needs, is not installed."""
    module = f"unhang.commands.{re.sub('[- ]', '_', name)}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name == module:
            raise UserError(f"this installation has no command {name!r}; the one-file program has a part of them, a wheel or a checkout has all") from None
        raise UserError(f"expected the Python package {problem.name}, found none beside {sys.executable}; {repair_advice()}") from None
