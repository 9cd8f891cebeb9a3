# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role kernel: the kernel that a node should have, and the steps to it.
Implementation: unhang.act.role_changes, which imports no Ansible."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


def _plain(value: Any) -> Any:
    from unhang.core.ansible.inventory import plain

    return plain(value)


def kernel_names(facts: Mapping[str, Any]) -> Any:
    """Names and globs to ask package_offers for. facts: the document of gpu_node_info."""
    from unhang.act.role_changes.kernel_plan import names_to_ask

    return names_to_ask(_plain(facts)["sections"])


def kernel_plan(
    facts: Mapping[str, Any],
    policy: Mapping[str, Any],
    host: str,
    offered: Any = None,
    trial: Any = None,
    allowed: Any = None,
) -> Any:
    """A plan of unhang.act.role_changes.kernel_plan for one host.

    offered: what package_offers returned; trial: what boot_trial returned; allowed: {headers,
    without_modules, retry, reboot, busy}.
    """
    from unhang.act.role_changes.kernel_plan import KernelInputs, plan_kernel
    from unhang.core.schemas.policy import one_line, policy_faults

    facts, policy, offered, trial, allowed = (
        _plain(one) for one in (facts, policy or {}, offered or {}, trial or {}, allowed or {})
    )
    faults = [one_line(fault) for fault in policy_faults(policy)]
    if faults:
        raise AnsibleFilterError(f"unhang_policy of {host}: " + "; ".join(faults[:5]))
    known = {
        "headers": True,
        "without_modules": (),
        "retry": False,
        "reboot": False,
        "busy": False,
        **allowed,
    }
    known["without_modules"] = tuple(known["without_modules"])
    return plan_kernel(
        KernelInputs(
            facts["sections"],
            policy.get("kernel") or {},
            offered.get("offers") or {},
            offered.get("installed") or {},
            trial,
            **known,
        )
    )


def kernel_faults(facts: Mapping[str, Any], before: Any) -> Any:
    """Reasons against keeping a kernel that is on trial, [] if there are none. facts: of the node
    as it runs on trial; before: {release, modules, gpus}."""
    from unhang.act.role_changes.kernel_plan import KernelInputs, faults_after

    return faults_after(KernelInputs(_plain(facts)["sections"], {}), _plain(before))


def kernel_gpus(facts: Mapping[str, Any]) -> Any:
    """Identities of the GPUs that answer."""
    from unhang.act.role_changes.kernel_plan import KernelInputs, gpu_identities

    return gpu_identities(KernelInputs(_plain(facts)["sections"], {}))


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_kernel_names": kernel_names,
            "unhang_kernel_plan": kernel_plan,
            "unhang_kernel_faults": kernel_faults,
            "unhang_kernel_gpus": kernel_gpus,
        }
