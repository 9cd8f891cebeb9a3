# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role nccl_profile: the version and settings that a node should have.
Implementation: unhang.act.role_changes, which imports no Ansible."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


def nccl_plan(
    facts: Mapping[str, Any],
    policy: Mapping[str, Any],
    profiles: Any,
    host: str,
    groups: Sequence[str] = (),
    desired: Any = None,
    allow_debug: bool = False,
) -> Any:
    """A plan of unhang.act.role_changes.nccl_profile for one host. facts: the document of
    gpu_node_info; policy: unhang_policy; desired: {network, hcas}."""
    from unhang.act.role_changes.nccl_profile import Node, plan_settings
    from unhang.act.role_changes.nccl_setting_check import read_known
    from unhang.act.role_changes.nccl_values import DesiredState
    from unhang.core.ansible.inventory import plain
    from unhang.core.schemas.policy import one_line, policy_faults

    facts, policy, profiles, desired = (
        plain(one) for one in (facts, policy or {}, profiles, desired or {})
    )
    faults = [one_line(fault) for fault in policy_faults(policy)]
    if faults:
        raise AnsibleFilterError(f"unhang_policy of {host}: " + "; ".join(faults[:5]))
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    node = Node(str(host), tuple(map(str, groups)), facts["sections"], today)
    interfaces = (policy.get("network") or {}).get("interfaces") or ()
    given = DesiredState(
        network=desired.get("network") or None,
        interfaces=tuple(interfaces),
        hcas=tuple(desired.get("hcas") or ()),
    )
    return plan_settings(node, policy, profiles, read_known(), given, bool(allow_debug))


def nccl_library(facts: Mapping[str, Any], policy: Mapping[str, Any], offers: Any = None) -> Any:
    """A plan of unhang.act.role_changes.nccl_library. facts: the document of gpu_node_info; policy:
    unhang_policy; offers: the answer of package_offers."""
    from unhang.act.role_changes.nccl_library import plan_library
    from unhang.core.ansible.inventory import plain

    facts, policy, offers = (plain(one) for one in (facts, policy or {}, offers))
    sections = facts["sections"]
    rows = (
        (sections.get("nccl") or {}).get("libraries") or [],
        (sections.get("packages") or {}).get("installed") or [],
    )
    return plan_library(policy, *rows, (offers or {}).get("offers"))


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {"unhang_nccl_plan": nccl_plan, "unhang_nccl_library": nccl_library}
