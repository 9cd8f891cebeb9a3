"""The ways in which `unhang audit` reads nodes, and going on with a run that is not complete."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from unhang.audit.commands.arrived_lines import say_arrived
from unhang.audit.ways.arrivals import Arrived, write_arrivals
from unhang.audit.ways.documents import Arrival
from unhang.audit.ways.files import arrivals_of, check_source, limits
from unhang.audit.ways.opening import PLAYBOOK, InventoryHost, close_run, drop_run, open_run
from unhang.audit.ways.run_deadline import close_at_deadline, play_stopped_at, report_cut
from unhang.audit.ways.ssh_reach import given_options, reach_of, refusals
from unhang.core import project
from unhang.core.ansible import ansible_env, packed_pynvml, run_files
from unhang.core.ansible.old_python import read_collector
from unhang.core.ansible.play_process import Played
from unhang.core.ansible.playbook_command import (
    GO_ON,
    as_typed,
    ask_the_rest,
    ended_early,
    inventories_of,
    limit_arguments,
    play_into,
    why_no_run,
)
from unhang.core.commands.counted_nodes import counting
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run import run_folder
from unhang.core.run.documents import READ
from unhang.core.run.own_runs import is_own, mark_as_own, own_inventories, own_options
from unhang.core.run.run_input import read_run_input
from unhang.core.text import counted

WAYS = ("auto", "ansible", "clush", "slurm", "files")
MANY = 64  # hosts, above which `auto` takes clush
FEW_ENV, FOUND_MANY = "UNHANG_FEW", '"msg": "unhang-many-hosts '  # of playbooks/audit_few.yml
COUNTING = re.compile(r"PLAY \[Leave many hosts|$")
LONGEST_NODES = 120
NO_DOCUMENT = "no document of this node came"


def read_nodes(arguments: argparse.Namespace) -> tuple[Path, bool]:
    """The run folder, and whether all that came could be read. Raises UserError if there is no
    run."""
    home = project.find_project()
    if arguments.via == "files":
        return _read_files(arguments, home)
    if arguments.via == "slurm":
        return _read_by_srun(arguments, home), True
    # this machine
    if arguments.via == "ansible" or (
        arguments.via == "auto" and not arguments.inventory and not arguments.go_on
    ):
        return _read_by_ansible(arguments, home), True
    return (
        _read_few_by_ansible(arguments, home) if arguments.via == "auto" else None
    ) or _read_by_ssh(arguments, home), True


def _read_few_by_ansible(arguments: argparse.Namespace, home: Path) -> Path | None:
    """Ansible counts the hosts when it starts, and reads them if they are few: a small audit pays
    nothing for the choice. None if they are many."""
    try:
        folder = _read_by_ansible(
            arguments,
            home,
            {FEW_ENV: str(MANY), "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false"},
            "audit_few.yml",
        )
    except _ManyHosts:
        return None
    hosts = counted(len(run_folder.read_run(folder).hosts), "host")
    sys.stderr.write(f"unhang: read by --via ansible: {hosts}, {MANY} or fewer\n")
    return folder


class _ManyHosts(Exception):
    """Ansible has asked none of them."""


def _read_by_ssh(arguments: argparse.Namespace, home: Path) -> Path:
    """By ClusterShell; `auto` goes on with Ansible where ssh alone does not reach all hosts."""
    # ClusterShell's tasks take 0.1 s to import
    from unhang.audit.ways.clush import FANOUT, Asked, read_by_ssh
    from unhang.audit.ways.gateways import routes_of, topology_file

    folder = folder_of(arguments)
    hosts = opened(arguments, home, folder, arguments.ansible)
    given = given_options(options_of(arguments, folder))
    refused = refusals(hosts, given, arguments.ansible)
    if refused and arguments.via == "clush":
        give_up(arguments, folder, hosts)
        raise UserError(
            f"--via clush: expected hosts that ssh reaches alone, found {'; '.join(refused[:3])};"
            " use --via ansible"
        )
    if refused:
        sys.stderr.write(f"unhang: read by --via ansible: {refused[0]}\n")
        arguments.go_on = str(folder)
        return _read_by_ansible(arguments, home)
    why = f"plain ssh, more than {MANY} hosts" if arguments.via == "auto" else "as asked"
    fanout, place = arguments.forks or FANOUT, topology_file()
    with _asking(arguments, folder, hosts):
        routes = routes_of(place, [host.name for host in hosts]) if place else {}
        through = f", {len(routes)} of them through gateways of {place}" if routes else ""
        sys.stderr.write(
            f"unhang: read by --via clush: {why}; {counted(len(hosts), 'host')}, {fanout} at a"
            f" time{through}\n"
        )
        sys.stderr.flush()
        asked = Asked(hosts, given, routes, fanout, arguments.deadline)
        cut = read_by_ssh(folder, asked, read_collector(home))
    report_cut(folder, cut, arguments.deadline)
    return folder


def _read_by_srun(arguments: argparse.Namespace, home: Path) -> Path:
    """The nodes of a job or the idle ones, by Slurm's own list where there is no inventory."""
    from unhang.audit.ways.slurm import read_by_srun
    from unhang.audit.ways.slurm_nodes import nodes_of

    partitions = arguments.slurm_partition
    job = arguments.slurm_job or ("" if partitions else os.environ.get("SLURM_JOB_ID", ""))
    if not arguments.go_on:
        arguments.inventory = arguments.inventory or [str(home / "inventory" / "slurm")]
        if (job or partitions) and not arguments.limit:
            arguments.limit = ",".join(nodes_of(job, partitions))
    folder = folder_of(arguments)
    hosts = opened(arguments, home, folder, arguments.ansible)
    given = given_options(options_of(arguments, folder))
    with _asking(arguments, folder, hosts):
        becoming = [host for host in hosts if reach_of(host, given).become]
        if refused := refusals(becoming, given, arguments.ansible):
            raise UserError(
                "--via slurm: expected `sudo -n` as the way to root, found"
                f" {'; '.join(refused[:3])}; use --via ansible"
            )
        where = f"job {job}" if job else "a job on idle nodes"
        sys.stderr.write(f"unhang: read by srun in {where}: {counted(len(hosts), 'host')}\n")
        arrived, unread = read_by_srun(
            folder, hosts, given, read_collector(home), arguments.deadline, job, partitions
        )
    say_arrived(arrived)
    for reason in dict.fromkeys(unread.values()):
        names = fold_hosts([name for name, why in unread.items() if why == reason])
        sys.stderr.write(f"unhang: {shortened(names, LONGEST_NODES)} not read: {reason}\n")
    return folder


