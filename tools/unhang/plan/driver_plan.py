"""What brings a node to the driver that its policy names: packages with exact versions, pins, what goes, and why it must not be. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from unhang.plan import driver_refusals
from unhang.plan.driver_case import Case, chosen_flavour, offered_version, packaged_driver, same, sources, wanted_branch, within
from unhang.plan.driver_packages import PackageSet
from unhang.plan.driver_refusals import refusal
from unhang.plan.driver_sets import FABRIC_PACKAGES, NO_DRIVER_VERSION, before_packages, fabric_of, family_of, sets_of
from unhang_node.change.gpu.services import FABRIC_MANAGER
from unhang_node.parse.nvidia_driver import branch_of, upstream_version
from unhang_node.versions.compare import compare_versions, holds

PIN_FILE = "/etc/apt/preferences.d/unhang-driver"

# Of other source packages than the driver: their versions are their own, and both families use them.
SHARED: tuple[str, ...] = ("nvidia-settings", "nvidia-xconfig", "nvidia-modprobe", "nvidia-persistenced", "nvidia-support", "nvidia-kernel-common")
SHARED += ("glx-", "nvidia-prime", "nvidia-installer-cleanup", "libnvidia-egl-", "libxnvctrl", "nvidia-suspend-common")
DRIVER_SOURCES = ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules")
_MODULES = re.compile(r"(nvidia(-tesla(-\d+)?)?(-open)?-kernel-(dkms|support)|nvidia-dkms-.*|linux-modules-nvidia-.*|kmod-nvidia-.*|nvidia-open)$")


def plan_driver(case: Case) -> dict[str, Any]:
    """{action: none|install, version, flavour, install, remove, allow_remove, expect, pin, streams, refusals, notes, proof, before, services, reload, …}."""
    present = packaged_driver(case)
    branch = wanted_branch(case.desired)
    if branch is None:
        return _no_change(case, present, ["unhang_policy.driver names no version, min or max: the driver stays as it is"])
    version = _target(case, branch, present)
    flavour = chosen_flavour(case, branch)
    if version is None:
        reasons = [found for found in sets_of(case, branch) if isinstance(found, str)]
        return _refused(case, [not_offered(case, _desired_text(case), reasons)], None, flavour)
    stays = same(version, present) and "version" not in case.desired
    chosen, problems = _choose(case, str(branch_of(version)) if stays else branch, version)
    if chosen is None and stays:
        return _no_change(case, version, [f"driver {version} is one that the policy allows; nothing is pinned, for {problems[0]['found']}"])
    if chosen is None:
        return _refused(case, problems + _refusals(case, PackageSet((), "executed"), version, flavour), version, flavour)
    packages, install = chosen
    plan = _plan(case, packages, install, version, flavour)
    if plan["action"] == "none":
        return plan
    plan["refusals"] += _refusals(case, packages, version, flavour)
    return plan


def _refusals(case: Case, packages: PackageSet, version: str, flavour: str) -> list[dict[str, str]]:
    return [row for refuser in driver_refusals.ALL for row in refuser(case, packages, version, flavour)]


def _target(case: Case, branch: str, present: str | None) -> str | None:
    """The exact version: the one that is named, the one that is there when the policy allows it, else the newest of the bound's branch on offer."""
    desired = case.desired
    if "version" in desired:
        return str(desired["version"])
    if within(present, desired):
        return present
    best = None
    for found in sets_of(case, branch):
        rows = case.offers.get(found.packages[0], ()) if isinstance(found, PackageSet) else ()
        for version in (upstream_version(row["version"]) for row in rows):
            newer = version and (best is None or holds(compare_versions(version, best, "driver"), ">"))
            if within(version, desired) and branch_of(version) == branch and newer:
                best = version
    return best


def _desired_text(case: Case) -> str:
    bounds = [f"{key} {case.desired[key]}" for key in ("version", "min", "max") if key in case.desired]
    return "driver " + ", ".join(bounds).removeprefix("version ")


def _choose(case: Case, branch: str, version: str) -> tuple[tuple[PackageSet, dict[str, str]] | None, list[dict[str, str]]]:
    """((the set, {package: its own version}), []) of the first source that has it all, or (None, refusals)."""
    reasons = []
    for found in sets_of(case, branch):
        if isinstance(found, str):
            reasons.append(found)
            continue
        install = {name: "" if name.startswith(NO_DRIVER_VERSION) else offered_version(case, name, version) for name in found.packages}
        missing = sorted(name for name, own in install.items() if own is None or not (case.offers.get(name) or case.installed.get(name)))
        if not missing:
            return (found, {name: own or "" for name, own in install.items()}), []
        reasons.append(f"{', '.join(missing)} not offered at {version}")
    if not sources(case):
        system = case.fact("node.os.pretty_name") or case.fact("node.os.id")
        reasons.append(f"{system} is no system whose driver packages are known")
    return None, [not_offered(case, f"driver {version}", reasons)]


