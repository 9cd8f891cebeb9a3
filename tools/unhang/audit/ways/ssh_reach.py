"""How ssh reaches a host of an inventory, as Ansible's own ssh connection would; or why it cannot
without Ansible."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.audit.ways.opening import InventoryHost
from unhang.core.ansible import inventory
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened

PLAIN = ("ssh", "ansible.builtin.ssh", "smart")
ALIVE = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")
ASKS = ("--ask-pass", "--ask-become-pass", "--become-password-file", "--connection-password-file")
PASSWORD_WORDS = (
    "-k",
    "-K",
    "--ask-pass",
    "--ask-become-pass",
    "--become-password-file",
    "--become-pass-file",
    "--connection-password-file",
    "--conn-pass-file",
)
TIMEOUT_S, CONNECT_S = 120, 10


@dataclass(frozen=True)
class SshReach:
    """argv: ssh with the address; become: words before the interpreter; options: of the collector;
    timeout_s: of one answer."""

    argv: tuple[str, ...]
    become: tuple[str, ...]
    interpreter: str
    options: dict[str, Any]
    timeout_s: int


def refusals(
    hosts: Sequence[InventoryHost], given: Mapping[str, str], typed: Sequence[str]
) -> list[str]:
    """One line for each reason why some hosts cannot be reached by ssh alone. given: of
    given_options; typed: arguments for ansible-playbook."""
    reasons: dict[str, list[str]] = {}
    for host in hosts:
        if reason := _refused(host, given, typed):
            reasons.setdefault(reason, []).append(host.name)
    return [
        f"{reason} for {shortened(fold_hosts(names), 120)}"
        for reason, names in sorted(reasons.items())
    ]


def _refused(host: InventoryHost, given: Mapping[str, str], typed: Sequence[str]) -> str:
    values = host.values
    connection, method = (
        str(values.get("ansible_connection", "ssh")),
        str(values.get("ansible_become_method", given.get("--become-method", "sudo"))),
    )
    if any(word in ("-c", "--connection") or word.startswith("--connection=") for word in typed):
        return "a connection of the command line"
    if any(word.partition("=")[0] in PASSWORD_WORDS for word in typed) or set(ASKS) & set(given):
        return "a password"
    if connection not in PLAIN:
        return f"the connection {connection!r}"
    if host.secrets:
        return f"a password ({host.secrets[0]})"
    if _becomes(host, given) and (
        method not in ("sudo", "ansible.builtin.sudo")
        or values.get("ansible_become_exe")
        or values.get("ansible_become_flags")
    ):
        return f"the become plugin {method!r} or options of it"
    return ""


def given_options(options: Sequence[str]) -> dict[str, str]:
    """{option: value} of run.json's options of ansible-playbook."""
    return {name: value for name, _, value in (word.partition("=") for word in options)}


def _becomes(host: InventoryHost, given: Mapping[str, str]) -> bool:
    value = host.values.get("ansible_become", "--become" in given)
    return (
        value
        if isinstance(value, bool)
        else str(value).lower() in ("true", "yes", "on", "1", "y", "t")
    )


def reach_of(host: InventoryHost, given: Mapping[str, str]) -> SshReach:
    """A host's variables come before options of the command line, as Ansible has it. Raises
    UserError for values that are none."""
    first = _first_of(host.values)
    address = str(first("ansible_host", "ansible_ssh_host") or host.name)
    user = first("ansible_user", "ansible_ssh_user") or given.get("--user")
    key = first("ansible_ssh_private_key_file", "ansible_private_key_file") or given.get(
        "--private-key"
    )
    port = first("ansible_port", "ansible_ssh_port")
    try:
        common = shlex.split(
            str(first("ansible_ssh_common_args") or given.get("--ssh-common-args", ""))
        )
        extra = shlex.split(
            str(first("ansible_ssh_extra_args") or given.get("--ssh-extra-args", ""))
        )
        own = (
            shlex.split(str(first("ansible_ssh_args")))
            if first("ansible_ssh_args")
            else list(ALIVE)
        )
        connect_s = int(first("ansible_ssh_timeout", "ansible_timeout") or CONNECT_S)
        timeout_s = max(1, int(first("unhang_node_timeout_s") or TIMEOUT_S))
        policy = host.meant.policy
        options = inventory.options_of({}, host.values, policy, lambda value: value)
    except ValueError as problem:
        raise UserError(
            f"{host.name} has settings of ssh that are not numbers of seconds or arguments:"
            f" {problem}"
        ) from None
    argv = [str(first("ansible_ssh_executable") or "ssh"), "-T", "-o", "BatchMode=yes", *own]
    argv += ["-p", str(port)] if port else []
    argv += ["-i", os.path.expanduser(str(key))] if key else []  # noqa: PTH111 -- an argument of ssh, not a path that is opened here
    argv += ["-l", str(user)] if user else []
    argv += ["-o", f"ConnectTimeout={connect_s}", *common, *extra, "--", address]
    become = (
        (
            "sudo",
            "-H",
            "-n",
            "-u",
            str(first("ansible_become_user") or given.get("--become-user") or "root"),
        )
        if _becomes(host, given)
        else ()
    )
    interpreter = str(first("ansible_python_interpreter") or "/usr/bin/python3")
    return SshReach(
        tuple(argv),
        become,
        "/usr/bin/python3" if interpreter.startswith("auto") else interpreter,
        options,
        timeout_s,
    )


def _first_of(values: Mapping[str, Any]) -> Any:
    """A function that gives the first of some variables that is set."""
    return lambda *names: next(
        (values[name] for name in names if values.get(name) not in (None, "")), None
    )
