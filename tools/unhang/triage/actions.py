"""The command of a cause: what a person pastes next, with hosts in a form that the command understands.

| the cause | the command |
| --- | --- |
| its nodes were not read | `unhang audit --limit NODES`, to ask them again |
| a role repairs it | `ansible-playbook playbooks/remediate.yml --limit HOST,HOST`, which previews |
| a person has to take the node out of service | the scheduler's own command, where the node was seen to run Slurm or Kubernetes |
| anything else | `unhang explain RULE` |
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.nodeset import fold_hosts

LONGEST_HOSTS = 56  # characters; more hosts go through a file, where the reader of the command has one


@dataclass(frozen=True)
class Setting:
    """What a command needs to know of where it is typed. inventories: as `-i` takes them; list_file: a file with one host a line, "" for none."""

    program: str = "unhang"
    ansible_playbook: str = "ansible-playbook"
    playbook: str = "playbooks/remediate.yml"
    inventories: tuple[str, ...] = ()
    list_file: str = ""
    rules: tuple[str, ...] = ()  # folders of further rules, which explain needs to know


def command(cause: Mapping[str, Any], setting: Setting = Setting()) -> str:
    """The next command for a cause (an object of `causes` of findings-1, its command still missing)."""
    hosts: Sequence[str] = cause["nodes"]
    inventory = "".join(f" -i {shlex.quote(one)}" for one in setting.inventories)
    if hosts and cause["unread"]:
        return f"{setting.program} audit{inventory} --limit {_limit(hosts, fold_hosts(hosts), setting)}"
    if hosts and cause["remedy"]["role"] and not cause["remedy"]["conflicts"]:
        role = cause["remedy"]["role"]
        limit = _limit(hosts, ",".join(hosts), setting)
        return f"{setting.ansible_playbook} {shlex.quote(setting.playbook)}{inventory} --limit {limit} -e unhang_roles={role}"
    if hosts and leaves_service(cause):
        return _drain(cause, hosts, setting)
    return f"{setting.program} explain {cause['rule']}" + "".join(f" --rules {shlex.quote(one)}" for one in setting.rules)


def leaves_service(cause: Mapping[str, Any]) -> bool:
    """Whether jobs have to be kept off the nodes until a person has repaired them, and who keeps them off is known."""
    return bool(cause["scheduler"]) and (cause["severity"] == "critical" or any("drain" in text for text in cause["remedy"]["person"]))


def needs_list(cause: Mapping[str, Any]) -> bool:
    """Whether the hosts of a cause are too many to stand in its command."""
    return len(",".join(cause["nodes"])) > LONGEST_HOSTS and not command(cause).startswith("unhang explain")


def _limit(hosts: Sequence[str], written: str, setting: Setting) -> str:
    if setting.list_file and len(",".join(hosts)) > LONGEST_HOSTS:
        return shlex.quote("@" + setting.list_file)
    return shlex.quote(written)


def _drain(cause: Mapping[str, Any], hosts: Sequence[str], setting: Setting) -> str:
    through_file = bool(setting.list_file) and len(",".join(hosts)) > LONGEST_HOSTS
    listing = shlex.quote(setting.list_file)
    if cause["scheduler"] == "kubernetes":
        start = f"xargs -a {listing} kubectl drain" if through_file else f"kubectl drain {' '.join(shlex.quote(host) for host in hosts)}"
        return f"{start} --ignore-daemonsets --delete-emptydir-data"
    nodes = f'"$(paste -sd, {listing})"' if through_file else shlex.quote(fold_hosts(hosts))
    return f"scontrol update nodename={nodes} state=drain reason='unhang: {cause['rule']}'"
