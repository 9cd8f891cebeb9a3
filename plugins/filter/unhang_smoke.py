# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role smoke_test. Implementation: unhang.smoke, which imports no Ansible."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


def smoke_hosts(
    hosts: Sequence[str], groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Any]
) -> Any:
    """hosts.json of a test's folder: the hosts, the switch of each according to the inventory, and
    the options that were typed."""
    from unhang.core.errors import UserError
    from unhang.smoke.switches import VARIABLE, switch_of

    switches = {}
    for host in hosts:
        own = [
            name
            for name, members in groups.items()
            if host in members and name not in ("all", "ungrouped")
        ]
        try:
            switch = switch_of(own, {VARIABLE: hostvars[host].get(VARIABLE)})
        except UserError as problem:
            raise AnsibleFilterError(f"{host}: {problem}") from None
        if switch:
            switches[str(host)] = switch
    argv = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    return {
        "hosts": [str(host) for host in hosts],
        "switches": switches,
        "command": shlex.join(argv),
    }


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {"unhang_smoke_hosts": smoke_hosts}
