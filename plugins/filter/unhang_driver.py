# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the roles gpu_driver, fabric_manager, gpu_reset and package_hold. Implementation:
unhang.act.role_changes, which imports no Ansible."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


if TYPE_CHECKING:
    from unhang.act.role_changes.driver_inputs import DriverInputs

Facts = Mapping[str, Any]
"""Arguments from Ansible: a document of facts, a policy, options."""


def _inputs(
    facts: Facts,
    policy: Facts | None,
    host: str,
    answers: Facts | None = None,
    options: Facts | None = None,
) -> DriverInputs:
    """A DriverInputs of unhang.act.role_changes.driver_inputs. answers: {offers, installed, users,
    streams} of the modules."""
    from unhang.act.role_changes.driver_inputs import DriverInputs, Options
    from unhang.act.role_changes.driver_sets import read_tables
    from unhang.core.ansible.inventory import plain
    from unhang.core.schemas.policy import one_line, policy_faults

    facts, policy, answers, options = (
        plain(one) for one in (facts, policy or {}, answers or {}, options or {})
    )
    faults = [one_line(fault) for fault in policy_faults(policy)]
    if faults:
        raise AnsibleFilterError(f"unhang_policy of {host}: " + "; ".join(faults[:5]))
    parts = {
        name: answers[name]
        for name in ("offers", "installed", "users", "streams")
        if answers.get(name)
    }
    return DriverInputs(
        str(host), facts["sections"], policy, read_tables(), options=Options(**options), **parts
    )


def driver_names(facts: Facts, policy: Facts, host: str, options: Facts | None = None) -> list[str]:
    """Packages (names and globs) whose offered versions a plan needs."""
    from unhang.act.role_changes.driver_sets import names_to_ask

    return names_to_ask(_inputs(facts, policy, host, None, options))


def driver_plan(
    facts: Facts, policy: Facts, host: str, answers: Facts, options: Facts | None = None
) -> dict[str, Any]:
    """A plan of unhang.act.role_changes.driver_plan."""
    from unhang.act.role_changes.driver_plan import plan_driver

    return plan_driver(_inputs(facts, policy, host, answers, options))


def driver_check(facts: Facts, policy: Facts, host: str, plan: Facts) -> dict[str, Any]:
    """The result of unhang.act.role_changes.driver_checks for the node after a plan was applied."""
    from unhang.act.role_changes.driver_checks import check_driver
    from unhang.core.ansible.inventory import plain

    return check_driver(_inputs(facts, policy, host), plain(plan))


def fabric_plan(
    facts: Facts,
    policy: Facts,
    host: str,
    answers: Facts,
    options: Facts | None = None,
    reset_allowed: bool = False,
) -> dict[str, Any]:
    """A plan of unhang.act.role_changes.fabric_plan."""
    from unhang.act.role_changes.fabric_plan import plan_fabric_manager

    return plan_fabric_manager(_inputs(facts, policy, host, answers, options), bool(reset_allowed))


def gpu_reset_plan(
    facts: Facts, policy: Facts, host: str, users: Facts, previews: bool, pending_reboot: str
) -> dict[str, Any]:
    """A plan of unhang.act.role_changes.gpu_reset_plan."""
    from unhang.act.role_changes.gpu_reset_plan import plan_gpu_reset

    inputs = _inputs(facts, policy, host, {"users": users}, {"previews": bool(previews)})
    return plan_gpu_reset(inputs, str(pending_reboot))


def held_groups(policy: Facts | None) -> list[str]:
    """Groups of packages (driver, kernel, nccl, ofed) that a policy holds. A driver with an exact
    version is held unless the policy disables that."""
    from unhang.core.ansible.inventory import plain

    policy = plain(policy or {})
    held = {
        name
        for name in ("driver", "kernel", "nccl", "ofed")
        if isinstance(policy.get(name), dict) and policy[name].get("held")
    }
    driver = policy.get("driver") or {}
    return sorted(
        held | ({"driver"} if "version" in driver and driver.get("held") is not False else set())
    )


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_driver_names": driver_names,
            "unhang_driver_plan": driver_plan,
            "unhang_driver_check": driver_check,
            "unhang_fabric_plan": fabric_plan,
            "unhang_gpu_reset_plan": gpu_reset_plan,
            "unhang_held_groups": held_groups,
        }
