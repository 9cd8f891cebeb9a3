"""-l and --host, by which every command selects nodes."""

from __future__ import annotations

import argparse


def add_host(
    parser: argparse._ActionsContainer, meaning: str, *old: str, dest: str = "host"
) -> None:
    """A list of what was typed, [] without it. old: names that the option had in this command; they
    work, and are not shown."""
    for names in (("-l", "--host"), old):
        if names:
            parser.add_argument(
                *names, dest=dest, action="append", default=[], metavar="HOSTS", help=meaning
            )
        meaning = argparse.SUPPRESS