@contextmanager
def _asking(
    arguments: argparse.Namespace, folder: Path, hosts: Sequence[InventoryHost]
) -> Iterator[None]:
    """While nodes are read; closes the run at the end."""
    try:
        with counting(folder):
            yield
    except KeyboardInterrupt:
        raise UserError(stopped(folder)) from None
    except UserError:  # a value of the inventory that is none
        give_up(arguments, folder, hosts)
        raise
    close_run(folder, hosts, run_files.NOT_ANSWERED)


def options_of(arguments: argparse.Namespace, folder: Path) -> list[str]:
    """Of ansible-playbook: those that this command's run was made with; of a run that it goes on
    with and that was not made here, those that were typed."""
    if not arguments.go_on:
        return [str(one) for one in run_folder.read_run(folder).document.get("options") or []]
    return own_options(folder) if is_own(folder) else list(arguments.ansible)


def give_up(arguments: argparse.Namespace, folder: Path, hosts: Sequence[InventoryHost]) -> None:
    """Leaves no run of which no node was asked, and an earlier one as it was."""
    if arguments.go_on:
        close_run(folder, hosts, run_files.NOT_ASKED)
    else:
        drop_run(folder)


def _read_by_ansible(
    arguments: argparse.Namespace,
    home: Path,
    counting_few: Mapping[str, str] | None = None,
    playbook: str = "audit.yml",
) -> Path:
    packed_pynvml.link_pynvml(home)
    folder, more = folder_of(arguments), {**(counting_few or {}), **_going_on(arguments)}
    with (
        _command(arguments, home, playbook, arguments.ansible) as command,
        play_stopped_at(arguments.deadline) as is_over,
        counting(folder),
    ):
        played = ask_the_rest(
            play_into(command, home, folder, more=more), command, home, folder, more
        )
    if not arguments.go_on:
        mark_as_own(folder)
    if not played.stopped and FOUND_MANY in played.output:
        raise _ManyHosts
    played = Played(
        "".join(f"{line}\n" for line in played.output.splitlines() if not COUNTING.match(line)),
        played.code,
        played.stopped,
    )
    if is_over() and (folder / "run.json").is_file():
        sys.stderr.write(
            "".join(f"{line}\n" for line in played.output.splitlines() if GO_ON not in line)
        )
        report_cut(folder, close_at_deadline(folder, arguments.deadline), arguments.deadline)
        return folder
    if is_over():
        raise UserError(
            f"the deadline of the run, {arguments.deadline:g} s, passed before a node was asked"
        )
    _check_played(played, folder, arguments)
    return folder


