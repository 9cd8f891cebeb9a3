"""The ways in which `unhang audit` reads nodes, and going on with a run that is not complete."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from unhang.ansible import run_files
from unhang.ansible.old_python import read_collector
from unhang.ansible.play_process import Played
from unhang.ansible.playbook_command import as_typed, ask_the_rest, ended_early, inventories_of, limit_arguments, play_into, why_no_run
from unhang.audit.collect.arrivals import Arrived, write_arrivals
from unhang.audit.collect.files import arrivals_of, check_source
from unhang.audit.collect.opening import PLAYBOOK, InventoryHost, close_run, drop_run, open_run
from unhang.audit.collect.ssh_reach import given_options, refusals
from unhang.base import project
from unhang.base.errors import UserError
from unhang.base.nodeset import fold_hosts, shortened
from unhang.base.text import counted
from unhang.run import run_folder

WAYS = ("ansible", "clush", "auto", "files")
MANY = 64  # hosts, from which on `auto` takes clush
SHOWN_LINES = 10
NO_DOCUMENT = "no document of this node came"


def read_nodes(arguments: argparse.Namespace, more: Mapping[str, str]) -> tuple[Path, bool]:
    """The run folder, and whether all that came could be read. more: for Ansible's environment. Raises UserError if there is no run."""
    home = project.find_project()
    if arguments.via == "files":
        return _read_files(arguments, home, more)
    if arguments.via == "ansible":
        return _read_by_ansible(arguments, home, more), True
    return _read_by_ssh(arguments, home, more), True


def _read_by_ssh(arguments: argparse.Namespace, home: Path, more: Mapping[str, str]) -> Path:
    """By ClusterShell; `auto` goes on with Ansible where ssh alone does not reach all hosts, or where they are few."""
    from unhang.audit.collect.clush import FANOUT, read_by_ssh  # ClusterShell's tasks take 0.1 s to import

    folder = _folder(arguments, home)
    hosts = _opened(arguments, home, folder, arguments.ansible, more)
    given = given_options(run_folder.read_run(folder).document.get("options") or [])
    refused = refusals(hosts, given, arguments.ansible)
    if refused and arguments.via == "clush":
        _give_up(arguments, folder, hosts)
        raise UserError(f"--via clush: expected hosts that ssh reaches alone, found {'; '.join(refused[:3])}; use --via ansible")
    if arguments.via == "auto" and (refused or len(hosts) <= MANY):
        why = refused[0] if refused else f"{counted(len(hosts), 'host')}, {MANY} or fewer"
        sys.stderr.write(f"unhang: read by --via ansible: {why}\n")
        arguments.go_on = str(folder)
        return _read_by_ansible(arguments, home, more)
    why = f"plain ssh, more than {MANY} hosts" if arguments.via == "auto" else "as asked"
    sys.stderr.write(f"unhang: read by --via clush: {why}; {counted(len(hosts), 'host')}, {arguments.forks or FANOUT} at a time\n")
    sys.stderr.flush()
    try:
        read_by_ssh(folder, hosts, given, read_collector(home), arguments.forks or FANOUT)
    except KeyboardInterrupt:
        raise UserError(stopped(folder)) from None
    except UserError:  # a value of the inventory that is none
        _give_up(arguments, folder, hosts)
        raise
    close_run(folder, hosts, run_files.NOT_ANSWERED)
    return folder


def _give_up(arguments: argparse.Namespace, folder: Path, hosts: Sequence[InventoryHost]) -> None:
    """Leaves no run of which no node was asked, and an earlier one as it was."""
    if arguments.go_on:
        close_run(folder, hosts, run_files.NOT_ASKED)
    else:
        drop_run(folder)


def _read_by_ansible(arguments: argparse.Namespace, home: Path, more: Mapping[str, str]) -> Path:
    project.link_pynvml(home)
    folder, more = _folder(arguments, home), {**more, **_going_on(arguments)}
    if sys.stderr.isatty():  # Ansible needs seconds before the first node is counted
        sys.stderr.write("unhang: Ansible reads the inventory and starts; the nodes that answer are counted here\n")
    with _command(arguments, home, "audit.yml", arguments.ansible) as command:
        played = ask_the_rest(play_into(command, home, folder, more=more), command, home, folder, more)
    _check_played(played, folder, arguments)
    return folder


def _read_files(arguments: argparse.Namespace, home: Path, more: Mapping[str, str]) -> tuple[Path, bool]:
    if not arguments.ansible:
        raise UserError("--via files: expected a folder, a tar, files or - for standard input, found none")
    for source in arguments.ansible:
        check_source(source)
    folder, now = _folder(arguments, home), run_files.utc_now()
    arrivals = ((now, arrival) for source in arguments.ansible for arrival in arrivals_of(source))
    if arguments.inventory or arguments.go_on:
        hosts = _opened(arguments, home, folder, [], more)
        try:
            arrived = write_arrivals(folder, {host.name: host.meant for host in hosts}, arrivals)
        except KeyboardInterrupt:
            raise UserError(stopped(folder)) from None
        close_run(folder, hosts, NO_DOCUMENT)
    else:
        run_folder.make_folder(folder)
        arrived = write_arrivals(folder, None, arrivals)
        write_run(folder, arrived, {"started": now, "inventory": None, "limit": None})
    say_arrived(arrived)
    return folder, not arrived.faults


