"""The ways in which `unhang audit` reads nodes, and going on with a run that is not complete."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from unhang.audit.commands.arrived_lines import say_arrived
from unhang.audit.ways.arrivals import Arrived, write_arrivals
from unhang.audit.ways.documents import Arrival
from unhang.audit.ways.files import arrivals_of, check_source, limits
from unhang.audit.ways.opening import PLAYBOOK, InventoryHost, close_run, drop_run, open_run
from unhang.audit.ways.run_deadline import (
    DEADLINE_S,
    close_at_deadline,
    play_stopped_at,
    report_cut,
)
from unhang.audit.ways.ssh_reach import given_options, reach_of, refusals
from unhang.core import project
from unhang.core.ansible import ansible_env, packed_pynvml, run_files
from unhang.core.ansible.old_python import read_collector
from unhang.core.ansible.play_process import Played
from unhang.core.ansible.playbook_command import (
    GO_ON,
    ask_the_rest,
    ended_early,
    inventories_of,
    limit_arguments,
    play_into,
    why_no_run,
)
from unhang.core.commands.counted_nodes import counting
from unhang.core.commands.options import Options
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run import run_folder
from unhang.core.run.documents import READ
from unhang.core.run.own_runs import is_own, mark_as_own, own_inventories, own_options
from unhang.core.run.run_input import read_run_input
from unhang.core.taken_signals import signals_taken
from unhang.core.text import counted

WAYS = ("auto", "ansible", "clush", "slurm", "files")
MANY = 64  # hosts, above which `auto` takes clush
FEW_ENV, FOUND_MANY = "UNHANG_FEW", '"msg": "unhang-many-hosts '  # of playbooks/audit_few.yml
COUNTING = re.compile(r"PLAY \[Leave many hosts|$")
LONGEST_NODES = 120
NO_DOCUMENT = "no document of this node came"


class ReadOptions(Options, frozen=True):
    """Which nodes are read, and how. via: one of WAYS; go_on: a run that lacks nodes; out: the
    parent of run folders; ansible: for ansible-playbook, or what --via files reads."""

    inventory: list[str] | None
    limit: str | None = None
    via: str = "ansible"
    forks: int | None = None
    deadline: float = DEADLINE_S
    slurm_job: str | None = None
    slurm_partition: Sequence[str] = ()
    go_on: str | None = None
    out: str | None = None
    ansible: Sequence[str] = ()


def read_nodes(options: ReadOptions, folder: Path) -> bool:
    """Reads them into the run folder of folder_of(); whether all that came could be read. Raises
    UserError if there is no run."""
    home = project.find_project()
    if options.via == "files":
        return _read_files(options, home, folder)
    if options.via == "slurm":
        _read_by_srun(options, home, folder)
    # this machine
    elif options.via == "ansible" or (
        options.via == "auto" and not options.inventory and not options.go_on
    ):
        _read_by_ansible(options, home, folder)
    elif options.via != "auto" or not _read_few_by_ansible(options, home, folder):
        _read_by_ssh(options, home, folder)
    return True


def _read_few_by_ansible(options: ReadOptions, home: Path, folder: Path) -> bool:
    """Ansible counts the hosts when it starts, and reads them if they are few: a small audit pays
    nothing for the choice. False if they are many."""
    try:
        _read_by_ansible(
            options,
            home,
            folder,
            {FEW_ENV: str(MANY), "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false"},
            "audit_few.yml",
        )
    except _ManyHosts:
        return False
    return True


class _ManyHosts(Exception):
    """Ansible has asked none of them."""


def _read_by_ssh(options: ReadOptions, home: Path, folder: Path) -> None:
    """By ClusterShell; `auto` goes on with Ansible where ssh alone does not reach all hosts."""
    # ClusterShell's tasks take 0.1 s to import
    from unhang.audit.ways.clush import FANOUT, Asked, read_by_ssh

    hosts = opened(options, home, folder, options.ansible)
    given = given_options(options_of(options, folder))
    refused = refusals(hosts, given, options.ansible)
    if refused and options.via == "clush":
        give_up(options, folder, hosts)
        raise UserError(
            "--via clush reads only hosts that ssh alone reaches, not those that need"
            f" {'; '.join(refused[:3])}; use --via ansible"
        )
    if refused:
        sys.stderr.write(f"unhang: Ansible reads the nodes, not ssh alone: {refused[0]}\n")
        _read_by_ansible(msgspec.structs.replace(options, go_on=str(folder)), home, folder)
        return
    why = f"plain ssh, more than {MANY} hosts" if options.via == "auto" else "as asked"
    fanout = options.forks or FANOUT
    with _asking(options, folder, hosts):
        sys.stderr.write(
            f"unhang: {counted(len(hosts), 'host')} by ssh, {fanout} at a time ({why})\n"
        )
        sys.stderr.flush()
        asked = Asked(hosts, given, fanout, options.deadline)
        cut = read_by_ssh(folder, asked, read_collector(home))
    report_cut(folder, cut, options.deadline)


def _read_by_srun(options: ReadOptions, home: Path, folder: Path) -> None:
    """The nodes of a job or the idle ones, by Slurm's own list where there is no inventory."""
    from unhang.audit.ways.slurm import read_by_srun
    from unhang.audit.ways.slurm_nodes import nodes_of

    partitions = options.slurm_partition
    job = options.slurm_job or ("" if partitions else os.environ.get("SLURM_JOB_ID", ""))
    if not options.go_on:
        limit = options.limit
        if (job or partitions) and not limit:
            limit = ",".join(nodes_of(job, partitions))
        inventory = options.inventory or [str(home / "inventory" / "slurm")]
        options = msgspec.structs.replace(options, inventory=inventory, limit=limit)
    hosts = opened(options, home, folder, options.ansible)
    given = given_options(options_of(options, folder))
    with _asking(options, folder, hosts):
        becoming = [host for host in hosts if reach_of(host, given).become]
        if refused := refusals(becoming, given, options.ansible):
            raise UserError(
                "--via slurm takes only `sudo -n` as the way to root, not"
                f" {'; '.join(refused[:3])}; use --via ansible"
            )
        where = f"job {job}" if job else "a job on idle nodes"
        sys.stderr.write(f"unhang: {counted(len(hosts), 'host')} by srun in {where}\n")
        arrived, unread = read_by_srun(
            folder, hosts, given, read_collector(home), options.deadline, job, partitions
        )
    say_arrived(arrived)
    for reason in dict.fromkeys(unread.values()):
        names = fold_hosts([name for name, why in unread.items() if why == reason])
        sys.stderr.write(f"unhang: {shortened(names, LONGEST_NODES)} not read: {reason}\n")


