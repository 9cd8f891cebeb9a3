"""Packages that must keep their version: the groups that a policy may hold. Values in, values
out."""

from __future__ import annotations

import re
from typing import Iterable, List

from ...base.parse.dpkg import Database, Package
from ...facts.sections.package_database import KERNEL, NCCL, driver_packages

OFED = (
    "mlnx-",
    "ofed-",
    "doca-ofed",
    "doca-kernel",
    "kmod-mlnx",
    "mlnx-ofa_kernel",
    "rdma-core",
    "libibverbs",
    "ibverbs-",
    "librdmacm",
)
GROUPS = ("driver", "kernel", "nccl", "ofed")
_DRIVER_VERSION = re.compile(r"^(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)(?:[-+~]|$)")


class NotPossible(ValueError):
    """The reason why nothing may be held: expected, found, next step, in one line."""


def chosen_packages(database: Database, groups: Iterable[str]) -> List[Package]:
    """Installed packages of the groups, sorted and once each. groups: names of GROUPS."""
    found = {}
    for group in groups:
        rows = (
            driver_packages(database)
            if group == "driver"
            else database.named({"kernel": KERNEL, "nccl": NCCL, "ofed": OFED}[group])
        )
        for package in rows:
            if not package.name.startswith("dkms"):  # a build tool, not a kernel
                found[(package.name, package.architecture, package.version)] = package
    return [found[key] for key in sorted(found)]


def check_driver(database: Database, version: str) -> None:
    """Raises NotPossible if the installed driver is not `version`: a hold would keep the wrong
    driver."""
    found = set()
    for package in driver_packages(database):
        matched = _DRIVER_VERSION.match(package.version)
        if matched:
            found.add(matched.group(1))
    if version not in found:
        installed = ", ".join(sorted(found)) or "no driver package"
        raise NotPossible(
            f"driver {installed} is installed, not {version}; install the policy's driver before it"
            " is held"
        )


def dpkg_name(package: Package) -> str:
    """The name in dpkg's form: with its architecture if there can be several."""
    return str(
        package.name
        if package.architecture in ("all", "")
        else f"{package.name}:{package.architecture}"
    )