def write_run(folder: Path, arrived: Arrived, head: Mapping[str, object]) -> None:
    """run.json of a run whose hosts are those that came. Raises UserError if none did."""
    if not arrived.hosts:
        (folder / "nodes").rmdir()
        folder.rmdir()
        raise UserError((arrived.faults or ["expected documents of nodes, found none"])[0])
    document = {"schema": "unhang/run/1", "id": folder.name, "finished": run_files.utc_now(), "hosts": list(arrived.hosts), **head}
    run_folder.write_document(folder / "run.json", document)
    run_files.point_latest(folder)


def say_arrived(arrived: Arrived) -> None:
    """Names what contradicted itself, what belongs to nobody and what could not be read."""
    lines = [*arrived.faults, *arrived.lines]
    for line in lines[:SHOWN_LINES]:
        sys.stderr.write(f"unhang: {line}\n")
    if len(lines) > SHOWN_LINES:
        sys.stderr.write(f"unhang: {len(lines) - SHOWN_LINES} more such lines are not shown\n")
    if arrived.twice:
        sys.stderr.write(f"unhang: {counted(len(arrived.twice), 'node')} came more than once, the newest counts: {shortened(fold_hosts(arrived.twice), 120)}\n")


def _opened(arguments: argparse.Namespace, home: Path, folder: Path, more_arguments: Sequence[str], more: Mapping[str, str]) -> list[InventoryHost]:
    """The hosts of the inventory that are to be read, in a run that was opened for them. Raises UserError if there is no run."""
    with _command(arguments, home, PLAYBOOK, more_arguments) as command:
        played, hosts = open_run(command, home, folder, {**more, **_going_on(arguments)})
    _check_played(played, folder, arguments)
    if not hosts:
        raise UserError(why_no_run(played.output, arguments.inventory, arguments.limit))
    return hosts


def stopped(folder: Path) -> str:
    """What to say when a person stopped the reading; nothing that had arrived is lost."""
    run_files.close_for_another(folder)
    unhang, run = project.program_as_typed(), as_typed(folder)
    return f"stopped by hand; read the other nodes with: {unhang} audit --continue {run}; judge those that were read with: {unhang} judge {run}"


@contextmanager
def _command(arguments: argparse.Namespace, home: Path, playbook: str, more: Sequence[str]) -> Iterator[list[str]]:
    """ansible-playbook's command line. A run that is gone on with has its own inventory and options, unless others are given."""
    inventories, limit, options = arguments.inventory, arguments.limit, list(more)
    with ExitStack() as stack:
        command = [project.ansible_program("ansible-playbook"), str(home / "playbooks" / playbook)]
        if arguments.go_on:
            run = run_folder.read_run(_folder(arguments, home))
            inventories = inventories or run.document.get("inventory")
            if not inventories:
                raise UserError(f"--continue: expected a run of an inventory, found one of documents alone at {as_typed(run.folder)}; give --inventory")
            options = [*(run.document.get("options") or []), *options]
            listing = stack.enter_context(tempfile.NamedTemporaryFile("w", prefix="unhang-limit-", encoding="utf-8"))
            listing.write(f"~^(?:{'|'.join(map(re.escape, unread_hosts(run)))})$\n")
            listing.flush()
            words = ["--limit", "@" + listing.name]
        else:
            words = stack.enter_context(limit_arguments(limit))
        command += [word for inventory in inventories_of(inventories, home) for word in ("-i", inventory)] + words
        command += ["--forks", str(arguments.forks)] if arguments.forks else []
        yield command + options


def unread_hosts(run: run_folder.Run) -> list[str]:
    """Hosts of a run without an answer that can be judged. Raises UserError if there is none."""
    statuses = {}
    for path in run_folder.node_files(run.folder):
        node = run_folder.read_node(path)
        statuses[node.get("host")] = node.get("status")
    unread = [host for host in run.hosts if statuses.get(host) not in ("ok", "python_too_old")]
    if not unread:
        raise UserError(f"--continue: expected nodes that were not read in {as_typed(run.folder)}, found none; every node has its answer")
    return unread


def _folder(arguments: argparse.Namespace, home: Path) -> Path:
    """The run to go on with, or the path of a new one."""
    if arguments.go_on:
        return run_folder.find_run(arguments.go_on)
    if "folder" not in arguments:
        runs = Path(arguments.out) if arguments.out else run_folder.runs_folder(project.checkout_of(home))
        arguments.folder = runs.absolute() / run_folder.new_run_id()
    return Path(arguments.folder)


def _going_on(arguments: argparse.Namespace) -> dict[str, str]:
    return {run_files.GO_ON_ENV: "1"} if arguments.go_on else {}


def _check_played(played: Played, folder: Path, arguments: argparse.Namespace) -> None:
    """Prints what Ansible printed. Raises UserError if there is no run, or if it was ended early."""
    if played.stopped or played.code < 0:
        sys.stderr.write(played.output if (folder / "run.json").is_file() else "")
        raise UserError(ended_early(played, folder))
    if not (folder / "run.json").is_file():
        raise UserError(why_no_run(played.output, arguments.inventory, arguments.limit))
    sys.stderr.write(played.output)
