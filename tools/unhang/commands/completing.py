"""What a shell offers for a half typed command: argcomplete asks, the commands' own parsers answer,
with names from the catalogue and the last run."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter

from unhang.commands import COMMANDS, SHORT_NAMES
from unhang.commands.names import command_and_arguments, load_command
from unhang.core.catalogue.owners import OWNERS
from unhang.core.catalogue.rule_files import OWN_FOLDERS, row_ids
from unhang.core.errors import UserError
from unhang.core.project import find_project
from unhang.core.run import run_folder
from unhang.core.text import visible

MOST_RUNS = 50
# what explain takes before a number or a version
KINDS = ("cuda", "driver", "nccl", "sxid", "torch", "xid")
# a word that no shell reads as more, and that is no option
PLAIN = re.compile(r"[\w%+,./:=@][\w%+,./:=@-]{,199}", re.ASCII)
# argcomplete's lines for bash match what they are given with files, whose names come unquoted
PATTERN = frozenset("*?[(")
SEVERITIES = ("critical", "error", "warning", "info")


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
    offered = dict(
        sorted(
            {**COMMANDS, **{short: COMMANDS[long] for short, long in SHORT_NAMES.items()}}.items()
        )
    )
    for name in dict.fromkeys(name.split()[0] for name in offered):
        purposes = [purpose for one, purpose in offered.items() if one.split()[0] == name]
        chosen = first.add_parser(name, help=purposes[0], allow_abbrev=False)
        if not words or words[0] != name:
            continue
        seconds = {
            one.split()[1]: purpose
            for one, purpose in offered.items()
            if one.startswith(f"{name} ")
        }
        if meant in COMMANDS and words[1:2] and words[1] in seconds:
            second = chosen.add_subparsers()
            add_completed_arguments(second.add_parser(words[1], allow_abbrev=False), meant)
        else:
            add_completed_arguments(chosen, meant, seconds)
            if seconds and not chosen._get_positional_actions():  # `catalogue`
                second = chosen.add_subparsers()
                for word, purpose in seconds.items():
                    second.add_parser(word, help=purpose)
    return parser


def add_completed_arguments(
    parser: argparse.ArgumentParser, name: str, more: Iterable[str] = ()
) -> None:
    """The arguments of a command, each with what completes it. more: words that may stand in place
    of its first argument."""
    load_command(name).add_arguments(parser)
    for action in parser._actions:
        source = completer_of(name, action)
        if source is not None:
            action.completer = _offering(source, () if action.option_strings else more)  # type: ignore[attr-defined]


def completer_of(name: str, action: argparse.Action) -> Callable[[], Iterable[str]] | None:
    """What gives the values of an argument; None where its choices, or files, are right."""
    kinds = set(re.findall(r"[A-Z]+", str(action.metavar or "")))
    if name == "explain" and action.dest == "id":
        return explained_names
    if name == "history diff" and action.dest == "sides":
        return lambda: [*runs(), *nodes()]
    sources = {
        "RULE": rules,
        "RUN": runs,
        "HOSTS": nodes,
        "HOST": nodes,
        "OWNER": lambda: OWNERS,
        "SEVERITY": lambda: SEVERITIES,
    }
    chosen = (
        [source for kind, source in sources.items() if kind in kinds] if not action.choices else []
    )
    return (lambda: [one for source in chosen for one in source()]) if chosen else None


def _offering(source: Callable[[], Iterable[str]], more: Iterable[str]) -> Callable[..., list[str]]:
    def offered(prefix: str, **_: Any) -> list[str]:
        try:
            names = [*more, *source()]
        except (OSError, UserError, ValueError):
            return []
        return [one for one in names if one.startswith(prefix) and PLAIN.fullmatch(one)]

    return offered


def rules() -> list[str]:
    return row_ids("rules")


def explained_names() -> list[str]:
    return sorted(
        {
            *row_ids(*OWN_FOLDERS, "causes"),
            *KINDS,
            *(path.name for path in (find_project() / "roles").iterdir() if path.is_dir()),
        }
    )


def runs() -> list[str]:
    found = [path.name for path in run_folder.list_runs(run_folder.runs_folder())]
    return ["latest", *sorted(found, reverse=True)[:MOST_RUNS]] if found else []


def nodes() -> list[str]:
    return list(run_folder.read_run(run_folder.find_run("latest")).hosts)
