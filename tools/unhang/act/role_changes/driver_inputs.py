"""The input of a driver plan: the node's facts, its policy, the offered packages, the users of the
GPUs. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unhang.core.strict_json import value_at
from unhang_node.base.parse.nvidia_driver import branch_of, upstream_version
from unhang_node.base.versions.compare import compare_versions, holds

NVIDIA_REPOSITORY = re.compile(
    r"^(cuda-drivers(-\d+)?|nvidia-open(-\d+)?|nvidia-driver-pinning-\d+|kmod-nvidia-latest-dkms)$"
)
# from this branch on NVIDIA's own installer chooses the open modules if the GPUs support them
PROPRIETARY_BELOW = 560


@dataclass(frozen=True)
class Options:
    """The operator's options. source: auto, distribution or nvidia; each flag allows something that
    is refused without it. reboot: the node is rebooted at the end; previews: check mode, in which
    earlier roles have made no changes either."""

    source: str = "auto"
    accept_unproved: bool = False
    allow_in_use: bool = False
    module_key_enrolled: bool = False
    reboot: bool = False
    previews: bool = False


@dataclass(frozen=True)
class DriverInputs:
    """sections: of the node facts. offers: {package: [{version, origin}]}, newest first; installed:
    {package: {version, …}}. users: of gpu_users.

    streams: {module of dnf: {streams, default, enabled}}, empty where repositories are flat.

    tables: rows of the catalogue by table: driver_packages, ubuntu_driver_packages,
    driver_branches, gpu_architectures, gpu_models, cuda_majors.
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
        """The fact at a dotted path, None if any part of it is missing or was not read."""
        return value_at(self.sections, path.split("."))

    @property
    def desired(self) -> Mapping[str, Any]:
        return self.policy.get("driver") or {}


def same(left: str | None, right: str | None) -> bool:
    return bool(left and right) and holds(compare_versions(left, right, "driver"), "==") is True


def within(version: str | None, desired: Mapping[str, Any]) -> bool:
    if not version:
        return False
    pairs = (("version", "=="), ("min", ">="), ("max", "<="))
    return all(
        holds(compare_versions(version, desired[key], "driver"), operator) is True
        for key, operator in pairs
        if key in desired
    )


def wanted_branch(desired: Mapping[str, Any]) -> str | None:
    """The branch of the policy's version, or of its lower bound, or of its upper bound."""
    return branch_of(desired.get("version") or desired.get("min") or desired.get("max"))


def offered_version(inputs: DriverInputs, name: str, version: str) -> str | None:
    """The package version that contains a driver version: the installed one if it does, else the
    newest that is offered; None if there is none."""
    row = inputs.installed.get(name)
    if row and same(upstream_version(row["version"]), version):
        return str(row["version"])
    return next(
        (
            str(row["version"])
            for row in inputs.offers.get(name) or ()
            if same(upstream_version(row["version"]), version)
        ),
        None,
    )


def packaged_driver(inputs: DriverInputs) -> str | None:
    """Version of the installed driver packages, None without any. The library's version counts,
    because modules and metapackages may be older."""
    rows = {row["name"]: row["version"] for row in inputs.fact("driver.packages") or ()}
    for start in (
        "libnvidia-ml1",
        "libnvidia-compute",
        "libnvidia-tesla",
        "nvidia-driver-cuda-libs",
        "nvidia-driver-",
        "nvidia-driver",
        "cuda-drivers",
    ):
        for name in sorted(rows):
            version = upstream_version(rows[name])
            if name.startswith(start) and version and re.match(r"\d{3}\.", version):
                return version
    return None


def chosen_flavour(inputs: DriverInputs, branch: str) -> str:
    """The policy's flavour; else the only one that the GPUs support; else the loaded one; else
    NVIDIA's default for the branch."""
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
    return sorted(
        {
            gpu["architecture"]
            for gpu in inputs.fact("gpus.devices") or ()
            if gpu.get("architecture") not in (None, "unknown")
        }
    )


def sources(inputs: DriverInputs) -> list[tuple[str, str]]:
    """(family, release) of the sources of a driver, in the order of trial; [] for an unknown
    operating system."""
    system, version, family = (
        inputs.fact("node.os.id"),
        str(inputs.fact("node.os.version_id") or ""),
        inputs.fact("node.os.family"),
    )
    if family == "redhat":
        return [("redhat", version.split(".")[0])]
    own = [(str(system), version)] if system in ("debian", "ubuntu") else []
    nvidia = [("nvidia-deb", version)] if own else []
    if inputs.options.source != "auto":
        return own if inputs.options.source == "distribution" else nvidia
    return (
        nvidia + own
        if any(NVIDIA_REPOSITORY.match(name) for name in inputs.installed)
        else own + nvidia
    )


def kernel_stream(inputs: DriverInputs) -> str:
    """Ubuntu's name for the node's kernels: generic, generic-hwe-24.04, aws …"""
    version = inputs.fact("node.os.version_id")
    names = {row["name"] for row in inputs.fact("packages.installed") or ()}
    release = str(boot_release(inputs) or "")
    flavour = release.split("-", 2)[2] if release.count("-") >= 2 else "generic"
    stream = f"{flavour}-hwe-{version}"
    return stream if {f"linux-{stream}", f"linux-image-{stream}"} & names else flavour


def is_without_kernels(inputs: DriverInputs) -> bool:
    """Whether kernels were looked for and there are none, or the node is a container, in which
    those of its machine cannot be read."""
    return bool(
        inputs.fact("kernel.installed") == [] or inputs.fact("node.virtualization.is_container")
    )


def boot_release(inputs: DriverInputs) -> str | None:
    """Release of the kernel that boots next; if that is unknown, of the running one."""
    release = inputs.fact("kernel.boot.default_release") or inputs.fact("kernel.release")
    return str(release) if release else None
