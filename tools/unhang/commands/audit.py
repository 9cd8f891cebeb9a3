"""`unhang audit`: runs playbooks/audit.yml over an inventory and judges the run."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from unhang import project, run_folder
from unhang.ansible.play_process import Played, play
from unhang.commands import judge
from unhang.commands.fail_on import add_fail_on
from unhang.errors import UserError
from unhang.nodeset import expand_limit

LONGEST_LIMIT_CHARS = 32_000  # one argument may be 128 KiB; far longer lists go through a file
GO_ON = "judge what it has seen with"  # as the run callback says it
INVENTORY_FAULT = re.compile(r"YAML parsing failed: (?P<what>.*)\nOrigin: (?P<where>\S+)")
REASON = re.compile(r"^(?:\[ERROR\]: |ERROR! |unhang: |ansible-playbook: error: )(.*)", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the audit, and of the judge that follows it."""
    parser.add_argument("-i", "--inventory", action="append", metavar="PATH", help="inventory file or folder, or host1,host2, (default: this machine)")
    parser.add_argument("-l", "--limit", metavar="HOSTS", help="only these: node sets (gpu[001-016]), groups, Ansible patterns")
    parser.add_argument("-f", "--forks", type=int, metavar="N", help="nodes read at a time")
    parser.add_argument("--out", metavar="DIR", help="folder of the run folders (default: $UNHANG_RUNS, or runs/ of the checkout)")
    parser.add_argument("--policy", metavar="FILE", help="judge by this policy instead of the inventory's unhang_policy")
    parser.add_argument("--rules", action="append", metavar="DIR", help="a folder of further rules")
    parser.add_argument("--format", metavar="FORMAT", help="what to print: table (default), json, html")
    add_fail_on(parser)
    parser.add_argument("ansible", nargs="*", metavar="-- ARGUMENT", help="the rest goes to ansible-playbook, such as -- -e unhang_node_timeout_s=60 --become")


def run(arguments: argparse.Namespace) -> int:
    """0 nothing found, 1 findings, 2 could not look."""
    home = project.find_project()
    project.link_pynvml(home)
    runs = (Path(arguments.out) if arguments.out else run_folder.runs_folder(home)).absolute()
    folder = runs / run_folder.new_run_id()
    inventories = [_existing(inventory) for inventory in arguments.inventory or [str(home / "inventory" / "local")]]
    with _limit_arguments(arguments.limit) as limit:
        command = [project.ansible_program("ansible-playbook"), str(home / "playbooks" / "audit.yml")]
        command += [word for inventory in inventories for word in ("-i", inventory)] + limit
        command += ["--forks", str(arguments.forks)] if arguments.forks else []
        played = _play([*command, *arguments.ansible], home, folder)
    if played.stopped or played.code < 0:
        sys.stderr.write(played.output if (folder / "run.json").is_file() else "")
        raise UserError(_ended_early(played, folder))
    if not (folder / "run.json").is_file():
        raise UserError(_reason(played.output, arguments))
    sys.stderr.write(played.output)
    if run_folder.read_run(folder).document.get("finished") is None:
        return 2  # the run callback has said why, and how to judge what was seen
    return judge.run(_judge_arguments(_short(folder), arguments))


def _short(folder: Path) -> str:
    """The run as a person would type it: from the current folder where it lies below it."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _existing(inventory: str) -> str:
    if "," not in inventory and not Path(inventory).exists():
        raise UserError(f"expected an inventory at {inventory}, found none; inventory/example shows how one looks")
    return inventory if "," in inventory else str(Path(inventory).absolute())


@contextlib.contextmanager
def _limit_arguments(limit: str | None) -> Iterator[list[str]]:
    """ansible-playbook's arguments for a limit; a long list lies in a file while this lasts."""
    if not limit:
        yield []
        return
    if limit.startswith("@"):
        yield ["--limit", limit]
        return
    patterns = expand_limit(limit)
    joined = ",".join(patterns)
    if len(joined) <= LONGEST_LIMIT_CHARS:
        yield ["--limit", joined]
        return
    with tempfile.NamedTemporaryFile("w", prefix="unhang-limit-", encoding="utf-8") as listing:
        listing.write("\n".join(patterns) + "\n")
        listing.flush()
        yield ["--limit", "@" + listing.name]


def _play(command: Sequence[str], home: Path, folder: Path) -> Played:
    """Runs the playbook; settings of the caller under which an audit stops half-way are left out, and named."""
    shown = sys.stdout.isatty() and sys.stderr.isatty()
    if left_out := project.settings_left_out(os.environ):
        print(f"unhang: not taken over, since an audit could not be relied on under them: {', '.join(left_out)}", file=sys.stderr, flush=True)
    environment = project.ansible_environment(home, os.environ)
    environment |= {"UNHANG_NEW_RUN": str(folder), "UNHANG_JUDGE": "0", "UNHANG_PROGRESS": str(int(shown))}
    environment |= {"ANSIBLE_LOCALHOST_WARNING": "False", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False"}
    return play(command, environment, shown)


def _ended_early(played: Played, folder: Path) -> str:
    """What happened, and how to go on with what was seen."""
    what = "stopped by hand" if played.stopped else f"ansible-playbook was ended by {signal.Signals(-played.code).name}"
    if not (folder / "run.json").is_file():
        return f"{what}, before a node was asked"
    if GO_ON in played.output:
        return what
    return f"{what}; {GO_ON}: {project.program_as_typed()} judge {_short(folder)}"


def _reason(held: str, arguments: argparse.Namespace) -> str:
    """Why no run came out, in one line."""
    reasons = [found.strip() for found in REASON.findall(held)]
    if any("no hosts to target" in reason or "found none; check the inventory" in reason for reason in reasons):
        where = ", ".join(arguments.inventory or ["inventory/local"])
        if fault := INVENTORY_FAULT.search(held):
            return f"expected an inventory in {where}, found YAML that cannot be read at {fault['where']}: {fault['what'][:300]}"
        among = f" that --limit {arguments.limit} matches" if arguments.limit else ""
        return f"expected hosts in {where}{among}, found none; list them with: ansible-inventory -i {where} --graph"
    return reasons[-1] if reasons else f"ansible-playbook wrote no run and said: {' '.join(held.split())[-300:] or 'nothing'}"


def _judge_arguments(run: str, arguments: argparse.Namespace) -> argparse.Namespace:
    """What `unhang judge` is given for this run."""
    parser = argparse.ArgumentParser(prog="unhang judge")
    judge.add_arguments(parser)
    given = [("--policy", arguments.policy), ("--format", arguments.format), ("--fail-on", arguments.fail_on)]
    given += [("--rules", folder) for folder in arguments.rules or []]
    return parser.parse_args([run, *(word for option, value in given if value for word in (option, str(value)))])