@contextmanager
def _asking(options: ReadOptions, folder: Path, hosts: Sequence[InventoryHost]) -> Iterator[None]:
    """While nodes are read; closes the run at the end."""
    try:
        with counting(folder):
            yield
    except KeyboardInterrupt:
        raise UserError(stopped(folder)) from None
    except UserError:  # a value of the inventory that is none
        give_up(options, folder, hosts)
        raise
    close_run(folder, hosts, run_files.NOT_ANSWERED)


def options_of(options: ReadOptions, folder: Path) -> list[str]:
    """Of ansible-playbook: those that this command's run was made with; of a run that it goes on
    with and that was not made here, those that were typed."""
    if not options.go_on:
        return [str(one) for one in run_folder.read_run(folder).document.get("options") or []]
    return own_options(folder) if is_own(folder) else list(options.ansible)


def give_up(options: ReadOptions, folder: Path, hosts: Sequence[InventoryHost]) -> None:
    """Leaves no run of which no node was asked, and an earlier one as it was."""
    if options.go_on:
        close_run(folder, hosts, run_files.NOT_ASKED)
    else:
        drop_run(folder)


def _read_by_ansible(
    options: ReadOptions,
    home: Path,
    folder: Path,
    counting_few: Mapping[str, str] | None = None,
    playbook: str = "audit.yml",
) -> None:
    packed_pynvml.link_pynvml(home)
    more = {**(counting_few or {}), **_going_on(options)}
    with (
        _command(options, home, folder, playbook, options.ansible) as command,
        play_stopped_at(options.deadline) as is_over,
        counting(folder),
    ):
        played = ask_the_rest(
            play_into(command, home, folder, more=more), command, home, folder, more
        )
    if not options.go_on:
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
        report_cut(folder, close_at_deadline(folder, options.deadline), options.deadline)
        return
    if is_over():
        raise UserError(
            f"the deadline of the run, {options.deadline:g} s, passed before a node was asked"
        )
    _check_played(played, folder, options)


