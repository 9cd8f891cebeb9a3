"""`unhang mcp`: lets an assistant ask unhang, by the Model Context Protocol over standard input and
output. Every tool only reads."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from unhang.core.commands.common_options import add_examples, add_repeatable
from unhang.core.errors import UserError

EXAMPLES = """\
  unhang mcp                       an assistant starts this; it may read what you may read
  unhang mcp --within ~/jobs       and no file outside of this folder"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_repeatable(
        parser,
        "--within",
        "DIR",
        "the folder whose files may be read, repeatable (default: all that this user may read;"
        " root has to name one)",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0 when the assistant closes standard input. Raises UserError."""
    if sys.stdin.isatty():
        raise UserError(
            "standard input is a terminal, not an assistant; docs/assistants.md says how an"
            " assistant starts unhang mcp"
        )
    if os.geteuid() == 0 and not arguments.within:
        raise UserError(
            "root may read every file: start it as the user whose jobs are asked about, or name the"
            " folders that may be read with --within"
        )
    within = [_folder(one) for one in arguments.within]
    from unhang.commands.assistant_server import serve  # the SDK, which --help does not need

    serve(within)
    return 0


def _folder(named: str) -> Path:
    path = Path(named)
    if not path.is_dir():
        raise UserError(f"--within names {named}, which is not a folder")
    return path.resolve()
