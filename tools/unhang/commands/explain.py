"""`unhang explain ID`: what is known of a rule, an Xid or SXid, a variable, a version, a GPU model or an incident, with sources."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unhang.commands.common_options import add_examples, add_format_option
from unhang.errors import UserError
from unhang.judge.compiled_catalogue import load_catalogue
from unhang.judge.limits import Limits, Stopped, run_limited
from unhang.judge.values import printable
from unhang.reference.explain import Topic, explain, suggestions

NARROW, WIDE = 60, 160
EXAMPLES = """\
  unhang explain xid 79                     what an Xid means and what to do about it
  unhang explain nccl-p2p-disabled          why a rule found something, with its sources
  unhang explain nccl-p2p-disabled -v       its expressions too, for who writes a rule
  unhang explain NCCL_P2P_LEVEL             what a variable does
  unhang explain driver 535.154.05 -o json  what is known of a version"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to explain."""
    examples = "a rule's id, xid 79, sxid 20034, NCCL_P2P_LEVEL, driver 535.154.05, 535, nccl 2.21.5, torch 2.9.1, cuda 12.8, H100, DRV-545-P2P"
    parser.add_argument("id", nargs="+", metavar="ID", help=examples)
    add_format_option(parser, ("table", "json"))
    parser.add_argument("-v", "--verbose", action="store_true", help="show the expressions of a rule too")
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="a folder with additional rules; repeatable")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0. Raises UserError when nothing of that name is known."""
    asked = " ".join(arguments.id)
    folders = [Path(one) for one in arguments.rules]
    found = run_limited(lambda mark: _explained(asked, folders), Limits())
    if isinstance(found, Stopped):
        raise UserError(f"explaining was stopped: it used up its {found.by}")
    topics, hint, faults = found
    for fault in faults:
        print(printable(fault), file=sys.stderr)
    if not topics:
        raise UserError(f"nothing is known of {printable(asked)!r}{hint}; `unhang catalogue` lists what there is, `unhang explain --help` says how to ask")
    if arguments.format == "json":
        print(json.dumps({"asked": asked, "topics": topics}, ensure_ascii=False, indent=1))
    else:
        width = min(max(shutil.get_terminal_size((100, 24)).columns, NARROW), WIDE)
        print("\n\n".join(_text(topic, width, arguments.verbose) for topic in topics))
    return 0


def _explained(asked: str, folders: list[Path]) -> tuple[list[dict[str, Any]], str, list[str]]:
    catalogue = load_catalogue(folders)
    topics: list[Topic] = explain(catalogue, asked)
    return [asdict(topic) for topic in topics], "" if topics else suggestions(catalogue, asked), list(catalogue.faults)


def _text(topic: dict[str, Any], width: int, verbose: bool) -> str:
    lines = [printable(f"{topic['id']}: {topic['title']}")]
    for name, text in [*topic["lines"], *(topic["expressions"] if verbose else ())]:
        lines += _wrapped(f"{name}:", text, width)
    lines += _wrapped("confidence:", topic["confidence"], width)
    for source in topic["sources"]:
        lines += _wrapped("source:", f"{source['url']} {source.get('says', '')}".rstrip(), width)
    return "\n".join(lines)


def _wrapped(name: str, text: str, width: int) -> list[str]:
    line = " ".join(printable(str(text).replace("\n", " ")).split())
    return textwrap.wrap(line, width, initial_indent=f"  {name:<14} ", subsequent_indent=" " * 17, break_long_words=False, break_on_hyphens=False)
