"""Reasons why a role would refuse a node as a whole, from its facts; no policy could change that. Values in, values out."""

from __future__ import annotations

from typing import Any

from unhang.repair.plan.departures import fact
from unhang.repair.role_changes import driver_inputs, driver_refusals, kernel_plan
from unhang.repair.role_changes.driver_packages import PackageSet

# All facts that are read. Whole sections are large, and this is computed for each node that is judged.
_NODE = ("virtualization.is_container", "virtualization.kind", "image.kind", "image.evidence", "os.family", "kubernetes.gpu_operator")
_DRIVER_ROLES = ("gpu_driver", "fabric_manager")


def role_refusals(sections: Any) -> dict[str, str]:
    """Role -> the reason, for roles that change the kernel or the driver; {} if none would refuse. sections: typed, None for a node that was not read."""
    if sections is None:
        return {}
    node = _node(sections)
    kernel = _kernel_refusal(sections, node)
    driver = _driver_refusal(sections, node)
    return ({"kernel": kernel} if kernel else {}) | (dict.fromkeys(_DRIVER_ROLES, driver) if driver else {})


def _node(sections: Any) -> dict[str, dict[str, Any]]:
    node: dict[str, dict[str, Any]] = {}
    for path in _NODE:
        part, _, name = path.partition(".")
        node.setdefault(part, {})[name] = fact(sections, f"node.{path}")
    return node


def _kernel_refusal(sections: Any, node: dict[str, Any]) -> str | None:
    boot = {name: fact(sections, f"kernel.boot.{name}") for name in ("can_clear_one_shot", "why_not")}
    loader = {"can_clear_one_shot": boot["can_clear_one_shot"] is not False, "why_not": boot["why_not"]}  # the role itself reads facts that are missing here
    known = {"node": node, "kernel": {"out_of_tree": fact(sections, "kernel.out_of_tree")}}
    lines = kernel_plan.refusals(kernel_plan.KernelInputs(known, {}, trial={"loader": loader}))
    return lines[0] if lines else None


def _driver_refusal(sections: Any, node: dict[str, Any]) -> str | None:
    known = {"node": node, "driver": {"install_method": fact(sections, "driver.install_method")}}
    inputs = driver_inputs.DriverInputs("", known, {}, {})
    found = [row for refuser in (driver_refusals.ownership, driver_refusals.image) for row in refuser(inputs, PackageSet((), "executed"), "", "")]
    return f"expected {found[0]['expected']}, found {found[0]['found']}; {found[0]['next']}" if found else None
