"""The next command for a cause, ready to paste, with hosts in the command's syntax.

| the cause | the command |
| --- | --- |
| its nodes were not read | `unhang audit --host NODES`, to read them again |
| a role repairs it | `unhang remediate RUN --rule RULE --host NODES`, which plans for it and previews |
| a person has to take the node out of service | the scheduler's own command, where the node was seen to run Slurm or Kubernetes |
| anything else | `unhang explain RULE` |

A collection without the wheel has `ansible-playbook unhang.ops.audit` and `remediate` instead.

Of a run that is not known as this user's own, no command has its hosts, inventory or options:
INVENTORY and NODES take their place, and a person fills them in.
"""  # noqa: E501

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.nodeset import fold_hosts

ANY_INVENTORY, ANY_NODES = "INVENTORY", "NODES"  # what a person fills in
# characters; more hosts go through a file, where the reader of the command has one
LONGEST_HOSTS = 56


@dataclass(frozen=True)
class Setting:
    """The surroundings of a command.

    run: as a person types it, "" if no plan can be made of the shown run; inventories: values of
    `-i`; reachable: whether there is an inventory to reach the nodes; list_file: a file with one
    host a line, "" for none.
    """

    program: str = "unhang"
    run: str = "runs/latest"
    inventories: tuple[str, ...] = ()
    reachable: bool = True
    list_file: str = ""
    rules: tuple[str, ...] = ()  # folders of further rules, which `unhang explain` needs
    # of ansible-playbook, with which the audit reached the nodes: --become
    options: tuple[str, ...] = ()
    is_own: bool = True  # whether the run is known as this user's own: see own_runs
    playbooks: bool = False  # of a collection, in place of the program's commands


def command(cause: Mapping[str, Any], setting: Setting = Setting()) -> str:
    """The next command for a cause (an object of `causes` of findings-1, its command still
    missing)."""
    hosts: Sequence[str] = cause["nodes"] if setting.is_own or not cause["nodes"] else (ANY_NODES,)
    inventories = setting.inventories if setting.is_own else (ANY_INVENTORY,)
    inventory = "".join(f" -i {shlex.quote(one)}" for one in inventories)
    is_repaired = setting.run and cause["remedy"]["role"] and not cause["remedy"]["conflicts"]
    if hosts and setting.playbooks and (cause["unread"] or is_repaired):
        role = f"remediate -e unhang_roles={cause['remedy']['role']}"
        nodes = _with_value("--limit", shlex.quote(",".join(hosts)))
        return (
            f"ansible-playbook unhang.ops.{'audit' if cause['unread'] else role}{inventory} {nodes}"
            f"{''.join(f' {shlex.quote(one)}' for one in setting.options)}"
        )
    if hosts and cause["unread"] and setting.reachable:
        through = f" -- {shlex.join(setting.options)}" if setting.options else ""
        return f"{setting.program} audit{inventory} {_host_option(hosts, setting)}{through}"
    if hosts and is_repaired:
        return _role(cause, hosts, setting)
    if hosts and leaves_service(cause):
        return _drain(cause, hosts, setting)
    return f"{setting.program} explain {shlex.quote(cause['rule'])}" + "".join(
        f" --rules {shlex.quote(one)}" for one in setting.rules
    )


def waive_command(rule: str, hosts: Sequence[str], run: str, setting: Setting) -> str:
    """The command that accepts a finding; its last day and reason are for a person to fill in. run:
    as a person types it."""
    is_short = setting.is_own and len(fold_hosts(hosts)) <= LONGEST_HOSTS
    named = _hosts(hosts if is_short else (ANY_NODES,), Setting())
    return (
        f"{setting.program} waive {shlex.quote(rule)} {_with_value('--host', named)}"
        " --until DATE --reason TEXT" + ("" if run == Setting.run else f" --run {shlex.quote(run)}")
    )


def remediate_options(options: Sequence[str]) -> str:
    """The options of ansible-playbook as `unhang remediate` takes them, each behind a blank."""
    return "".join(f" --ansible={shlex.quote(one)}" for one in options)


def _role(cause: Mapping[str, Any], hosts: Sequence[str], setting: Setting) -> str:
    finding = (
        f"{shlex.quote(setting.run)} --rule {shlex.quote(cause['rule'])}"
        f" {_host_option(hosts, setting)}"
    )
    if not setting.reachable:
        return f"{setting.program} plan {finding}"
    finding += "" if setting.is_own else f" -i {ANY_INVENTORY}"
    return f"{setting.program} remediate {finding}{remediate_options(setting.options)}"


def leaves_service(cause: Mapping[str, Any]) -> bool:
    """Whether jobs must be kept off the nodes until a person has repaired them, and the scheduler
    is known."""
    return bool(cause["scheduler"]) and (
        cause["severity"] == "critical"
        or any("drain" in text for text in cause["remedy"]["person"])
    )


def needs_list(cause: Mapping[str, Any]) -> bool:
    """Whether a cause has too many hosts for its command."""
    return len(_written(cause)) > LONGEST_HOSTS and not command(cause).startswith("unhang explain")


def _written(cause: Mapping[str, Any]) -> str:
    """The hosts in the command's notation: kubectl accepts no node sets."""
    hosts = cause["nodes"]
    return (
        " ".join(hosts)
        if cause["scheduler"] == "kubernetes" and not cause["unread"]
        else fold_hosts(hosts)
    )


def host_option(host: str) -> str:
    """The option for one host, written so that a name that begins with a dash is not read as an
    option."""
    return _with_value("--host", shlex.quote(host))


def _host_option(hosts: Sequence[str], setting: Setting) -> str:
    return _with_value("--host", _hosts(hosts, setting))


def _with_value(name: str, value: str) -> str:
    return f"{name}={value}" if value.startswith("-") else f"{name} {value}"


def _hosts(hosts: Sequence[str], setting: Setting) -> str:
    """A node set for --host; a file if it is long."""
    folded = fold_hosts(hosts)
    if setting.list_file and len(folded) > LONGEST_HOSTS:
        return shlex.quote("@" + setting.list_file)
    return shlex.quote(folded)


def _drain(cause: Mapping[str, Any], hosts: Sequence[str], setting: Setting) -> str:
    through_file = bool(setting.list_file) and len(_written(cause)) > LONGEST_HOSTS
    listing = shlex.quote(setting.list_file)
    if cause["scheduler"] == "kubernetes":
        start = (
            f"xargs -a {listing} kubectl drain"
            if through_file
            else f"kubectl drain {' '.join(shlex.quote(host) for host in hosts)}"
        )
        return f"{start} --ignore-daemonsets --delete-emptydir-data"
    nodes = f'"$(paste -sd, {listing})"' if through_file else shlex.quote(fold_hosts(hosts))
    reason = shlex.quote(f"unhang: {cause['rule']}")
    return f"scontrol update nodename={nodes} state=drain reason={reason}"
