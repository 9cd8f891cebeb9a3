"""Plans the change to the policy's driver: packages with exact versions, pins, removals, and
reasons to refuse. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from unhang.act.role_changes import driver_refusals
from unhang.act.role_changes.driver_inputs import (
    DriverInputs,
    chosen_flavour,
    offered_version,
    packaged_driver,
    same,
    sources,
    wanted_branch,
    within,
)
from unhang.act.role_changes.driver_packages import PackageSet
from unhang.act.role_changes.driver_sets import (
    FABRIC_PACKAGES,
    NO_DRIVER_VERSION,
    fabric_of,
    family_of,
    sets_of,
)
from unhang.act.role_changes.node_refusals import Refusal, refusal
from unhang_node.base.parse.nvidia_driver import branch_of, upstream_version
from unhang_node.base.versions.compare import compare_versions, holds
from unhang_node.change.gpu.services import FABRIC_MANAGER

PIN_FILE = "/etc/apt/preferences.d/unhang-driver"

# Packages from other sources than the driver: they have versions of their own, and both families
# use them.
SHARED: tuple[str, ...] = (
    "nvidia-settings",
    "nvidia-xconfig",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-support",
    "nvidia-kernel-common",
)
SHARED += (
    "glx-",
    "nvidia-prime",
    "nvidia-installer-cleanup",
    "libnvidia-egl-",
    "libxnvctrl",
    "nvidia-suspend-common",
)
DRIVER_SOURCES = ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules")
_MODULES = re.compile(
    r"(nvidia(-tesla(-\d+)?)?(-open)?-kernel-(dkms|support)|nvidia-dkms-.*|linux-modules-nvidia-.*|kmod-nvidia-.*|nvidia-open)$"
)


def plan_driver(inputs: DriverInputs) -> dict[str, Any]:
    """{action: none|install, version, flavour, install, remove, allow_remove, expect, pin, streams,
    refusals, notes, proof, before, services, reload, …}."""
    present = packaged_driver(inputs)
    branch = wanted_branch(inputs.desired)
    if branch is None:
        return _no_change(
            inputs,
            present,
            ["unhang_policy.driver names no version, min or max: the driver stays as it is"],
        )
    version = _target(inputs, branch, present)
    flavour = chosen_flavour(inputs, branch)
    if version is None:
        reasons = [found for found in sets_of(inputs, branch) if isinstance(found, str)]
        return _refused(
            inputs, [not_offered(inputs, _desired_text(inputs), reasons)], None, flavour
        )
    stays = same(version, present) and "version" not in inputs.desired
    chosen, problems = _choose(inputs, str(branch_of(version)) if stays else branch, version)
    if chosen is None and stays:
        return _no_change(
            inputs,
            version,
            [
                f"driver {version} is one that the policy allows; nothing is pinned, for"
                f" {problems[0]['found']}"
            ],
        )
    if chosen is None:
        return _refused(
            inputs,
            problems
            + driver_refusals.refusals(inputs, PackageSet((), "executed"), version, flavour),
            version,
            flavour,
        )
    packages, install = chosen
    plan = _plan(inputs, packages, install, version, flavour)
    if plan["action"] == "none":
        return plan
    plan["refusals"] += driver_refusals.refusals(inputs, packages, version, flavour)
    return plan


def _target(inputs: DriverInputs, branch: str, present: str | None) -> str | None:
    """The exact version: the policy's, else the installed one if the policy allows it, else the
    newest offered one of the bound's branch."""
    desired = inputs.desired
    if "version" in desired:
        return str(desired["version"])
    if within(present, desired):
        return present
    best = None
    for found in sets_of(inputs, branch):
        rows = inputs.offers.get(found.packages[0], ()) if isinstance(found, PackageSet) else ()
        for version in (upstream_version(row["version"]) for row in rows):
            newer = version and (
                best is None or holds(compare_versions(version, best, "driver"), ">")
            )
            if within(version, desired) and branch_of(version) == branch and newer:
                best = version
    return best


