"""Plans a node's fabric manager: the driver's version, its service enabled, and never a restart
while jobs run. Values in, values out."""

from __future__ import annotations

from typing import Any

from unhang.act.role_changes.driver_inputs import (
    DriverInputs,
    packaged_driver,
    same,
    wanted_branch,
    within,
)
from unhang.act.role_changes.driver_refusals import (
    LET_END,
    foreign_users,
    in_use,
    partitioned_gpus,
)
from unhang.act.role_changes.driver_sets import fabric_packages
from unhang.act.role_changes.node_refusals import Refusal, refusal
from unhang_node.change.gpu.services import FABRIC_MANAGER

UNIT = FABRIC_MANAGER[0]


def plan_fabric_manager(inputs: DriverInputs, reset_allowed: bool = False) -> dict[str, Any]:
    """{install, expect, enable, disable, start, reset, refusals, notes}. reset_allowed: whether the
    GPUs may be reset to restart it."""
    switched = inputs.fact("fabric_manager.nvswitch_present")
    if switched is None:
        found = "that its PCI devices could not be listed"
        return _plan(
            refusals=[
                refusal(
                    "nvswitch-unknown",
                    "to see whether this node has NVSwitch",
                    found,
                    inputs.host,
                    "apply the role as root",
                )
            ]
        )
    if not switched:
        enabled = bool(inputs.fact("fabric_manager.enabled"))
        notes = ["no NVSwitch: fabric manager is not for this node"] + (
            ["its service is switched off; the package stays"] if enabled else []
        )
        return _plan(disable=enabled, notes=notes)
    if (inputs.policy.get("fabric_manager") or {}).get("match_driver") is False:
        return _plan(
            notes=[
                "unhang_policy.fabric_manager.match_driver is false: fabric manager stays as it is"
            ]
        )
    driver = packaged_driver(inputs)
    early = _driver_first(inputs, driver)
    if early and inputs.options.previews:
        return _plan(
            notes=[f"cannot be foreseen before the role gpu_driver has acted: {early['text']}"]
        )
    if early:
        return _plan(refusals=[early])
    refusals: list[Refusal] = []
    install = fabric_packages(inputs, str(driver), refusals)
    rows = {row["name"]: row["version"] for row in inputs.fact("driver.packages") or ()} | {
        name: row["version"] for name, row in inputs.installed.items()
    }
    changes = {name: version for name, version in install.items() if rows.get(name) != version}
    if changes and not refusals:
        # a service's package may restart the service by itself
        refusals += in_use(inputs, LET_END, monitors=True)
    plan = _plan(
        install=install if changes else {},
        expect=install,
        enable=not inputs.fact("fabric_manager.enabled"),
        refusals=refusals,
    )
    return plan if refusals else {**plan, **_start(inputs, str(driver), reset_allowed)}


def _plan(**parts: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "install": {},
        "expect": {},
        "enable": False,
        "disable": False,
        "start": False,
        "reset": False,
        "refusals": [],
        "notes": [],
    }
    return {**nothing, **parts, "unit": UNIT}


def _driver_first(inputs: DriverInputs, driver: str | None) -> Refusal | None:
    """The refusal if the driver is not the policy's: both must change in one step, or the node has
    no fabric after a reboot."""
    if driver is not None and (
        wanted_branch(inputs.desired) is None or within(driver, inputs.desired)
    ):
        return None
    wanted = (
        " ".join(
            f"{key} {inputs.desired[key]}"
            for key in ("version", "min", "max")
            if key in inputs.desired
        )
        or "a driver from packages"
    )
    next_step = "apply the role gpu_driver, which changes both in one step"
    return refusal(
        "driver-first",
        f"driver {wanted}".replace("driver a driver", "a driver"),
        f"driver {driver or 'none'}",
        inputs.host,
        next_step,
    )


def _start(inputs: DriverInputs, driver: str, reset_allowed: bool) -> dict[str, Any]:
    """Whether the service is started: without a reset at its first start since the boot, otherwise
    only with a reset of all GPUs."""
    if inputs.fact("fabric_manager.running"):
        return {
            "notes": [
                "it runs; a restart without a reset of all GPUs would break NVLS for every later"
                " job, so there is none"
            ]
        }
    loaded = inputs.fact("driver.loaded.version")
    if not same(loaded, driver):
        return {
            "notes": [
                f"driver {driver} is installed and {loaded or 'none'} is loaded: fabric manager"
                " starts with the next boot"
            ]
        }
    if inputs.fact("interconnect.fabric_state") == "not_started":
        return {"start": True}
    foreign = foreign_users(inputs)
    if foreign:
        return {
            "notes": [
                "it does not run, and to start it again takes a reset of all GPUs, which"
                f" {foreign[0]} does not allow"
            ]
        }
    partitioned = partitioned_gpus(inputs)
    if partitioned:
        return {
            "notes": [
                "it does not run, and to start it again takes a reset of all GPUs:"
                f" {partitioned[0]}; reboot the node"
            ]
        }
    if not reset_allowed:
        return {
            "notes": [
                "it does not run, and to start it again takes a reset of all GPUs:"
                " fabric_manager_reset, or a reboot"
            ]
        }
    return {"reset": True}
