"""`unhang waive RULE`: accepts a finding until a day, in the file where the inventory keeps the
policy."""

from __future__ import annotations

import argparse
import difflib
import getpass
from pathlib import Path

from unhang.core.commands.common_options import (
    add_examples,
    add_repeatable,
    add_value,
)
from unhang.core.commands.typed_values import day_of, today_or
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit
from unhang.core.run import run_folder
from unhang.core.run.findings import read_findings
from unhang.core.run.own_runs import is_own, own_inventories
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.core.strict_yaml import MAX_BYTES
from unhang.core.text import visible
from unhang.judge.fleet.waiver_rows import Wish, waiver_rows
from unhang.judge.fleet.waiver_text import render_rows, with_waivers

EXAMPLES = """\
  unhang waive acs-on-bare-metal --until 2026-12-31 --reason 'virtual machines until the move'   on every node that has it
  unhang waive pcie-width-below-max --host 'gpu[003-004]' --until 2026-12-31 --reason 'risers ordered' --print   only shows it"""  # noqa: E501
PASTE = "paste this under waivers of its unhang_policy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The finding, and the waiver's content."""
    parser.add_argument("rule", metavar="RULE", help="id of the rule whose finding is accepted")
    add_repeatable(
        parser,
        "-l --host",
        "HOSTS",
        "names and node sets (gpu[001-004]); repeatable (default: all that have it)",
    )
    parser.add_argument(
        "--until", metavar="DATE", required=True, help="last day of the waiver, as 2026-12-31"
    )
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why it is accepted")
    add_value(parser, "--by", "NAME", "who accepts it (default: your user name)", default=None)
    add_value(
        parser,
        "--run",
        "RUN",
        "the run that has the finding: its folder or id (default: %(default)s)",
        default=run_folder.latest_run(),
    )
    add_value(
        parser,
        "--file",
        "FILE",
        "the file with unhang_policy (default: the one that gave the run its policy)",
    )
    parser.add_argument(
        "--print",
        dest="only_print",
        action="store_true",
        help="print the waiver, and write nothing",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0; prints what was changed. Raises UserError, OSError; then no file was changed."""
    folder = run_folder.find_run(arguments.run)
    hosts = [host for named in arguments.host for host in expand_limit(named)] or None
    wish = Wish(
        arguments.rule, hosts, day_of(arguments.until, "--until"), arguments.reason,
        getpass.getuser() if arguments.by is None else arguments.by,
    )  # fmt: skip
    rows = waiver_rows(read_findings(folder), wish, today_or(None))
    if arguments.only_print:
        print(visible_lines(render_rows(rows, 0)), end="")
        return 0
    try:
        changed = _write(_policy_file(arguments.file, folder), rows)
    except UserError as problem:
        raise UserError(
            f"{problem}; no file was changed; {PASTE}:\n{render_rows(rows, 4)}"
        ) from None
    print(visible_lines(changed), end="")
    return 0


def _policy_file(named: str | None, folder: Path) -> Path:
    """The named file, or the only one in the inventory that gave a run of this user its policy: the
    mark of an own run vouches for its inventory, and for no other file."""
    if named:
        return Path(named)
    if not is_own(folder):
        raise UserError("--file is needed, because this run was not made here with unhang audit")
    known = run_folder.read_run(folder).document.get("policy_sources") or []
    if len(known) != 1:
        shown = ", ".join(visible(one, 200) for one in known) or "no file"
        raise UserError(f"the run has its policy from {shown}, not from one file; name --file")
    path = Path(str(known[0])).resolve()
    homes = [Path(one).resolve() for one in own_inventories(folder)]
    if not any(path.is_relative_to(one if one.is_dir() else one.parent) for one in homes):
        raise UserError(f"{path} is not a policy in the run's inventory; name --file")
    return path


def _write(path: Path, rows: list[dict[str, object]]) -> str:
    """Writes the rows into the file; the difference as text. A link is followed, and the mode is
    kept."""
    path = path.resolve()
    try:
        before = read_bounded(path, MAX_BYTES).decode()
    except (OSError, NotStrict, UnicodeDecodeError) as problem:
        raise UserError(f"the policy {path} cannot be read: {problem}") from None
    after = with_waivers(before, rows, str(path))
    if after == before:
        return f"{path}: has this waiver already; nothing was changed\n"
    run_folder.write_atomically(path, after, path.stat().st_mode & 0o7777)
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    shown = "".join(difflib.unified_diff(*lines, str(path), str(path)))
    return f"{shown}next: unhang audit, which reads the new policy\n"


def visible_lines(text: str) -> str:
    """The text, each of its lines fit for a terminal."""
    return "".join(f"{visible(line)}\n" for line in text.splitlines())