def _desired_text(inputs: DriverInputs) -> str:
    bounds = [
        f"{key} {inputs.desired[key]}" for key in ("version", "min", "max") if key in inputs.desired
    ]
    return "driver " + ", ".join(bounds).removeprefix("version ")


def _choose(
    inputs: DriverInputs, branch: str, version: str
) -> tuple[tuple[PackageSet, dict[str, str]] | None, list[Refusal]]:
    """((the set, {package: its own version}), []) of the first source that offers all packages, or
    (None, refusals)."""
    reasons = []
    for found in sets_of(inputs, branch):
        if isinstance(found, str):
            reasons.append(found)
            continue
        install = {
            name: (
                "" if name.startswith(NO_DRIVER_VERSION) else offered_version(inputs, name, version)
            )
            for name in found.packages
        }
        missing = sorted(
            name
            for name, own in install.items()
            if own is None or not (inputs.offers.get(name) or inputs.installed.get(name))
        )
        if not missing:
            return (found, {name: own or "" for name, own in install.items()}), []
        reasons.append(f"{', '.join(missing)} not offered at {version}")
    if not sources(inputs):
        system = inputs.fact("node.os.pretty_name") or inputs.fact("node.os.id")
        reasons.append(f"{system} is no system whose driver packages are known")
    return None, [not_offered(inputs, f"driver {version}", reasons)]


def not_offered(inputs: DriverInputs, expected: str, reasons: Iterable[str]) -> Refusal:
    """The refusal, with a list of the offered versions."""
    names = [
        name
        for name in sorted(inputs.offers)
        if re.match(r"nvidia-(driver|tesla|open)|cuda-drivers", name)
        and not re.search("kernel|dkms", name)
    ]
    there = "; ".join(
        f"{name} {', '.join(row['version'] for row in inputs.offers[name][:6])}"
        for name in names
        if inputs.offers[name]
    )
    found = "; ".join(reasons) + f". On offer: {there or 'no driver package at all'}"
    return refusal(
        "not-offered",
        expected,
        found,
        inputs.host,
        "name one that is offered, or add the repository that has it and update its index",
    )


def _plan(
    inputs: DriverInputs, packages: PackageSet, install: dict[str, str], version: str, flavour: str
) -> dict[str, Any]:
    notes: list[str] = [packages.note] if packages.note else []
    refusals: list[Refusal] = []
    fabric = fabric_of(inputs, packages, version, refusals)
    library = _library(inputs, packages, version)
    leaves = other_sources(inputs, packages)
    install = {**companions(inputs, version, flavour), **install, **fabric}
    if leaves:  # apt would accept the old family's library as a dependency of the new driver
        install.update({name: own for name, own in library.items() if "*" not in own})
    expect = {**{name: own for name, own in install.items() if own}, **library}
    kept = {
        row["name"]
        for row in inputs.fact("driver.packages") or ()
        if inputs.installed.get(row["name"], {}).get("source") not in leaves
    }
    remove = sorted(
        kept & {*other_family(inputs, install, version), *other_flavour(inputs, install, flavour)}
    )
    streams, switched = _streams(inputs, packages, notes)
    action = (
        "install"
        if remove or leaves or refusals or switched or not _is_there(inputs, install, expect)
        else "none"
    )
    if not inputs.fact("kernel.boot.default_release"):
        notes.append(
            f"which kernel boots next is unknown; the plan is for {inputs.fact('kernel.release')},"
            " the running one"
        )
    plan = _no_change(inputs, version, notes)
    plan.update(
        action=action,
        version=version,
        flavour=flavour,
        install=install,
        expect=expect,
        remove=remove,
        remove_sources=leaves,
        proof=packages.proof,
    )
    plan.update(before=dict.fromkeys(packages.before, ""), refusals=refusals)
    plan["streams"] = streams
    plan["pin"] = (
        {} if _is_rpm(inputs) else {"file": PIN_FILE, "stanzas": pins(packages, install, version)}
    )
    plan["allow_remove"] = allowed_removals(inputs, version)
    plan["built_here"] = driver_refusals.is_built_here(packages)
    plan.update(_services(inputs, version))
    if action == "none":  # packages that an earlier run did not complete
        plan.update(stop=[], needs_reboot=_is_pending(inputs, version) and not plan["reload"])
    return plan


