"""Checks after a change of driver: whether the next boot loads the planned driver, and what remains
to be done. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.act.role_changes.driver_inputs import (
    DriverInputs,
    boot_release,
    is_without_kernels,
    packaged_driver,
    same,
)
from unhang.act.role_changes.driver_sets import FABRIC_PACKAGES
from unhang_node.base.parse.nvidia_driver import upstream_version


def check_driver(inputs: DriverInputs, plan: Mapping[str, Any]) -> dict[str, Any]:
    """{faults: reasons against a reboot, notes, pending: a line about the pending reboot, or None,
    kernel: the one that boots next, loaded}. inputs: of the node after the change. plan: result of
    plan_driver."""
    version = str(plan["version"])
    faults = [*_package_faults(inputs, version), *_boot_faults(inputs, version)]
    pending = _pending(inputs, version)
    versions = {
        "kernel": boot_release(inputs) or "",
        "loaded": inputs.fact("driver.loaded.version"),
    }
    return {
        "faults": faults,
        "notes": [*_unchecked(inputs), *_other_kernels(inputs, version)],
        "pending": pending,
        **versions,
    }


def _package_faults(inputs: DriverInputs, version: str) -> Iterator[str]:
    present = packaged_driver(inputs)
    if not same(present, version):
        yield f"{inputs.host}: the packages are of driver {present or 'none'}, not of {version}"
    rows = [
        row
        for row in inputs.fact("driver.packages") or ()
        if row["name"].startswith(FABRIC_PACKAGES[0])
        and not row["name"].endswith(("-dev", "-devel"))
    ]
    matches = (inputs.policy.get("fabric_manager") or {}).get("match_driver") is not False
    for row in rows if inputs.fact("fabric_manager.nvswitch_present") and matches else ():
        if not same(upstream_version(row["version"]), version):
            yield (
                f"{inputs.host}: {row['name']} is {row['version']}, not {version}, the driver's"
                " version"
            )


def _boot_faults(inputs: DriverInputs, version: str) -> Iterator[str]:
    """The kernel that boots next must have the module, under the distribution's name."""
    release, rows = boot_release(inputs), inputs.fact("kernel.installed")
    row = next((row for row in rows or () if row["release"] == release), None)
    if row is None:
        if not is_without_kernels(inputs):
            found = "is not an installed kernel" if rows else "was not read with its modules"
            yield (
                f"{inputs.host}: {release or 'the kernel'}, which boots next, {found}: whether it"
                f" has nvidia module {version} is not known; do not boot it"
            )
        return
    module = row.get("nvidia_module")
    if module is None and _is_built(inputs, version, str(release)):
        return
    if not same(module, version):
        found = (
            f"nvidia module {module}"
            if module
            else "an nvidia module of unknown version"
            if module is None
            else "no nvidia module"
        )
        states = _dkms_states(inputs, version, str(release))
        yield (
            f"{inputs.host}: {release}, the kernel that boots next, has {found}, not nvidia module"
            f" {version}{states}; do not boot it"
        )


def _unchecked(inputs: DriverInputs) -> Iterator[str]:
    if is_without_kernels(inputs):
        yield (
            f"{inputs.host}: it has no kernels, as in a container: whether the one that boots next"
            " has the module was not checked"
        )


def _is_built(inputs: DriverInputs, version: str, release: str) -> bool:
    rows = inputs.fact("kernel.dkms") or ()
    return any(
        row["module"].startswith("nvidia")
        and row["version"] == version
        and row["kernel"] == release
        and row["state"] == "installed"
        for row in rows
    )


def _dkms_states(inputs: DriverInputs, version: str, release: str) -> str:
    rows = [
        row
        for row in inputs.fact("kernel.dkms") or ()
        if row["module"].startswith("nvidia")
        and row["version"] == version
        and row["kernel"] in (None, release)
    ]
    return "".join(f" (DKMS says {row['module']} {row['version']}: {row['state']})" for row in rows)


def _other_kernels(inputs: DriverInputs, version: str) -> Iterator[str]:
    """Other kernels, which would boot without this driver."""
    release = boot_release(inputs)
    for row in inputs.fact("kernel.installed") or ():
        built = same(row.get("nvidia_module"), version) or (
            row.get("nvidia_module") is None and _is_built(inputs, version, row["release"])
        )
        if row["release"] != release and row.get("image") and not built:
            found = row.get("nvidia_module") or (
                "none" if row.get("nvidia_module") == "" else "one of unknown version"
            )
            why = "" if row.get("headers") else ", and no headers to build it with"
            yield (
                f"{inputs.host}: {row['release']} is installed as well and has nvidia module"
                f" {found}{why}; it would start without driver {version}"
            )


def _pending(inputs: DriverInputs, version: str) -> str | None:
    """A line if the loaded driver is not the installed one, else None."""
    loaded = inputs.fact("driver.loaded.version")
    if not inputs.fact("driver.loaded.is_loaded") or same(loaded, version):
        return None
    return (
        f"{inputs.host}: driver {version} is installed and {loaded} is loaded until the node boots;"
        " until then new programs may fail with a version mismatch"
    )