def _read_files(arguments: argparse.Namespace, home: Path) -> tuple[Path, bool]:
    if not arguments.ansible:
        raise UserError(
            "--via files: expected a folder, a tar, files or - for standard input, found none"
        )
    for source in arguments.ansible:
        check_source(source)
    folder, now = folder_of(arguments), run_folder.utc_now()
    together = limits()
    times = {source: _started(source) or now for source in arguments.ansible}
    arrivals = (
        (times[source], arrival)
        for source in arguments.ansible
        for arrival in arrivals_of(source, together)
    )
    if arguments.inventory or arguments.go_on:
        hosts = opened(arguments, home, folder, [])
        try:
            with _stopped_by_signals():
                arrived = write_arrivals(
                    folder, {host.name: host.meant for host in hosts}, arrivals
                )
        except KeyboardInterrupt:
            raise UserError(stopped(folder)) from None
        close_run(folder, hosts, NO_DOCUMENT)
    else:
        arrived = _write_run(folder, arrivals, now)
        mark_as_own(folder)
    say_arrived(arrived)
    return folder, not arrived.faults


def _started(source: str) -> str:
    """Of a run folder: a document in it that was not read is as old as its run. Raises UserError
    for a run.json that is none."""
    folder = Path(source)
    is_run = (folder / "run.json").is_file()
    return str(read_run_input(folder).document.get("started") or "") if is_run else ""