def _streams(
    inputs: DriverInputs, packages: PackageSet, notes: list[str]
) -> tuple[dict[str, str], bool]:
    """Module streams that the change enables; notes get a line if another one is enabled now."""
    streams = {
        module: stream for module, stream in packages.streams.items() if module in inputs.streams
    }
    if packages.streams and not streams:
        notes.append(
            "no repository of this node has module streams: the version alone chooses the branch"
        )
    return streams, any(
        inputs.streams[module].get("enabled") != stream for module, stream in streams.items()
    )


def _library(inputs: DriverInputs, packages: PackageSet, version: str) -> dict[str, str]:
    if not packages.library:
        return {}
    return {packages.library: offered_version(inputs, packages.library, version) or f"*{version}*"}


def _is_there(inputs: DriverInputs, install: Mapping[str, str], expect: Mapping[str, str]) -> bool:
    """Whether every package is completely installed at its version."""
    rows = {
        **{row["name"]: row for row in inputs.fact("driver.packages") or ()},
        **inputs.installed,
    }
    for name in {*install, *expect}:
        row, own = rows.get(name), expect.get(name) or install.get(name)
        if row is None or row.get("state", "installed") != "installed":
            return False
        if (
            own
            and row["version"] != own
            and not ("*" in own and same(upstream_version(row["version"]), own.strip("*")))
        ):
            return False
    return True


def _is_rpm(inputs: DriverInputs) -> bool:
    """Whether the node has rpm packages: they have no pins, and package_pin locks versions
    afterwards."""
    return bool(inputs.fact("node.os.family") == "redhat")


def companions(inputs: DriverInputs, version: str, flavour: str) -> dict[str, str]:
    """{package: version} of the driver's other installed packages on a node of rpm, at the wanted
    version if it is offered. The packages depend on each other's exact version: to install the
    named ones, dnf would remove the others (nvidia-smi among them)."""
    rows = (inputs.fact("driver.packages") or ()) if _is_rpm(inputs) else ()
    names = [
        row["name"]
        for row in rows
        if not (_MODULES.match(row["name"]) and ("-open" in row["name"]) != (flavour == "open"))
    ]
    found = {name: offered_version(inputs, name, version) for name in names}
    return {name: own for name, own in found.items() if own}


def other_family(inputs: DriverInputs, install: Iterable[str], version: str) -> list[str]:
    """Installed packages of a driver with other names than the wanted one: both would stay, and the
    old one might be loaded."""
    wanted = {
        family_of(name)
        for name in install
        if not name.startswith((*NO_DRIVER_VERSION, *FABRIC_PACKAGES))
    }
    found = []
    for row in inputs.fact("driver.packages") or ():
        own = upstream_version(row["version"])
        is_driver = (
            own
            and re.match(r"\d{3}\.", own)
            and not _is_shared(row["name"])
            and not _is_plain_fabric(row["name"])
        )
        if (
            is_driver
            and not same(own, version)
            and family_of(row["name"]) not in wanted
            and row["name"] not in install
        ):
            found.append(row["name"])
    return sorted(set(found))


def _is_shared(name: str) -> bool:
    """Whether packages of several families depend on it."""
    return name.startswith(SHARED) or name.endswith("-common")


def other_sources(inputs: DriverInputs, packages: PackageSet) -> list[str]:
    """Source packages of installed drivers other than the wanted one, if sources have names of
    their own: Debian's families can be installed side by side."""
    if any("*" in pin for pin in packages.pin):
        return []
    found = {
        str(row.get("source") or "")
        for name, row in inputs.installed.items()
        if not _is_shared(name)
    }
    return sorted(name for name in found - {*packages.pin} if name.startswith(DRIVER_SOURCES))


