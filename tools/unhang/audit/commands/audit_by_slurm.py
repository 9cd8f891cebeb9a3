"""`unhang audit --via slurm`: srun reads what Slurm can start a job on, another way the rest where
an inventory says how; the run keeps how each was read."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from unhang.audit.commands import audit_ways
from unhang.audit.report.read_by import ReadBy, read_by_line, write_read_by
from unhang.audit.ways.opening import InventoryHost, close_run
from unhang.audit.ways.slurm import SlurmReading, read_by_slurm
from unhang.audit.ways.slurm_nodes import all_nodes, job_nodes, partitions_of
from unhang.audit.ways.ssh_reach import given_options, reach_of, refusals
from unhang.core.ansible import run_files
from unhang.core.ansible.old_python import read_collector
from unhang.core.commands.common_options import add_repeatable
from unhang.core.commands.counted_nodes import counting
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, fold_hosts, shortened
from unhang.core.run import run_folder
from unhang.core.run.own_runs import mark_as_own
from unhang.core.text import counted

LONGEST_NODES = 120
OTHER = {"clush": "by ssh", "ansible": "by Ansible"}


def add_slurm_options(parser: argparse.ArgumentParser) -> None:
    text = (
        "--via slurm: over the nodes of this running job (default: $SLURM_JOB_ID, else every idle"
        " node, in jobs of its own)"
    )
    parser.add_argument("--slurm-job", metavar="ID", help=text)
    add_repeatable(parser, "--slurm-partition", "NAME", "--via slurm: only nodes of this partition")


def check_slurm_options(arguments: argparse.Namespace) -> None:
    """Raises UserError for options of Slurm beside another way, or beside each other."""
    given = [
        name
        for name in ("--slurm-job", "--slurm-partition")
        if getattr(arguments, name[2:].replace("-", "_"))
    ]
    if given and arguments.via != "slurm":
        raise UserError(f"{given[0]}: expected it with --via slurm, found --via {arguments.via}")
    if len(given) > 1:
        raise UserError("expected --slurm-job or --slurm-partition, found both")


def read_by_srun(arguments: argparse.Namespace, home: Path) -> Path:
    """The run folder. Raises UserError."""
    job = arguments.slurm_job or (
        "" if arguments.slurm_partition else os.environ.get("SLURM_JOB_ID", "")
    )
    if job and arguments.inventory and not arguments.limit and not arguments.go_on:
        arguments.limit = ",".join(job_nodes(job)[0])
    folder = audit_ways.folder_of(arguments)
    by_inventory = bool(
        arguments.inventory
        or (arguments.go_on and run_folder.read_run(folder).document.get("inventory"))
    )
    hosts = (
        audit_ways.opened(arguments, home, folder, arguments.ansible)
        if by_inventory
        else _open_without_inventory(arguments, folder, job)
    )
    given = given_options(audit_ways.options_of(arguments, folder))
    begun = time.monotonic()
    try:
        _refuse(hosts, given, arguments.ansible)
        _say(
            f"read by --via slurm: {f'job {job}' if job else 'jobs on idle nodes'};"
            f" {counted(len(hosts), 'host')}"
        )
        collector = read_collector(home)
        with counting(folder):
            reading = read_by_slurm(
                folder, hosts, given, collector, arguments.deadline, job, arguments.slurm_partition
            )
    except KeyboardInterrupt:
        raise UserError(audit_ways.stopped(folder)) from None
    except UserError:
        audit_ways.give_up(arguments, folder, hosts)
        raise
    audit_ways.say_arrived(reading.arrived)
    user = getpass.getuser()
    become = any(reach_of(host, given).become for host in hosts)
    rows = [
        ReadBy(
            f"by srun in job {number} as {user}{', root by sudo' if become else ''}", tuple(names)
        )
        for number, names in reading.jobs.items()
        if names
    ]
    if reading.denied and os.geteuid() != 0 and not become:
        _say(
            f"read as {user}, without root, who alone may read some of:"
            f" {', '.join(sorted(reading.denied))}; add -- --become where sudo asks for no password"
        )
    rows += _read_the_rest(arguments, folder, hosts, reading, given, by_inventory, begun)
    write_read_by(folder, rows)
    _say(f"read: {read_by_line(rows, LONGEST_NODES)}")
    return folder


def _read_the_rest(
    arguments: argparse.Namespace, folder: Path, hosts: Sequence[InventoryHost],
    reading: SlurmReading, given: Mapping[str, str], by_inventory: bool,
    begun: float,
) -> list[ReadBy]:  # fmt: skip
    """Reads what Slurm did not by ssh, or by Ansible where ssh alone does not reach it; without an
    inventory nobody knows how, and the reason is recorded."""
    rest = [host for host in hosts if host.name in reading.refused]
    reasons: dict[str, list[str]] = {}
    for host in rest:
        reasons.setdefault(reading.refused[host.name], []).append(host.name)
    if not by_inventory:
        for host in rest:
            message = (
                f"not read: {reading.refused[host.name]}; --inventory says how else it can be"
                " reached"
            )
            run_files.write_node(
                folder, run_files.node_document(host.name, [], {}, "unreachable", message, None)
            )
    if not rest or not by_inventory:
        close_run(folder, hosts, run_files.NOT_ANSWERED)
        return [ReadBy(f"not read: {reason}", tuple(names)) for reason, names in reasons.items()]
    way = "ansible" if refusals(rest, given, arguments.ansible) else "clush"
    for reason, names in reasons.items():
        _say(f"{shortened(fold_hosts(names), LONGEST_NODES)}: {reason}; read {OTHER[way]}")
    left_s = max(1.0, arguments.deadline - (time.monotonic() - begun))
    only = [host.name for host in rest]
    audit_ways.read_nodes(
        argparse.Namespace(
            **{
                **vars(arguments),
                "go_on": str(folder),
                "via": way,
                "only": only,
                "deadline": left_s,
            }
        )
    )
    return [ReadBy(f"{OTHER[way]}: {reason}", tuple(names)) for reason, names in reasons.items()]


def _refuse(hosts: Sequence[InventoryHost], given: Mapping[str, str], typed: Sequence[str]) -> None:
    """Raises UserError for hosts where root is to be had by more than `sudo -n`; how ssh would
    reach them means nothing to srun."""
    becoming = [host for host in hosts if reach_of(host, given).become]
    plain = [
        InventoryHost(
            host.name,
            {**host.values, "ansible_connection": "ssh"},
            [one for one in host.secrets if "pass" in one],
        )
        for host in becoming
    ]
    if refused := refusals(plain, given, typed):
        raise UserError(
            f"--via slurm: expected `sudo -n` as the way to root, found {'; '.join(refused[:3])};"
            " use --via ansible"
        )


def _open_without_inventory(
    arguments: argparse.Namespace, folder: Path, job: str
) -> list[InventoryHost]:
    """Makes a run of Slurm's nodes, or goes on with one. Raises UserError."""
    values, options = _typed_values(arguments.ansible)
    if arguments.go_on:
        run = run_folder.read_run(folder)
        names = audit_ways.unread_hosts(run)
        run_folder.write_document(folder / "run.json", {**run.document, "finished": None})
        return [InventoryHost(name, values, []) for name in names]
    names = _names_in_slurm(arguments, job)
    run_folder.make_folder(folder)
    head = {
        "schema": "unhang/run/1",
        "id": folder.name,
        "started": run_folder.utc_now(),
        "finished": None,
        "inventory": None,
    }
    run_folder.write_document(
        folder / "run.json", {**head, "limit": arguments.limit, "options": options, "hosts": names}
    )
    mark_as_own(folder)
    return [InventoryHost(name, values, []) for name in names]


