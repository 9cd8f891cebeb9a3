"""Shared by `unhang runs`, `diff` and `history`: options, the path of the history, examples for the
help."""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.audit.history.location import OFF, SETTING, database_file
from unhang.core.commands.common_options import add_examples, add_format_option, add_quiet
from unhang.core.commands.row_output import FORMATS
from unhang.core.errors import UserError


def add_history_options(parser: argparse.ArgumentParser, names: str, examples: str) -> None:
    """names: what --format name prints, one per line; examples: for the end of the help."""
    parser.add_argument(
        "--db",
        metavar="FILE",
        help=f"the history's file (default: ${SETTING}, or $XDG_STATE_HOME/unhang/history.db)",
    )
    add_format_option(parser, FORMATS, {"name": f"{names}, one a line"})
    add_quiet(parser)
    add_examples(parser, examples)


def history_file(arguments: argparse.Namespace) -> Path:
    """Path of the history. Raises UserError if the history is off."""
    file = database_file(arguments.db)
    if file is None:
        raise UserError(f"expected a history, found {SETTING}={OFF}; name one with --db FILE")
    return file
