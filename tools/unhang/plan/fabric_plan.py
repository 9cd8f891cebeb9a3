"""What a node's fabric manager needs: the driver's version, its service on, and never a restart under jobs. Values in, values out."""

from __future__ import annotations

from typing import Any

from unhang.plan.driver_case import Case, packaged_driver, same, wanted_branch, within
from unhang.plan.driver_refusals import foreign_users, refusal
from unhang.plan.driver_sets import fabric_packages
from unhang_node.change.gpu.services import FABRIC_MANAGER

UNIT = FABRIC_MANAGER[0]


def plan_fabric_manager(case: Case, reset_allowed: bool = False) -> dict[str, Any]:
    """{install, expect, enable, disable, start, reset, refusals, notes}. reset_allowed: GPUs may be reset to start it again."""
    switched = case.fact("fabric_manager.nvswitch_present")
    if switched is None:
        found = "that its PCI devices could not be listed"
        return _plan(refusals=[refusal("nvswitch-unknown", "to see whether this node has NVSwitch", found, case.host, "apply the role as root")])
    if not switched:
        enabled = bool(case.fact("fabric_manager.enabled"))
        notes = ["no NVSwitch: fabric manager is not for this node"] + (["its service is switched off; the package stays"] if enabled else [])
        return _plan(disable=enabled, notes=notes)
    if (case.policy.get("fabric_manager") or {}).get("match_driver") is False:
        return _plan(notes=["unhang_policy.fabric_manager.match_driver is false: fabric manager stays as it is"])
    driver = packaged_driver(case)
    early = _driver_first(case, driver)
    if early and case.options.previews:
        return _plan(notes=[f"cannot be foreseen before the role gpu_driver has acted: {early['text']}"])
    if early:
        return _plan(refusals=[early])
    refusals: list[dict[str, str]] = []
    install = fabric_packages(case, str(driver), refusals)
    rows = {row["name"]: row["version"] for row in case.fact("driver.packages") or ()} | {name: row["version"] for name, row in case.installed.items()}
    changes = {name: version for name, version in install.items() if rows.get(name) != version}
    if changes and not refusals:
        refusals += _in_use(case)
    plan = _plan(install=install if changes else {}, expect=install, enable=not case.fact("fabric_manager.enabled"), refusals=refusals)
    return plan if refusals else {**plan, **_start(case, str(driver), reset_allowed)}


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


def _driver_first(case: Case, driver: str | None) -> dict[str, str] | None:
    """The refusal where the driver is not the policy's: both change in one step, or the node comes back without a fabric."""
    if driver is not None and (wanted_branch(case.desired) is None or within(driver, case.desired)):
        return None
    wanted = " ".join(f"{key} {case.desired[key]}" for key in ("version", "min", "max") if key in case.desired) or "a driver from packages"
    next_step = "apply the role gpu_driver, which changes both in one step"
    return refusal("driver-first", f"driver {wanted}".replace("driver a driver", "a driver"), f"driver {driver or 'none'}", case.host, next_step)


def _in_use(case: Case) -> list[dict[str, str]]:
    """A package of a service may start it again by itself."""
    if case.options.allow_in_use:
        return []
    next_step = "let it end or drain the node"
    return [refusal("gpus-in-use", "GPUs that nobody uses", row, case.host, next_step) for row in foreign_users(case)[:8]]


def _start(case: Case, driver: str, reset_allowed: bool) -> dict[str, Any]:
    """Whether the service is started, plainly at its first start since the boot, else only with a reset of all GPUs."""
    if case.fact("fabric_manager.running"):
        return {"notes": ["it runs; a restart without a reset of all GPUs would break NVLS for every later job, so there is none"]}
    loaded = case.fact("driver.loaded.version")
    if not same(loaded, driver):
        return {"notes": [f"driver {driver} is installed and {loaded or 'none'} is loaded: fabric manager starts with the next boot"]}
    if case.fact("interconnect.fabric_state") == "not_started":
        return {"start": True}
    foreign = foreign_users(case)
    if foreign:
        return {"notes": [f"it does not run, and to start it again takes a reset of all GPUs, which {foreign[0]} does not allow"]}
    if not reset_allowed:
        return {"notes": ["it does not run, and to start it again takes a reset of all GPUs: fabric_manager_reset, or a reboot"]}
    return {"reset": True}
