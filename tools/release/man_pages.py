"""Writes a man page for `unhang` and for each of its commands, from their own parsers:
build/man/unhang.1, unhang-audit.1 …

python -P tools/release/man_pages.py [FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from argparse_manpage.manpage import Manpage

from unhang import __version__
from unhang.cli import command_and_parser, top_parser
from unhang.commands import COMMANDS

PROJECT = Path(__file__).resolve().parents[2]
AFTERWARDS = """.SH "EXIT STATUS"
0 nothing found at or above \\-\\-fail\\-on, 1 findings, 2 the command failed.
.SH "SEE ALSO"
{others}
"""


def write_pages(folder: Path, day: str) -> list[Path]:
    """One page for each command and one for all. day: the date in the footer."""
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob("unhang*.1"):  # a command that is gone has no page in the wheel
        earlier.unlink()
    pages = {
        "unhang": page(
            top_parser(),
            "finds, fixes and proves away what makes multi-GPU training hang",
            day,
            [page_name(name) for name in COMMANDS],
        )
    }
    for name, purpose in COMMANDS.items():
        pages[page_name(name)] = page(command_and_parser(name)[1], purpose, day, ["unhang"])
    written = [folder / f"{name}.1" for name in pages]
    for path, text in zip(written, pages.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return written


def page_name(command: str) -> str:
    """unhang-rule-new of `unhang rule new`."""
    return f"unhang-{command.replace(' ', '-')}"


def page(parser: argparse.ArgumentParser, purpose: str, day: str, others: list[str]) -> str:
    """The source of one page. others: names of pages to see as well."""
    made = Manpage(
        parser,
        {
            "date": day,
            "project_name": "unhang",
            "version": __version__,
            "manual_title": "unhang",
            "description": purpose,
        },
        format="single-commands-section",
    )
    made.prog = made.mf.prog = parser.prog.replace(" ", "-")
    seen = ", ".join(f".BR {other} (1)" for other in others).replace(", .BR", ",\n.BR")
    text, _, examples = str(made).rstrip("\n").partition(".SH COMMENTS\n")
    # as the parser's epilog has its lines
    kept = f".SH NOTES\n.nf\n{examples}\n.fi\n" if examples else ""
    return text.rstrip("\n") + "\n" + kept + AFTERWARDS.format(others=seen)


def released() -> str:
    """The day of the newest release, as CHANGELOG.md has it."""
    return next(
        line.rpartition("(")[2].rstrip(")\n")
        for line in (PROJECT / "CHANGELOG.md").open(encoding="utf-8")
        if line.startswith("## ") and "(" in line
    )


if __name__ == "__main__":
    for path in write_pages(
        Path(sys.argv[1]) if sys.argv[1:] else PROJECT / "build" / "man", released()
    ):
        sys.stdout.write(f"{path}\n")
