"""What `unhang runs`, `diff` and `history` share: where the history is, its options, examples in the help."""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.commands.common_options import add_examples, add_format_option, add_quiet
from unhang.commands.row_showing import FORMATS
from unhang.errors import UserError
from unhang.history.place import OFF, SETTING, database_file


def add_history_options(parser: argparse.ArgumentParser, names: str, examples: str) -> None:
    """names: what --format name prints, one a line; examples: for the end of the help."""
    parser.add_argument("--db", metavar="FILE", help=f"the history's file (default: ${SETTING}, or $XDG_STATE_HOME/unhang/history.db)")
    add_format_option(parser, FORMATS, {"name": f"{names}, one a line"})
    add_quiet(parser)
    add_examples(parser, examples)


def history_file(arguments: argparse.Namespace) -> Path:
    """Raises UserError when the history is off."""
    file = database_file(arguments.db)
    if file is None:
        raise UserError(f"expected a history, found {SETTING}={OFF}; name one with --db FILE")
    return file
