"""The switch of each node, from the inventory: the variable `unhang_switch`, else the node's only
group whose name begins with leaf or switch."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from unhang.core import project
from unhang.core.ansible import ansible_env
from unhang.core.errors import UserError
from unhang.core.path_arguments import checked_inventory
from unhang_node.base.parse.values import as_map

VARIABLE = "unhang_switch"
SWITCH_GROUP = re.compile(r"(?:leaf|switch)(?:[_0-9].*)?", re.IGNORECASE)
INVENTORY_S = 120


def switch_of(groups: Iterable[str], variables: Mapping[str, Any]) -> str | None:
    """The switch of a host, None if nothing names one. Raises UserError for a host in several such
    groups: then the variable must name it."""
    named = variables.get(VARIABLE)
    if named not in (None, ""):
        return str(named)
    found = sorted(group for group in groups if SWITCH_GROUP.fullmatch(group))
    if len(found) > 1:
        raise UserError(
            "more than one group of the host may name its switch (leaf_1, switch_a):"
            f" {', '.join(found)}; set {VARIABLE} for the host"
        )
    return found[0] if found else None


def switches_of_inventory(listed: Mapping[str, Any]) -> dict[str, str]:
    """{host: switch} from the output of `ansible-inventory --list`. Raises UserError."""
    variables = (listed.get("_meta") or {}).get("hostvars") or {}
    groups: dict[str, list[str]] = {}
    for name, content in listed.items():
        for host in as_map(content).get("hosts") or []:
            groups.setdefault(host, []).append(name)
    parents = {
        child: name
        for name, content in listed.items()
        for child in as_map(content).get("children") or []
    }
    switches = {}
    for host in {*groups, *variables}:
        switch = switch_of(_with_parents(groups.get(host, []), parents), variables.get(host) or {})
        if switch:
            switches[host] = switch
    return switches


def _with_parents(groups: Iterable[str], parents: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for group in groups:
        name: str | None = group
        while name and name not in found:
            found.append(name)
            name = parents.get(name)
    return found


def _without_mark(value: dict[str, Any]) -> Any:
    """A text of an inventory plugin without ansible-inventory's mark for texts that are no
    templates."""
    return value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else value


def read_switches(inventory: str) -> dict[str, str]:
    """{host: switch} of an inventory, read by Ansible itself. Raises UserError."""
    home = project.find_project()
    argv = [
        ansible_env.ansible_program("ansible-inventory"),
        "-i",
        checked_inventory(inventory),
        "--list",
    ]
    try:
        done = subprocess.run(
            argv,
            env=ansible_env.ansible_environment(home, os.environ),
            capture_output=True,
            text=True,
            timeout=INVENTORY_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        listed = json.loads(done.stdout, object_hook=_without_mark)
    except (OSError, ValueError, RecursionError, subprocess.TimeoutExpired) as problem:
        raise UserError(
            f"--inventory: ansible-inventory could not read {inventory}: {problem}"
        ) from None
    hosts = any(as_map(content).get("hosts") for content in as_map(listed).values())
    if done.returncode or not hosts:
        output = [line for line in done.stderr.splitlines() if line.strip()]
        raise UserError(
            f"--inventory: ansible-inventory could not read {inventory}:"
            f" {output[-1][:300] if output else f'code {done.returncode}'}"
        )
    return switches_of_inventory(listed)
