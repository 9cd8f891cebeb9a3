"""The package sets that can provide a node's driver, source by source, and the fabric manager that
belongs to each. Tables in, values out."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from unhang.act.role_changes.driver_inputs import (
    DriverInputs,
    chosen_flavour,
    kernel_stream,
    offered_version,
    sources,
    wanted_branch,
)
from unhang.act.role_changes.driver_packages import NotOffered, PackageSet, package_set
from unhang.act.role_changes.node_refusals import Refusal, refusal
from unhang.core.catalogue.own_tables import table
from unhang_node.base.parse.nvidia_driver import branch_of

FABRIC_PACKAGES = ("nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "libnvsdm")
TABLES = (
    "driver_packages",
    "ubuntu_driver_packages",
    "driver_branches",
    "gpu_architectures",
    "cuda_majors",
    "gpu_models",
)
# Further packages whose offers are listed, so that a refusal can name what exists.
ON_OFFER = (
    "nvidia-driver",
    "nvidia-driver-[0-9]*",
    "nvidia-tesla-driver",
    "nvidia-tesla-*-driver",
    "cuda-drivers",
    "cuda-drivers-*",
    "nvidia-open*",
)
# these have the kernel's version, or none
NO_DRIVER_VERSION = ("linux-modules-nvidia-", "nvidia-driver-pinning-")
_FAMILY = re.compile(r"-(tesla(?:-\d{3})?|\d{3})(?:-|$)")


@functools.cache
def read_tables() -> dict[str, list[dict[str, Any]]]:
    """The catalogue's tables that a plan needs, rows by table; the audit reads the same ones.
    Raises UserError."""
    return {name: list(table(name).values()) for name in TABLES}


def names_to_ask(inputs: DriverInputs) -> list[str]:
    """Packages (names and globs) whose offered versions plan_driver needs. [] if the policy names
    no driver."""
    branch = wanted_branch(inputs.desired)
    if branch is None:
        return []
    names = {*ON_OFFER, *(row["name"] for row in inputs.fact("driver.packages") or ())}
    for found in sets_of(inputs, branch):
        if isinstance(found, PackageSet):
            names |= {
                *found.packages,
                *found.fabric_manager,
                *found.before,
                *([found.library] if found.library else []),
            }
    return sorted(names)


def sets_of(inputs: DriverInputs, branch: str) -> Iterator[PackageSet | str]:
    """The set of each source, or the reason why it has none, in order."""
    flavour = chosen_flavour(inputs, branch)
    for family, release in sources(inputs):
        try:
            yield package_set(
                family, release, branch, flavour, inputs.tables, kernel_stream(inputs)
            )
        except NotOffered as problem:
            yield str(problem)


def family_of(name: str) -> str | None:
    """tesla-535 from nvidia-tesla-535-driver, 580 from libnvidia-compute-580-server, None from
    nvidia-driver."""
    matched = _FAMILY.search(name)
    return matched.group(1) if matched else None


def fabric_of(
    inputs: DriverInputs, packages: PackageSet, version: str, refusals: list[Refusal]
) -> dict[str, str]:
    """Fabric manager (and packages that need its version) for the same transaction; {} on a node
    without NVSwitch."""
    if (
        not inputs.fact("fabric_manager.nvswitch_present")
        or (inputs.policy.get("fabric_manager") or {}).get("match_driver") is False
    ):
        return {}
    return _fabric_versions(inputs, packages, version, refusals)


def fabric_packages(inputs: DriverInputs, version: str, refusals: list[Refusal]) -> dict[str, str]:
    """{package: version} of the fabric manager for an installed driver, from the first source that
    offers it; otherwise the reason is added to refusals."""
    problems: list[Refusal] = []
    for found in sets_of(inputs, str(branch_of(version))):
        missing: list[Refusal] = []
        fabric = (
            _fabric_versions(inputs, found, version, missing)
            if isinstance(found, PackageSet)
            else {}
        )
        if fabric and not missing:
            return fabric
        problems += missing
    refusals += problems[:1] or [
        refusal(
            "no-fabric-manager",
            f"a fabric manager {version}",
            "none that goes with this system",
            inputs.host,
            "install it by hand",
        )
    ]
    return {}


def _fabric_versions(
    inputs: DriverInputs, packages: PackageSet, version: str, refusals: list[Refusal]
) -> dict[str, str]:
    there = [
        name
        for name in inputs.installed
        if name.startswith(FABRIC_PACKAGES) and not name.endswith(("-dev", "-devel"))
    ]
    wanted = sorted(
        {
            *packages.fabric_manager,
            *(name for name in there if family_of(name) in (None, branch_of(version))),
        }
    )
    found = {name: offered_version(inputs, name, version) for name in wanted}
    missing = [name for name in wanted if found[name] is None]
    if missing or not wanted:
        what = (
            f"{', '.join(missing) or 'a fabric manager'} {version} on offer beside the driver, for"
            " this node has NVSwitch"
        )
        rows = [
            f"{name}"
            f" {', '.join(row['version'] for row in inputs.offers.get(name) or ()) or 'not offered'}"  # noqa: E501
            for name in missing
        ]
        next_step = (
            "add NVIDIA's repository, or set unhang_policy.fabric_manager.match_driver to false"
            " where another machine runs it"
        )
        refusals.append(
            refusal(
                "no-fabric-manager",
                what,
                "; ".join(rows) or "none that goes with these packages",
                inputs.host,
                next_step,
            )
        )
    return {name: own for name, own in found.items() if own}
