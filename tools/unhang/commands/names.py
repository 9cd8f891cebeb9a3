"""Which command a person means by the words that were typed, and its module."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from unhang.commands import COMMANDS, EXTRAS, HIDDEN, RENAMED, SHORT_NAMES, WINGS
from unhang.core.project import install_line


def command_and_arguments(typed: Sequence[str]) -> tuple[str, list[str]]:
    """(the command's name as in COMMANDS, its arguments). Unknown words stay as they are."""
    for count in (2, 1):
        words = " ".join(typed[:count])
        if (name := SHORT_NAMES.get(words, words)) in {**COMMANDS, **HIDDEN, **RENAMED}:
            return name, list(typed[count:])
    return typed[0], list(typed[1:])


def load_command(name: str) -> Any:
    """The module of a command. Raises ModuleNotFoundError, for missing_package."""
    return importlib.import_module(module_of(name))


def module_of(name: str) -> str:
    """The dotted name of a command's module."""
    wing = next((wing for wing, names in WINGS.items() if name in names), None)
    return f"unhang.{f'{wing}.' if wing else ''}commands.{re.sub('[- ]', '_', name)}"


def missing_package(problem: ModuleNotFoundError) -> str:
    """Says which line installs what a command needs."""
    package = (problem.name or "?").partition(".")[0]
    return (
        f"the Python package {package} is not installed beside {sys.executable}; next:"
        f" {install_line(EXTRAS.get(package, ''))}"
    )