def _read_files(options: ReadOptions, home: Path, folder: Path) -> bool:
    if not options.ansible:
        raise UserError(
            "--via files needs a folder, a tar, files or - for standard input, and none is given"
        )
    for source in options.ansible:
        check_source(source)
    together, now = limits(), run_folder.utc_now()
    times = {source: _started(source) or now for source in options.ansible}
    arrivals = (
        (times[source], arrival)
        for source in options.ansible
        for arrival in arrivals_of(source, together)
    )
    if options.inventory or options.go_on:
        hosts = opened(options, home, folder, [])
        try:
            with signals_taken(signal.default_int_handler):
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
    return not arrived.faults


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
        with signals_taken(signal.default_int_handler):
            arrived = write_arrivals(folder, None, arrivals)
            if not arrived.hosts:
                raise UserError((arrived.faults or ["no document of a node was found"])[0])
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
            "it was stopped by hand; no run was made, and what was to be read is as it was"
        ) from None
    finally:
        if not (folder / "run.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
    run_files.point_latest(folder)
    return arrived


def opened(
    options: ReadOptions,
    home: Path,
    folder: Path,
    more_arguments: Sequence[str],
) -> list[InventoryHost]:
    """The hosts of the inventory that are to be read, in a run that was opened for them. Raises
    UserError if there is no run."""
    with _command(options, home, folder, PLAYBOOK, more_arguments) as command:
        played, hosts = open_run(command, home, folder, _going_on(options))
    if not options.go_on:
        mark_as_own(folder)
    _check_played(played, folder, options)
    if not hosts:
        raise UserError(why_no_run(played.output, options.inventory, options.limit))
    return hosts


def stopped(folder: Path) -> str:
    """What to say when a person stopped the reading; nothing that had arrived is lost."""
    run_files.close_for_another(folder)
    unhang, run = project.program_as_typed(), run_folder.as_typed(folder)
    return (
        f"it was stopped by hand; read the other nodes with: {unhang} audit --continue {run}; judge"
        f" those that were read with: {unhang} judge {run}"
    )


@contextmanager
def _command(
    options: ReadOptions, home: Path, folder: Path, playbook: str, more: Sequence[str]
) -> Iterator[list[str]]:
    """ansible-playbook's command line. A run that is gone on with has its own inventory and
    options, unless others are given."""
    inventories, words = options.inventory, list(more)
    with ExitStack() as stack:
        command = [
            ansible_env.ansible_program("ansible-playbook"),
            str(home / "playbooks" / playbook),
        ]
        if options.go_on:
            run = run_folder.read_run(folder)
            inventories = inventories or own_inventories(run.folder)
            if not inventories:
                raise UserError(
                    f"--continue: {run_folder.as_typed(run.folder)} is a run of documents alone,"
                    " not of an inventory; give --inventory"
                )
            words = [*own_options(run.folder), *words]
            listing = stack.enter_context(
                tempfile.NamedTemporaryFile("w", prefix="unhang-limit-", encoding="utf-8")
            )
            listing.write(f"~^(?:{'|'.join(map(re.escape, unread_hosts(run)))})$\n")
            listing.flush()
            limit = ["--limit", "@" + listing.name]
        else:
            limit = stack.enter_context(limit_arguments(options.limit))
        command += [
            word for inventory in inventories_of(inventories, home) for word in ("-i", inventory)
        ] + limit
        command += ["--forks", str(options.forks)] if options.forks else []
        yield command + words


def unread_hosts(run: run_folder.Run) -> list[str]:
    """Hosts of a run without an answer that can be judged. Raises UserError if there is none."""
    statuses = {}
    for path in run_folder.node_files(run.folder):
        node = run_folder.read_node(path)
        statuses[node.get("host")] = node.get("status")
    unread = [host for host in run.hosts if statuses.get(host) not in READ]
    if not unread:
        raise UserError(
            f"--continue: no node of {run_folder.as_typed(run.folder)} is still to be read; every"
            " node has its answer"
        )
    return unread


def folder_of(options: ReadOptions) -> Path:
    """The run to go on with, or the path of a new one."""
    if options.go_on:
        return run_folder.find_run(options.go_on)
    runs = Path(options.out) if options.out else run_folder.runs_folder()
    return runs.absolute() / run_folder.new_run_id()


def _going_on(options: ReadOptions) -> dict[str, str]:
    return {run_files.GO_ON_ENV: "1"} if options.go_on else {}


def _check_played(played: Played, folder: Path, options: ReadOptions) -> None:
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
        raise UserError(why_no_run(played.output, options.inventory, options.limit))
    sys.stderr.write(played.output)
