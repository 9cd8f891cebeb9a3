"""What a driver plan is made from: the node's facts, its policy, what is on offer, who uses the GPUs. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unhang_node.parse.nvidia_driver import branch_of, upstream_version
from unhang_node.versions.compare import compare_versions, holds

NVIDIA_REPOSITORY = re.compile(r"^(cuda-drivers(-\d+)?|nvidia-open(-\d+)?|nvidia-driver-pinning-\d+|kmod-nvidia-latest-dkms)$")
PROPRIETARY_BELOW = 560  # from this branch on NVIDIA's own installer takes the open modules where the GPUs allow it


@dataclass(frozen=True)
class Options:
    """What an operator may say. source: auto, distribution or nvidia; each flag allows what is refused without it.

    reboot: the node boots when all is done; previews: nothing is changed, and what another role would have done has not been done.
    """

    source: str = "auto"
    accept_unproved: bool = False
    allow_in_use: bool = False
    module_key_enrolled: bool = False
    reboot: bool = False
    previews: bool = False


@dataclass(frozen=True)
class DriverInputs:
    """sections: of the node facts. offers: {package: [{version, origin}]}, newest first; installed: {package: {version, …}}. users: of gpu_users.

    streams: {module of dnf: {streams, default, enabled}}, empty where repositories are flat.

    tables: rows of the catalogue by table: driver_packages, ubuntu_driver_packages, driver_branches, gpu_architectures, gpu_models, cuda_majors.
    """

    host: str
    sections: Mapping[str, Any]
    policy: Mapping[str, Any]
    tables: Mapping[str, Any]
    offers: Mapping[str, Any] = field(default_factory=dict)
    installed: Mapping[str, Any] = field(default_factory=dict)
    users: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    streams: Mapping[str, Any] = field(default_factory=dict)

    def fact(self, path: str) -> Any:
        """The fact at a dotted path, None where any step is missing or not read."""
        value: Any = self.sections
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    @property
    def desired(self) -> Mapping[str, Any]:
        """What the policy says of the driver."""
        return self.policy.get("driver") or {}


def same(left: str | None, right: str | None) -> bool:
    """Whether two driver versions are one."""
    return bool(left and right) and holds(compare_versions(left, right, "driver"), "==") is True


def within(version: str | None, desired: Mapping[str, Any]) -> bool:
    """Whether a driver version is one that the policy allows."""
    if not version:
        return False
    pairs = (("version", "=="), ("min", ">="), ("max", "<="))
    return all(holds(compare_versions(version, desired[key], "driver"), operator) is True for key, operator in pairs if key in desired)


def wanted_branch(desired: Mapping[str, Any]) -> str | None:
    """The branch that the policy's version lies in, or its lower bound, or its upper one."""
    return branch_of(desired.get("version") or desired.get("min") or desired.get("max"))


def offered_version(inputs: DriverInputs, name: str, version: str) -> str | None:
    """The package's own version that carries a driver version: the installed one when it does, else the newest on offer; None when there is none."""
    row = inputs.installed.get(name)
    if row and same(upstream_version(row["version"]), version):
        return str(row["version"])
    return next((str(row["version"]) for row in inputs.offers.get(name) or () if same(upstream_version(row["version"]), version)), None)


def packaged_driver(inputs: DriverInputs) -> str | None:
    """Version of the driver that the node's packages make up, None when there are none. That of the library: modules and metapackages may lag."""
    rows = {row["name"]: row["version"] for row in inputs.fact("driver.packages") or ()}
    for start in ("libnvidia-ml1", "libnvidia-compute", "libnvidia-tesla", "nvidia-driver-cuda-libs", "nvidia-driver-", "nvidia-driver", "cuda-drivers"):
        for name in sorted(rows):
            version = upstream_version(rows[name])
            if name.startswith(start) and version and re.match(r"\d{3}\.", version):
                return version
    return None


def chosen_flavour(inputs: DriverInputs, branch: str) -> str:
    """The policy's flavour; else the only one that the GPUs take; else the loaded one; else what NVIDIA takes for the branch."""
    if inputs.desired.get("flavour"):
        return str(inputs.desired["flavour"])
    known = {row["architecture"]: row["modules"] for row in inputs.tables["gpu_architectures"]}
    needed = {known.get(name) for name in architectures(inputs)} & {"open", "proprietary"}
    if len(needed) == 1:
        return str(needed.pop())
    loaded = inputs.fact("driver.loaded.flavour")
    if loaded:
        return str(loaded)
    return "proprietary" if int(branch) < PROPRIETARY_BELOW else "open"


def architectures(inputs: DriverInputs) -> list[str]:
    """Architectures of the node's GPUs, as far as the driver reported them."""
    return sorted({gpu["architecture"] for gpu in inputs.fact("gpus.devices") or () if gpu.get("architecture") not in (None, "unknown")})


def sources(inputs: DriverInputs) -> list[tuple[str, str]]:
    """(family, release) of the places to take a driver from, in the order in which they are tried; [] for a system that nobody knows."""
    system, version, family = inputs.fact("node.os.id"), str(inputs.fact("node.os.version_id") or ""), inputs.fact("node.os.family")
    if family == "redhat":
        return [("redhat", version.split(".")[0])]
    own = [(str(system), version)] if system in ("debian", "ubuntu") else []
    nvidia = [("nvidia-deb", version)] if own else []
    if inputs.options.source != "auto":
        return own if inputs.options.source == "distribution" else nvidia
    return nvidia + own if any(NVIDIA_REPOSITORY.match(name) for name in inputs.installed) else own + nvidia


def kernel_stream(inputs: DriverInputs) -> str:
    """Ubuntu's name for the node's kernels: generic, generic-hwe-24.04, aws …"""
    version = inputs.fact("node.os.version_id")
    names = {row["name"] for row in inputs.fact("packages.installed") or ()}
    release = str(boot_release(inputs) or "")
    flavour = release.split("-", 2)[2] if release.count("-") >= 2 else "generic"
    stream = f"{flavour}-hwe-{version}"
    return stream if {f"linux-{stream}", f"linux-image-{stream}"} & names else flavour


def boot_release(inputs: DriverInputs) -> str | None:
    """Release of the kernel that boots next; where that is unknown, the running one's."""
    release = inputs.fact("kernel.boot.default_release") or inputs.fact("kernel.release")
    return str(release) if release else None
