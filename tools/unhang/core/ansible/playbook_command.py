"""Code of all commands that start a playbook: inventories, limits, the environment, and the reason
if there is no run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from unhang.core import project
from unhang.core.ansible import ansible_env, run_files
from unhang.core.ansible.play_process import Played, play
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit
from unhang.core.path_arguments import checked_inventory, irregular
from unhang.core.run.run_folder import RUNS_ENV, as_typed
from unhang.core.text import counted, visible

# the limit of one argument is 128 KiB; longer lists are passed in a file
LONGEST_LIMIT_CHARS = 32_000
GO_ON = "judge the nodes that were read with"  # the text of the callback unhang_run
INVENTORY_FAULT = re.compile(r"YAML parsing failed: (?P<what>.*)\nOrigin: (?P<where>\S+)")
INVENTORY_NOT_READ = re.compile(
    r"Failed to parse inventory with '(?P<plugin>\w+)' plugin: (?P<what>.*)"
)
# under ANSIBLE_HOST_PATTERN_MISMATCH=error
UNMATCHED = re.compile(
    r"^\[ERROR\]: Could not match supplied host pattern, ignoring: (.*)", re.MULTILINE
)
REASON = re.compile(
    r"^(?:\[ERROR\]: |ERROR! |unhang: |ansible-playbook: error: )(.*)", re.MULTILINE
)


def inventories_of(given: Sequence[str] | None, home: Path) -> list[str]:
    """Inventories by absolute path, or as lists of hosts; this machine if none is given. Raises
    UserError for a missing one."""
    return [
        checked_inventory(inventory) for inventory in given or [str(home / "inventory" / "local")]
    ]


@contextlib.contextmanager
def limit_arguments(limit: str | None) -> Iterator[list[str]]:
    """ansible-playbook's arguments for a limit; a long list is in a temporary file meanwhile."""
    if not limit:
        yield []
        return
    if limit.startswith("@"):
        if kind := irregular(Path(limit[1:])):
            raise UserError(f"--host names {limit[1:]}, which is {kind}, not a file of hosts")
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


def ask_the_rest(
    played: Played,
    command: Sequence[str],
    home: Path,
    folder: Path,
    more: Mapping[str, str] | None = None,
) -> Played:
    """Ansible ends a play if a worker was killed: that node has failed, and another play reads the
    remaining ones. more: as for play_into."""
    known = 0
    while not played.stopped and played.code >= 0 and (folder / "run.json").is_file():
        killed = run_files.killed_hosts(folder)
        if len(killed) == known:
            break
        known, unread = len(killed), run_files.take_unread(folder)
        read = (
            f"a process of Ansible was killed while it read {visible(killed[-1], 80)};"
            f" {counted(len(unread), 'node')} left to read"
        )
        sys.stderr.write(f"unhang: {read}\n")
        sys.stderr.flush()
        if not unread:
            run_files.finish_run(folder)
            return Played("", 0)
        with tempfile.NamedTemporaryFile("w", prefix="unhang-limit-", encoding="utf-8") as listing:
            listing.write(f"~^(?:{'|'.join(map(re.escape, unread))})$\n")
            listing.flush()
            played = play_into(
                [*command, "--limit", "@" + listing.name],
                home,
                folder,
                more={run_files.GO_ON_ENV: "1", **(more or {})},
            )
    return played


def play_into(
    command: Sequence[str],
    home: Path,
    folder: Path,
    on_line: Callable[[str], None] | None = None,
    more: Mapping[str, str] | None = None,
) -> Played:
    """Runs a playbook that audits into this run folder; settings of the caller under which an audit
    stops half-way are left out, and listed.

    on_line: called for each line of Ansible's output as it comes. more: for its environment.
    """
    if left_out := ansible_env.settings_left_out(os.environ):
        sys.stderr.write(
            "unhang: not taken over, since an audit could not be relied on under them:"
            f" {', '.join(left_out)}\n"
        )
        sys.stderr.flush()
    environment = ansible_env.ansible_environment(home, os.environ)
    environment |= {
        run_files.NEW_RUN_ENV: str(folder),
        "UNHANG_JUDGE": "0",
        **(more or {}),
    }
    # other files that a play writes are with its run
    environment |= {} if RUNS_ENV in (more or {}) else {RUNS_ENV: str(folder.parent.absolute())}
    environment |= {
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
    }
    return play(command, environment, on_line)


def ended_early(played: Played, folder: Path) -> str:
    """The reason of the end, and how to continue with the nodes that were read."""
    what = (
        "it was stopped by hand"
        if played.stopped
        else f"ansible-playbook was ended by {signal.Signals(-played.code).name}"
    )
    if not (folder / "run.json").is_file():
        return f"{what}, before a node was asked"
    if GO_ON in played.output:
        return what
    run_files.close_for_another(folder)
    return f"{what}; {GO_ON}: {project.program_as_typed()} judge {as_typed(folder)}"


def why_no_run(held: str, inventories: Sequence[str] | None, limit: str | None) -> str:
    """Why there is no run, in one line. inventories, limit: as they were given. held: Ansible's
    output."""
    reasons = [found.strip() for found in REASON.findall(held)]
    listing = f"{project.program_as_typed(name='ansible-inventory')} -i {{}} --graph"
    where = ", ".join(inventories or ["inventory/local"])
    if unmatched := UNMATCHED.search(held):
        return (
            f"{where} has hosts, but none that {unmatched[1].strip()[:200]} names; list them with:"
            f" {listing.format(where)}"
        )
    if any(re.search("no hosts to (?:target|audit)", reason) for reason in reasons):
        if fault := INVENTORY_FAULT.search(held):
            return (
                f"the inventory {where} is YAML that cannot be read at {fault['where']}:"
                f" {fault['what'][:300]}"
            )
        if unread := INVENTORY_NOT_READ.search(held):
            what = unread["what"].removeprefix("Failed to parse inventory: ")[:300]
            found = f"Ansible's {unread['plugin']} reader refuses it: {what}"
            return f"the inventory {where} cannot be read: {found}; see: {listing.format(where)}"
        if limit and not inventories:
            again = f"{project.program_as_typed()} audit -i INVENTORY --host {shlex.quote(limit)}"
            return (
                f"--inventory is missing, and without it this machine alone is read, not {limit};"
                f" next: {again}"
            )
        among = f" that --host {limit} matches" if limit else ""
        return f"{where} has no hosts{among}; list them with: {listing.format(where)}"
    return (
        reasons[-1]
        if reasons
        else (
            "ansible-playbook wrote no run and printed:"
            f" {' '.join(held.split())[-300:] or 'nothing'}"
        )
    )