def not_offered(case: Case, expected: str, reasons: Iterable[str]) -> dict[str, str]:
    """The refusal that lists what there is."""
    names = [name for name in sorted(case.offers) if re.match(r"nvidia-(driver|tesla|open)|cuda-drivers", name) and not re.search("kernel|dkms", name)]
    there = "; ".join(f"{name} {', '.join(row['version'] for row in case.offers[name][:6])}" for name in names if case.offers[name])
    found = "; ".join(reasons) + f". On offer: {there or 'no driver package at all'}"
    return refusal("not-offered", expected, found, case.host, "name one that is offered, or add the repository that has it and update its index")


def _plan(case: Case, packages: PackageSet, install: dict[str, str], version: str, flavour: str) -> dict[str, Any]:
    notes: list[str] = [packages.note] if packages.note else []
    refusals: list[dict[str, str]] = []
    fabric = fabric_of(case, packages, version, refusals)
    library = _library(case, packages, version)
    leaves = other_sources(case, packages)
    # apt would take the old family's library for one that the new driver depends on.
    install = {**companions(case, version, flavour), **install, **fabric, **({name: own for name, own in library.items() if "*" not in own} if leaves else {})}
    expect = {**{name: own for name, own in install.items() if own}, **library}
    kept = {row["name"] for row in case.fact("driver.packages") or () if case.installed.get(row["name"], {}).get("source") not in leaves}
    remove = sorted(kept & {*other_family(case, install, version), *other_flavour(case, install, flavour)})
    streams = {module: stream for module, stream in packages.streams.items() if module in case.streams}
    switched = any(case.streams[module].get("enabled") != stream for module, stream in streams.items())
    if packages.streams and not streams:
        notes.append("no repository of this node has module streams: the version alone chooses the branch")
    action = "install" if remove or leaves or refusals or switched or not _is_there(case, install, expect) else "none"
    if not case.fact("kernel.boot.default_release"):
        notes.append(f"which kernel boots next is unknown; the plan is for {case.fact('kernel.release')}, the running one")
    plan = _no_change(case, version, notes)
    plan.update(action=action, version=version, flavour=flavour, install=install, expect=expect, remove=remove, remove_sources=leaves, proof=packages.proof)
    plan.update(before=dict.fromkeys(before_packages(packages), ""), refusals=refusals)
    plan["streams"] = streams
    plan["pin"] = {} if _is_rpm(case) else {"file": PIN_FILE, "stanzas": pins(packages, install, version)}
    plan["allow_remove"] = allowed_removals(case, version)
    plan["built_here"] = driver_refusals.is_built_here(packages)
    plan.update(_services(case, version))
    if action == "none":  # what an earlier run left to do
        plan.update(stop=[], needs_reboot=_is_pending(case, version) and not plan["reload"])
    return plan


def _library(case: Case, packages: PackageSet, version: str) -> dict[str, str]:
    if not packages.library:
        return {}
    return {packages.library: offered_version(case, packages.library, version) or f"*{version}*"}


def _is_there(case: Case, install: Mapping[str, str], expect: Mapping[str, str]) -> bool:
    """Whether every package is installed to the end and at its version."""
    rows = {**{row["name"]: row for row in case.fact("driver.packages") or ()}, **case.installed}
    for name in {*install, *expect}:
        row, own = rows.get(name), expect.get(name) or install.get(name)
        if row is None or row.get("state", "installed") != "installed":
            return False
        if own and row["version"] != own and not ("*" in own and same(upstream_version(row["version"]), own.strip("*"))):
            return False
    return True


def _is_rpm(case: Case) -> bool:
    """Pins are apt's; there package_pin locks versions afterwards."""
    return bool(case.fact("node.os.family") == "redhat")


def companions(case: Case, version: str, flavour: str) -> dict[str, str]:
    """{package: version} of what else of the driver is installed on a node of rpm, at the wanted version where that is on offer.

    Its packages want each other at exactly their version: dnf would take the rest away (nvidia-smi among it) to bring those that are named.
    """
    rows = (case.fact("driver.packages") or ()) if _is_rpm(case) else ()
    names = [row["name"] for row in rows if not (_MODULES.match(row["name"]) and ("-open" in row["name"]) != (flavour == "open"))]
    found = {name: offered_version(case, name, version) for name in names}
    return {name: own for name, own in found.items() if own}


