"""Code that commands share which start a playbook: inventories, limits, the environment, and the reason when there is no run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from unhang import project
from unhang.ansible import run_files
from unhang.ansible.play_process import Played, play
from unhang.errors import UserError
from unhang.given_files import checked_inventory, irregular
from unhang.nodeset import expand_limit
from unhang.run_folder import RUNS_ENV
from unhang.text import counted, visible

LONGEST_LIMIT_CHARS = 32_000  # one argument may be 128 KiB; far longer lists go through a file
GO_ON = "judge what it has seen with"  # as the run callback says it
INVENTORY_FAULT = re.compile(r"YAML parsing failed: (?P<what>.*)\nOrigin: (?P<where>\S+)")
REASON = re.compile(r"^(?:\[ERROR\]: |ERROR! |unhang: |ansible-playbook: error: )(.*)", re.MULTILINE)


def inventories_of(given: Sequence[str] | None, home: Path) -> list[str]:
    """Inventories by absolute path, or as lists of hosts; this machine when none is given. Raises UserError for one that is not there."""
    return [checked_inventory(inventory) for inventory in given or [str(home / "inventory" / "local")]]


@contextlib.contextmanager
def limit_arguments(limit: str | None) -> Iterator[list[str]]:
    """ansible-playbook's arguments for a limit; a long list lies in a file while this lasts."""
    if not limit:
        yield []
        return
    if limit.startswith("@"):
        if kind := irregular(Path(limit[1:])):
            raise UserError(f"--limit: expected a file of hosts at {limit[1:]}, found {kind}")
        yield ["--limit", limit]
        return
    patterns = expand_limit(limit)
    joined = ",".join(patterns)
    if len(joined) <= LONGEST_LIMIT_CHARS:
        yield [f"--limit={joined}"]  # a host may begin with a dash
        return
    with tempfile.NamedTemporaryFile("w", prefix="unhang-limit-", encoding="utf-8") as listing:
        listing.write("\n".join(patterns) + "\n")
        listing.flush()
        yield ["--limit", "@" + listing.name]


def ask_the_rest(played: Played, command: Sequence[str], home: Path, folder: Path, more: Mapping[str, str] | None = None) -> Played:
    """Ansible ends a play of which a worker was killed: that node has failed, and another play goes on with those not read. more: as for play_into."""
    known = 0
    while not played.stopped and played.code >= 0 and (folder / "run.json").is_file():
        killed = run_files.killed_hosts(folder)
        if len(killed) == known:
            break
        known, unread = len(killed), run_files.take_unread(folder)
        read = f"a process of Ansible was killed while it read {visible(killed[-1], 80)}; {counted(len(unread), 'node')} left to read"
        sys.stderr.write(f"unhang: {read}\n")
        sys.stderr.flush()
        if not unread:
            run_files.finish_run(folder)
            return Played("", 0)
        with tempfile.NamedTemporaryFile("w", prefix="unhang-limit-", encoding="utf-8") as listing:
            listing.write(f"~^(?:{'|'.join(map(re.escape, unread))})$\n")
            listing.flush()
            played = play_into([*command, "--limit", "@" + listing.name], home, folder, more={run_files.GO_ON_ENV: "1", **(more or {})})
    return played


def play_into(command: Sequence[str], home: Path, folder: Path, on_line: Callable[[str], None] | None = None, more: Mapping[str, str] | None = None) -> Played:
    """Runs a playbook that audits into this run folder; settings of the caller under which an audit stops half-way are left out, and named.

    on_line: called for each line of Ansible's output as it comes. more: for its environment.
    """
    shown = sys.stdout.isatty() and sys.stderr.isatty()
    if left_out := project.settings_left_out(os.environ):
        sys.stderr.write(f"unhang: not taken over, since an audit could not be relied on under them: {', '.join(left_out)}\n")
        sys.stderr.flush()
    environment = project.ansible_environment(home, os.environ)
    environment |= {run_files.NEW_RUN_ENV: str(folder), "UNHANG_JUDGE": "0", "UNHANG_PROGRESS": str(int(shown)), **(more or {})}
    environment |= {} if RUNS_ENV in (more or {}) else {RUNS_ENV: str(folder.parent.absolute())}  # what a play writes besides lies with its run
    environment |= {"ANSIBLE_LOCALHOST_WARNING": "False", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False"}
    return play(command, environment, shown, on_line)


def as_typed(folder: Path) -> str:
    """The run as a person would type it: from the current folder where it lies below it."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def ended_early(played: Played, folder: Path) -> str:
    """What happened, and how to continue with the nodes that were read."""
    what = "stopped by hand" if played.stopped else f"ansible-playbook was ended by {signal.Signals(-played.code).name}"
    if not (folder / "run.json").is_file():
        return f"{what}, before a node was asked"
    if GO_ON in played.output:
        return what
    run_files.close_for_another(folder)
    return f"{what}; {GO_ON}: {project.program_as_typed()} judge {as_typed(folder)}"


def why_no_run(held: str, inventories: Sequence[str] | None, limit: str | None) -> str:
    """Why there is no run, in one line. inventories, limit: as they were given. held: Ansible's output."""
    reasons = [found.strip() for found in REASON.findall(held)]
    if any("no hosts to target" in reason or "found none; check the inventory" in reason for reason in reasons):
        where = ", ".join(inventories or ["inventory/local"])
        if fault := INVENTORY_FAULT.search(held):
            return f"expected an inventory in {where}, found YAML that cannot be read at {fault['where']}: {fault['what'][:300]}"
        among = f" that --limit {limit} matches" if limit else ""
        return f"expected hosts in {where}{among}, found none; list them with: ansible-inventory -i {where} --graph"
    return reasons[-1] if reasons else f"ansible-playbook wrote no run and said: {' '.join(held.split())[-300:] or 'nothing'}"
