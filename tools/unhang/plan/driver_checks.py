"""After a change of driver: is what boots next what the plan says, and what is still to come. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.plan.driver_case import Case, boot_release, packaged_driver, same
from unhang.plan.driver_sets import FABRIC_PACKAGES
from unhang_node.parse.nvidia_driver import upstream_version


def check_driver(case: Case, plan: Mapping[str, Any]) -> dict[str, Any]:
    """{faults: lines that forbid a boot, notes, pending: the line that says what only a reboot brings, or None, kernel: the one that boots next, loaded}.

    case: of the node as it is now. plan: of plan_driver.
    """
    version = str(plan["version"])
    faults = [*_package_faults(case, version), *_boot_faults(case, version)]
    pending = _pending(case, version)
    versions = {"kernel": boot_release(case) or "", "loaded": case.fact("driver.loaded.version")}
    return {"faults": faults, "notes": list(_other_kernels(case, version)), "pending": pending, **versions}


def _package_faults(case: Case, version: str) -> Iterator[str]:
    present = packaged_driver(case)
    if not same(present, version):
        yield f"{case.host}: expected packages of driver {version}, found {present or 'none'}"
    rows = [row for row in case.fact("driver.packages") or () if row["name"].startswith(FABRIC_PACKAGES[0]) and not row["name"].endswith(("-dev", "-devel"))]
    matches = (case.policy.get("fabric_manager") or {}).get("match_driver") is not False
    for row in rows if case.fact("fabric_manager.nvswitch_present") and matches else ():
        if not same(upstream_version(row["version"]), version):
            yield f"{case.host}: expected {row['name']} {version}, the driver's version, found {row['version']}"


def _boot_faults(case: Case, version: str) -> Iterator[str]:
    """The kernel that boots next has to find the module, by whatever name the distribution gives it."""
    release = boot_release(case)
    row = next((row for row in case.fact("kernel.installed") or () if row["release"] == release), None)
    if row is None:
        return
    module = row.get("nvidia_module")
    if module is None and _is_built(case, version, str(release)):
        return
    if not same(module, version):
        found = f"nvidia module {module}" if module else "one of unknown version" if module is None else "none"
        states = _dkms_states(case, version, str(release))
        yield f"{case.host}: expected nvidia module {version} in {release}, the kernel that boots next, found {found}{states}; do not boot it"


def _is_built(case: Case, version: str, release: str) -> bool:
    rows = case.fact("kernel.dkms") or ()
    return any(row["module"].startswith("nvidia") and row["version"] == version and row["kernel"] == release and row["state"] == "installed" for row in rows)


def _dkms_states(case: Case, version: str, release: str) -> str:
    rows = [
        row for row in case.fact("kernel.dkms") or () if row["module"].startswith("nvidia") and row["version"] == version and row["kernel"] in (None, release)
    ]
    return "".join(f" (DKMS says {row['module']} {row['version']}: {row['state']})" for row in rows)


def _other_kernels(case: Case, version: str) -> Iterator[str]:
    """Kernels that do not boot next and that would come up without this driver."""
    release = boot_release(case)
    for row in case.fact("kernel.installed") or ():
        built = same(row.get("nvidia_module"), version) or (row.get("nvidia_module") is None and _is_built(case, version, row["release"]))
        if row["release"] != release and row.get("image") and not built:
            found = row.get("nvidia_module") or ("none" if row.get("nvidia_module") == "" else "one of unknown version")
            why = "" if row.get("headers") else ", and no headers to build it with"
            yield f"{case.host}: {row['release']} is installed as well and has nvidia module {found}{why}; it would start without driver {version}"


def _pending(case: Case, version: str) -> str | None:
    """What is loaded is not what is installed."""
    loaded = case.fact("driver.loaded.version")
    if not case.fact("driver.loaded.is_loaded") or same(loaded, version):
        return None
    return f"{case.host}: driver {version} is installed and {loaded} is loaded until the node boots; until then new programs may fail with a version mismatch"