def _write_run(folder: Path, arrivals: Iterable[tuple[str, Arrival]], now: str) -> Arrived:
    """A run whose hosts are those that come; where it is stopped before all have come, or none
    comes, nothing is left of it. Raises UserError."""
    run_folder.make_folder(folder)
    try:
        with _stopped_by_signals():
            arrived = write_arrivals(folder, None, arrivals)
            if not arrived.hosts:
                raise UserError((arrived.faults or ["expected documents of nodes, found none"])[0])
            document = {
                "schema": "unhang/run/1",
                "id": folder.name,
                "started": now,
                "finished": run_folder.utc_now(),
                "inventory": None,
                "limit": None,
                "hosts": list(arrived.hosts),
            }
            run_folder.write_document(folder / "run.json", document)
    except KeyboardInterrupt:
        raise UserError(
            "stopped by hand; no run was made, and what was to be read is as it was"
        ) from None
    finally:
        if not (folder / "run.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
    run_files.point_latest(folder)
    return arrived


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP stop as Ctrl-C does, unless they are ignored, as under nohup."""
    taken = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, signal.default_int_handler) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def opened(
    arguments: argparse.Namespace,
    home: Path,
    folder: Path,
    more_arguments: Sequence[str],
) -> list[InventoryHost]:
    """The hosts of the inventory that are to be read, in a run that was opened for them. Raises
    UserError if there is no run."""
    with _command(arguments, home, PLAYBOOK, more_arguments) as command:
        played, hosts = open_run(command, home, folder, _going_on(arguments))
    if not arguments.go_on:
        mark_as_own(folder)
    _check_played(played, folder, arguments)
    if not hosts:
        raise UserError(why_no_run(played.output, arguments.inventory, arguments.limit))
    return hosts


def stopped(folder: Path) -> str:
    """What to say when a person stopped the reading; nothing that had arrived is lost."""
    run_files.close_for_another(folder)
    unhang, run = project.program_as_typed(), as_typed(folder)
    return (
        f"stopped by hand; read the other nodes with: {unhang} audit --continue {run}; judge those"
        f" that were read with: {unhang} judge {run}"
    )


@contextmanager
def _command(
    arguments: argparse.Namespace, home: Path, playbook: str, more: Sequence[str]
) -> Iterator[list[str]]:
    """ansible-playbook's command line. A run that is gone on with has its own inventory and
    options, unless others are given."""
    inventories, limit, options = arguments.inventory, arguments.limit, list(more)
    with ExitStack() as stack:
        command = [
            ansible_env.ansible_program("ansible-playbook"),
            str(home / "playbooks" / playbook),
        ]
        if arguments.go_on:
            run = run_folder.read_run(folder_of(arguments))
            inventories = inventories or own_inventories(run.folder)
            if not inventories:
                found = f"found one of documents alone at {as_typed(run.folder)}; give --inventory"
                raise UserError(f"--continue: expected a run of an inventory, {found}")
            options = [*own_options(run.folder), *options]
            listing = stack.enter_context(
                tempfile.NamedTemporaryFile("w", prefix="unhang-limit-", encoding="utf-8")
            )
            listing.write(f"~^(?:{'|'.join(map(re.escape, unread_hosts(run)))})$\n")
            listing.flush()
            words = ["--limit", "@" + listing.name]
        else:
            words = stack.enter_context(limit_arguments(limit))
        command += [
            word for inventory in inventories_of(inventories, home) for word in ("-i", inventory)
        ] + words
        command += ["--forks", str(arguments.forks)] if arguments.forks else []
        yield command + options


def unread_hosts(run: run_folder.Run) -> list[str]:
    """Hosts of a run without an answer that can be judged. Raises UserError if there is none."""
    statuses = {}
    for path in run_folder.node_files(run.folder):
        node = run_folder.read_node(path)
        statuses[node.get("host")] = node.get("status")
    unread = [host for host in run.hosts if statuses.get(host) not in READ]
    if not unread:
        raise UserError(
            f"--continue: expected nodes that were not read in {as_typed(run.folder)}, found none;"
            " every node has its answer"
        )
    return unread


def folder_of(arguments: argparse.Namespace) -> Path:
    """The run to go on with, or the path of a new one."""
    if arguments.go_on:
        return run_folder.find_run(arguments.go_on)
    if "folder" not in arguments:
        runs = Path(arguments.out) if arguments.out else run_folder.runs_folder()
        arguments.folder = runs.absolute() / run_folder.new_run_id()
    return Path(arguments.folder)


def _going_on(arguments: argparse.Namespace) -> dict[str, str]:
    return {run_files.GO_ON_ENV: "1"} if arguments.go_on else {}


def _check_played(played: Played, folder: Path, arguments: argparse.Namespace) -> None:
    """Prints what Ansible printed. Raises UserError if there is no run, or if it was ended
    early."""
    if played.stopped or played.code < 0:
        is_open, reason = (folder / "run.json").is_file(), ended_early(played, folder)
        was_read = is_open and any(
            run_folder.read_node(path).get("status") in READ
            for path in run_folder.node_files(folder)
        )
        for line in played.output.splitlines() if is_open else ():
            # of what was stopped Ansible shows how it ended
            if not played.stopped or (
                line.startswith("unhang: ") and (was_read or GO_ON not in line)
            ):
                sys.stderr.write(f"{line}\n")
        raise UserError(
            reason if was_read else f"{reason.partition(f'; {GO_ON}')[0]}; nothing was read"
        )
    if not (folder / "run.json").is_file():
        raise UserError(why_no_run(played.output, arguments.inventory, arguments.limit))
    sys.stderr.write(played.output)
