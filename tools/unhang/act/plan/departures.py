"""Whether a node has another version than its policy of what a role installs: kernel, driver,
fabric manager, NCCL. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.act.role_changes.driver_inputs import same, within
from unhang.core.schemas.policy import Policy
from unhang_node.base.versions.compare import compare_versions, holds


def fact(sections: Any, path: str) -> Any:
    """A fact of typed sections by its path, None if it was not read."""
    value = sections
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


@dataclass(frozen=True)
class Present:
    """The versions on a node of what roles install; None if not read. settings: (name, source) of
    each line that sets a variable, in order."""

    kernel: str | None = None
    boots_next: str | None = None
    driver: str | None = None
    driver_on_disk: str | None = None
    flavour: str | None = None
    fabric_manager: str | None = None
    nccl: str | None = None
    settings: tuple[tuple[str | None, str | None], ...] = ()


def present_in(sections: Any) -> Present:
    """From typed sections, None for a node that was not read."""
    return Present(
        fact(sections, "kernel.release"),
        fact(sections, "kernel.boot.default_release"),
        fact(sections, "driver.loaded.version"),
        fact(sections, "driver.on_disk.version"),
        fact(sections, "driver.loaded.flavour"),
        fact(sections, "fabric_manager.version"),
        nccl_package(sections),
        tuple([(row.name, row.source) for row in fact(sections, "nccl.settings") or ()]),
    )


def departs(role: str, policy: Policy, present: Present) -> bool:
    """True when the node has another version than the policy asks for. False for a role without a
    version, and if the version was not read."""
    found = _DEPARTURES.get(role)
    return found is not None and found(policy, present)


def reads_version(role: str, reads: Collection[tuple[str, ...]]) -> bool:
    """Whether a rule that reads these facts is about the version that the role installs, not about
    something else such as a parameter."""
    return any(
        ".".join(path).startswith(start) for path in reads for start in _VERSION_FACTS.get(role, ())
    )


def nccl_package(sections: Any) -> str | None:
    """Version of the NCCL package on the node, None without one."""
    found = [
        row.version
        for row in fact(sections, "nccl.libraries") or ()
        if (row.package or "").startswith("libnccl2") and row.version
    ]
    return found[0] if found else None


def _kernel(policy: Policy, present: Present) -> bool:
    desired = policy.get("kernel") or {}
    return present.kernel is not None and not all(
        suits(one, desired, "kernel")
        for one in {present.kernel, present.boots_next or present.kernel}
    )


def _driver(policy: Policy, present: Present) -> bool:
    desired = policy.get("driver") or {}
    versions = [one for one in (present.driver, present.driver_on_disk) if one]
    return any(not within(one, desired) for one in versions) or bool(
        desired.get("flavour") and present.flavour and present.flavour != desired["flavour"]
    )


def _fabric(policy: Policy, present: Present) -> bool:
    matches = (policy.get("fabric_manager") or {}).get("match_driver") is not False
    return (
        matches
        and bool(present.fabric_manager and present.driver)
        and not same(present.fabric_manager, present.driver)
    )


def _nccl(policy: Policy, present: Present) -> bool:
    return present.nccl is not None and not suits(present.nccl, policy.get("nccl") or {}, "nccl")


def suits(version: str, desired: Mapping[str, Any], order: str) -> bool:
    """Whether this part of the policy allows a version."""
    pairs = (("version", "=="), ("min", ">="))
    return all(
        holds(compare_versions(version, str(desired[key]), order), operator) is True
        for key, operator in pairs
        if desired.get(key)
    )


_DEPARTURES: dict[str, Callable[[Mapping[str, Any], Present], bool]] = {
    "kernel": _kernel,
    "gpu_driver": _driver,
    "fabric_manager": _fabric,
    "nccl_profile": _nccl,
}
_VERSION_FACTS = {
    "kernel": ("kernel.release", "kernel.boot.default_release"),
    "gpu_driver": (
        "driver.loaded",
        "driver.on_disk",
        "driver.branch",
        "driver.packages",
        "driver.userspace",
        "kernel.dkms",
        "kernel.installed",
        "network.peermem",
    ),
    "fabric_manager": ("fabric_manager.version",),
    "nccl_profile": ("nccl.libraries",),
}