def other_flavour(inputs: DriverInputs, install: Iterable[str], flavour: str) -> list[str]:
    """Installed packages of kernel modules of the other flavour: otherwise there would be two
    modules of one version, and either might be loaded."""
    names = [
        row["name"] for row in inputs.fact("driver.packages") or () if _MODULES.match(row["name"])
    ]
    return sorted(
        name for name in names if ("-open" in name) != (flavour == "open") and name not in install
    )


def _is_plain_fabric(name: str) -> bool:
    """Whether a name has no branch, such as nvidia-fabricmanager, so that there is only one for all
    drivers."""
    return name.startswith(FABRIC_PACKAGES) and family_of(name) is None


def allowed_removals(inputs: DriverInputs, version: str) -> list[str]:
    """Names of installed driver packages of other versions: apt may remove these if they conflict,
    and no other packages."""
    rows = inputs.fact("driver.packages") or ()
    return sorted(
        {
            row["name"]
            for row in rows
            if not same(upstream_version(row["version"]), version)
            and not row["name"].startswith("dkms")
        }
    )


def pins(packages: PackageSet, install: Mapping[str, str], version: str) -> list[dict[str, str]]:
    """Stanzas of apt preferences for the whole set: source packages at their exact version, globs
    of names at the driver's."""
    named = not any("*" in pin for pin in packages.pin)
    own = [install[name] for name in packages.packages]
    stanzas = []
    for place, pin in enumerate(packages.pin):
        exact = own[min(place, len(own) - 1)] if named else ""
        stanzas.append(
            {"package": f"src:{pin}" if named else pin, "version": exact or f"{version}*"}
        )
    return stanzas


def _services(inputs: DriverInputs, version: str) -> dict[str, Any]:
    """The services to stop, and whether and how the modules are exchanged without a reboot."""
    loaded = inputs.fact("driver.loaded.is_loaded")
    foreign = driver_refusals.foreign_users(inputs)
    wanted = (
        bool(inputs.desired.get("reload"))
        and bool(loaded)
        and not same(inputs.fact("driver.loaded.version"), version)
    )
    against = foreign or driver_refusals.partitioned_gpus(inputs)
    why_not = f"the modules are not exchanged: {against[0]}" if wanted and against else None
    reload = wanted and not against and not inputs.options.reboot
    active = [row["unit"] for row in inputs.users.get("services") or () if row.get("active")]
    # Fabric manager is stopped only by the exchange itself, because the GPUs must be reset before
    # it starts again.
    stop = [] if foreign else [unit for unit in active if unit not in FABRIC_MANAGER]
    return {
        "stop": stop,
        "reload": reload,
        "why_no_reload": why_not,
        "needs_reboot": bool(loaded) and not reload,
    }


def _no_change(inputs: DriverInputs, version: str | None, notes: list[str]) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "install": {},
        "expect": {},
        "remove": [],
        "remove_sources": [],
        "allow_remove": [],
        "before": {},
        "refusals": [],
    }
    empty.update(pin={}, streams={})
    services = {
        "stop": [],
        "reload": False,
        "why_no_reload": None,
        "needs_reboot": _is_pending(inputs, version),
    }
    return {
        "action": "none",
        "version": version,
        "flavour": None,
        "proof": None,
        "built_here": False,
        "notes": notes,
        **empty,
        **services,
    }


def _is_pending(inputs: DriverInputs, version: str | None) -> bool:
    """Whether another driver is loaded than the packages hold."""
    return bool(version and inputs.fact("driver.loaded.is_loaded")) and not same(
        inputs.fact("driver.loaded.version"), version
    )


def _refused(
    inputs: DriverInputs, refusals: list[Refusal], version: str | None, flavour: str
) -> dict[str, Any]:
    return {
        **_no_change(inputs, None, []),
        "action": "install",
        "version": version,
        "flavour": flavour,
        "refusals": refusals,
    }