def other_family(case: Case, install: Iterable[str], version: str) -> list[str]:
    """Installed packages of a driver that goes by other names than the wanted one: both would stay, and the old one might be loaded."""
    wanted = {family_of(name) for name in install if not name.startswith((*NO_DRIVER_VERSION, *FABRIC_PACKAGES))}
    found = []
    for row in case.fact("driver.packages") or ():
        own = upstream_version(row["version"])
        is_driver = own and re.match(r"\d{3}\.", own) and not _is_shared(row["name"]) and not _is_plain_fabric(row["name"])
        if is_driver and not same(own, version) and family_of(row["name"]) not in wanted and row["name"] not in install:
            found.append(row["name"])
    return sorted(set(found))


def _is_shared(name: str) -> bool:
    """Of no family alone: another's packages need it too."""
    return name.startswith(SHARED) or name.endswith("-common")


def other_sources(case: Case, packages: PackageSet) -> list[str]:
    """Source packages of installed drivers that are not the wanted one's, where sources have names of their own: Debian's families stand beside each other."""
    if any("*" in pin for pin in packages.pin):
        return []
    found = {str(row.get("source") or "") for name, row in case.installed.items() if not _is_shared(name)}
    return sorted(name for name in found - {*packages.pin} if name.startswith(DRIVER_SOURCES))


def other_flavour(case: Case, install: Iterable[str], flavour: str) -> list[str]:
    """Installed packages of kernel modules of the other flavour: two modules of one version would be there, and either might be loaded."""
    names = [row["name"] for row in case.fact("driver.packages") or () if _MODULES.match(row["name"])]
    return sorted(name for name in names if ("-open" in name) != (flavour == "open") and name not in install)


def _is_plain_fabric(name: str) -> bool:
    """Of a name without a branch, such as nvidia-fabricmanager: there is one of it, whatever the driver."""
    return name.startswith(FABRIC_PACKAGES) and family_of(name) is None


def allowed_removals(case: Case, version: str) -> list[str]:
    """Names of installed driver packages of other versions: apt may take them away where they stand in the way, and nothing else."""
    rows = case.fact("driver.packages") or ()
    return sorted({row["name"] for row in rows if not same(upstream_version(row["version"]), version) and not row["name"].startswith("dkms")})


def pins(packages: PackageSet, install: Mapping[str, str], version: str) -> list[dict[str, str]]:
    """Stanzas of apt preferences for the whole set: source packages at their exact version, globs of names at the driver's."""
    named = not any("*" in pin for pin in packages.pin)
    own = [install[name] for name in packages.packages]
    stanzas = []
    for place, pin in enumerate(packages.pin):
        exact = own[min(place, len(own) - 1)] if named else ""
        stanzas.append({"package": f"src:{pin}" if named else pin, "version": exact or f"{version}*"})
    return stanzas


def _services(case: Case, version: str) -> dict[str, Any]:
    """Which services are stopped, and whether and how the modules are exchanged without a reboot."""
    loaded = case.fact("driver.loaded.is_loaded")
    foreign = driver_refusals.foreign_users(case)
    wanted = bool(case.desired.get("reload")) and bool(loaded) and not same(case.fact("driver.loaded.version"), version)
    why_not = f"the modules are not exchanged: {foreign[0]}" if wanted and foreign else None
    reload = wanted and not foreign and not case.options.reboot
    active = [row["unit"] for row in case.users.get("services") or () if row.get("active")]
    # Fabric manager stops only in the exchange itself: whoever stops it has to reset the GPUs before it starts again.
    stop = [] if foreign else [unit for unit in active if unit not in FABRIC_MANAGER]
    return {"stop": stop, "reload": reload, "why_no_reload": why_not, "needs_reboot": bool(loaded) and not reload}


def _no_change(case: Case, version: str | None, notes: list[str]) -> dict[str, Any]:
    """A plan that changes nothing."""
    empty: dict[str, Any] = {"install": {}, "expect": {}, "remove": [], "remove_sources": [], "allow_remove": [], "before": {}, "refusals": []}
    empty.update(pin={}, streams={})
    services = {"stop": [], "reload": False, "why_no_reload": None, "needs_reboot": _is_pending(case, version)}
    return {"action": "none", "version": version, "flavour": None, "proof": None, "built_here": False, "notes": notes, **empty, **services}


def _is_pending(case: Case, version: str | None) -> bool:
    """Whether another driver is loaded than the packages hold."""
    return bool(version and case.fact("driver.loaded.is_loaded")) and not same(case.fact("driver.loaded.version"), version)


def _refused(case: Case, refusals: list[dict[str, str]], version: str | None, flavour: str) -> dict[str, Any]:
    return {**_no_change(case, None, []), "action": "install", "version": version, "flavour": flavour, "refusals": refusals}
