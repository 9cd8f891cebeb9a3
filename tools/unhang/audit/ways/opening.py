"""Opens the run of an audit whose nodes another way than Ansible's tasks reads: Ansible gives the
hosts and their variables, and connects to no node."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.audit.ways.arrivals import Meant
from unhang.core.ansible import inventory, run_files
from unhang.core.ansible.play_process import Played
from unhang.core.ansible.playbook_command import play_into
from unhang.core.run.own_runs import MARK
from unhang.core.run.run_folder import read_run, write_document
from unhang.core.strict_json import parse_strictly

PLAYBOOK = "open_audit.yml"
REACH = (
    *(
        "ansible_connection",
        "ansible_host",
        "ansible_port",
        "ansible_user",
        "ansible_ssh_private_key_file",
        "ansible_python_interpreter",
    ),
    *(
        "ansible_ssh_host",
        "ansible_ssh_port",
        "ansible_ssh_user",
        "ansible_private_key_file",
        "ansible_ssh_executable",
        "ansible_ssh_args",
    ),
    *(
        "ansible_ssh_common_args",
        "ansible_ssh_extra_args",
        "ansible_timeout",
        "ansible_ssh_timeout",
        "ansible_become",
        "ansible_become_method",
    ),
    *(
        "ansible_become_user",
        "ansible_become_exe",
        "ansible_become_flags",
        "ansible_ssh_transfer_method",
        "ansible_host_key_checking",
    ),
)
SECRETS = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_password",
    "ansible_become_pass",
    "ansible_sudo_pass",
)
NAMES = (
    "group_names",
    "unhang_policy",
    "unhang_node_timeout_s",
    *(f"unhang_{one}" for one in inventory.OPTIONS),
    *REACH,
)
PRINTED = re.compile(r'^\s*"msg": ("(?:[^"\\]|\\.)*"),?$', re.MULTILINE)


@dataclass(frozen=True)
class InventoryHost:
    """values: of NAMES, with their templates resolved; secrets: which of SECRETS it has, without
    their values."""

    name: str
    values: dict[str, Any]
    secrets: list[str]

    @property
    def meant(self) -> Meant:
        """Its groups and policy, as the module's action plugin has them."""
        policy = inventory.policy_of(self.values, lambda value: value, lambda value: None)
        return Meant([str(group) for group in self.values.get("group_names", [])], policy.content)


def open_run(
    command: Sequence[str], home: Path, folder: Path, more: Mapping[str, str]
) -> tuple[Played, list[InventoryHost]]:
    """Makes the run folder, or goes on with it, and returns the hosts that are to be read; the run
    is not finished then, and none of them has a record.

    command: ansible-playbook's with PLAYBOOK. Without a run, the hosts are [] and Played has
    Ansible's reasons.
    """
    asked = {
        "UNHANG_HOST_VALUES": ",".join(NAMES),
        "UNHANG_HOST_SECRETS": ",".join(SECRETS),
        "ANSIBLE_STDOUT_CALLBACK": "minimal",
        "ANSIBLE_NOCOLOR": "1",
    }
    asked |= {run_files.NOT_LATEST_ENV: "1"}  # until it is known that this way can read them
    played = play_into(command, home, folder, more={**more, **asked})
    if played.stopped or played.code or not (folder / "run.json").is_file():
        return played, []
    printed = "".join(json.loads(one) for one in PRINTED.findall(played.output))
    hosts = [_host(line) for line in printed.splitlines() if line.startswith("{")]
    write_document(folder / "run.json", {**read_run(folder).document, "finished": None})
    run_files.take_unread(folder)
    said = "\n".join(
        line for line in played.output.splitlines() if line.startswith(("unhang: ", "[WARNING]"))
    )
    return Played(f"{said}\n" if said else "", 0), hosts


def _host(line: str) -> InventoryHost:
    row = parse_strictly(line)
    return InventoryHost(row["host"], row["values"], row["secrets"])


def close_run(folder: Path, hosts: Sequence[InventoryHost], message: str) -> None:
    """Writes a record of each host without one, and that the run is finished."""
    for host in hosts:
        if not run_files.has_node(folder, host.name):
            meant = host.meant
            run_files.write_node(
                folder,
                run_files.node_document(
                    host.name, meant.groups, meant.policy, "failed", message, None
                ),
            )
    run_files.finish_run(folder)
    run_files.point_latest(folder)


def drop_run(folder: Path) -> None:
    """Removes a run that was opened and of which no node was asked."""
    (folder / "nodes").rmdir()
    for name in ("run.json", MARK):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()
