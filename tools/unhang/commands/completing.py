"""What a shell offers for a half typed command: argcomplete asks, the commands' own parsers
answer."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter

from unhang.commands import COMMANDS, SHORT_NAMES
from unhang.commands.names import command_and_arguments, load_command
from unhang.core.text import visible

# argcomplete's lines for bash match what they are given with files, whose names come unquoted
PATTERN = frozenset("*?[(")


class PlainFiles(FilesCompleter):
    """Names of files; bash itself completes those that are left out here."""

    def __call__(self, prefix: str, **given: Any) -> list[str]:
        """Names that begin with `prefix`."""
        return [
            one
            for one in super().__call__(prefix, **given)
            if one == visible(one, 4096) and not PATTERN & set(one)
        ]


def complete() -> None:
    """Answers the shell, and ends the process."""
    line, point = os.environ.get("COMP_LINE", ""), os.environ.get("COMP_POINT", "")
    before = line.encode()[: int(point)].decode(errors="replace") if point.isdigit() else line
    argcomplete.autocomplete(
        parser_for(_words(before)), default_completer=PlainFiles(), always_complete_options=False
    )


def _words(typed: str) -> list[str]:
    """The whole words after the program's name; the last word is still being typed."""
    try:
        words = shlex.split(typed)
    except ValueError:  # an open quotation
        words = typed.split()
    return words[1:] if typed.endswith(" ") else words[1:-1]


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """All commands, of which the one that was typed has its arguments."""
    parser = argparse.ArgumentParser(prog="unhang", allow_abbrev=False)
    parser.add_argument("--version", action="store_true")
    first = parser.add_subparsers()
    meant = command_and_arguments(words)[0] if words else ""
    offered = COMMANDS | {short: COMMANDS[long] for short, long in SHORT_NAMES.items()}
    for name, about in offered.items():
        if " " in name:
            continue
        chosen = first.add_parser(name, help=about, allow_abbrev=False)
        if not words or words[0] != name:
            continue
        seconds = {
            one.split()[1]: purpose
            for one, purpose in offered.items()
            if one.startswith(f"{name} ")
        }
        if words[1:2] and words[1] in seconds:
            second = chosen.add_subparsers()
            chosen = second.add_parser(words[1], allow_abbrev=False)
            seconds = {}
        load_command(meant).add_arguments(chosen)
        if seconds:  # `catalogue`, `history`
            second = chosen.add_subparsers()
            for word, purpose in seconds.items():
                second.add_parser(word, help=purpose)
    return parser