def _names_in_slurm(arguments: argparse.Namespace, job: str) -> list[str]:
    """The nodes of the job, of the partitions, or all; of them those of --limit. Raises
    UserError."""
    wanted = arguments.slurm_partition
    if job:
        names, where = job_nodes(job)[0], f"job {job}"
    else:
        names = [
            node.name
            for node in all_nodes()
            if not wanted or set(wanted) & set(partitions_of(node))
        ]
        where = f"partition {', '.join(wanted)}" if wanted else "Slurm"
    if not names:
        raise UserError(
            f"--via slurm: expected nodes in {where}, found none; sinfo lists partitions and their"
            " nodes"
        )
    if not arguments.limit:
        return names
    limit = set(expand_limit(arguments.limit))
    if unknown := sorted(limit - set(names)):
        raise UserError(
            f"--limit: expected nodes of {where}, or node sets of them, found"
            f" {shortened(fold_hosts(unknown), LONGEST_NODES)}"
        )
    return [name for name in names if name in limit]


def _typed_values(typed: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """(variables of each host, options of run.json) of what was typed behind --, where there is no
    inventory. Raises UserError for more than Slurm can use."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("-b", "--become", action="store_true")
    parser.add_argument("--become-user")
    parser.add_argument("-e", "--extra-vars", action="append", default=[])
    try:
        found, other = parser.parse_known_args(list(typed))
    except argparse.ArgumentError as problem:
        raise UserError(f"--via slurm: {problem}") from None
    pairs = [one.partition("=") for one in found.extra_vars]
    if other or not all(
        name.startswith(("unhang_", "ansible_python_interpreter")) and value
        for name, _, value in pairs
    ):
        shown = other[0] if other else found.extra_vars[-1]
        raise UserError(
            "--via slurm without an inventory: expected --become, --become-user or -e"
            f" unhang_NAME=VALUE behind --, found {shown!r}"
        )
    options = ["--become"] if found.become else []
    options += [f"--become-user={found.become_user}"] if found.become_user else []
    return {name: value for name, _, value in pairs}, options


def _say(line: str) -> None:
    sys.stderr.write(f"unhang: {line}\n")
    sys.stderr.flush()
