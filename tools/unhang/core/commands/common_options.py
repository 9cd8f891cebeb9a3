"""Options that several commands share, --format (-o), --quiet and others; and the examples at the
end of a help text."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# The common meanings of the formats; a command with another meaning gives its own.
FORMAT_MEANINGS = {
    "html": "HTML report",
    "evidence": "at most 16 KiB of JSON for a ticket or an assistant",
    "sarif": "for code hosts",
}


def add_format_option(
    parser: argparse.ArgumentParser,
    formats: Sequence[str],
    meanings: Mapping[str, str] | None = None,
) -> None:
    """formats: the allowed ones, the default first; meanings: explanations of those whose name is
    not enough."""
    known = {**FORMAT_MEANINGS, **(meanings or {})}
    described = [
        f"{name} ({'default' if not place else known.get(name, '')})".removesuffix(" ()")
        for place, name in enumerate(formats)
    ]
    parser.add_argument(
        "-o",
        "--format",
        choices=tuple(formats),
        default=formats[0],
        metavar="FORMAT",
        help=", ".join(described),
    )


def add_quiet(parser: argparse.ArgumentParser) -> None:
    add_flag(parser, "-q --quiet", "print nothing; use the exit code")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """-v of the commands whose first screen has at most 12 lines."""
    add_flag(
        parser,
        "-v --verbose",
        "below the first screen all that was found, and what was read",
    )


def add_flag(parser: argparse._ActionsContainer, name: str, meaning: str) -> None:
    """An option without a value."""
    parser.add_argument(*name.split(), action="store_true", help=meaning)


def add_value(
    parser: argparse._ActionsContainer,
    name: str,
    value: str,
    meaning: str,
    kind: Callable[[str], Any] = str,
    default: Any = None,
) -> None:
    """An option with one value. value: as help calls it; kind: what makes a value of the text."""
    parser.add_argument(name, type=kind, default=default, metavar=value, help=meaning)


def add_repeatable(parser: argparse._ActionsContainer, name: str, value: str, meaning: str) -> None:
    """An option that may be given several times; [] without it. name: with a short one before it,
    as `-l --host`, by which every command selects nodes; value: as help calls it."""
    parser.add_argument(*name.split(), action="append", default=[], metavar=value, help=meaning)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """--rules of the commands that read the catalogue of rules."""
    add_repeatable(parser, "--rules", "DIR", "a folder with additional rules; repeatable")


def add_inventory(
    parser: argparse.ArgumentParser,
    meaning: str = "inventory file or folder, or host1,host2, (default: this machine)",
) -> None:
    """-i of the commands that read nodes."""
    parser.add_argument("-i", "--inventory", action="append", metavar="PATH", help=meaning)


def add_out(parser: argparse.ArgumentParser) -> None:
    """--out of the commands that make a run folder."""
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="parent of the run folders (default: $UNHANG_RUNS, or runs/ in the checkout or the"
        " current folder)",
    )


def add_ansible(parser: argparse.ArgumentParser) -> None:
    """--ansible of the commands that run a playbook."""
    add_repeatable(
        parser, "--ansible", "OPTION", "option for ansible-playbook, for example --ansible=--become"
    )


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """examples: lines to type, each followed by two blanks or more and its purpose."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"examples:\n{examples}"
