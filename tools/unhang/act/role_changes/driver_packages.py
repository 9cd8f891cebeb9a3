"""The packages of a driver: (family, release, branch, flavour) determines a package set, with its
source. Tables in, values out. A package's name may mislead: a package of one branch may be empty
and install another branch. Such a request is refused, with the branch that would be installed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Tables = Mapping[str, Iterable[Mapping[str, Any]]]
"""Rows of the catalogue's tables driver_packages, ubuntu_driver_packages, gpu_architectures and
driver_branches, by the table's name."""

FAMILIES = ("debian", "ubuntu", "nvidia-deb", "redhat")
PLAIN_NAMES_FROM = 590  # from this branch on NVIDIA's package names do not contain the branch
FIRST_OPEN = 515
REDHAT_RELEASES = ("8", "9", "10")
_UBUNTU_NAME = re.compile(r"^nvidia-driver-(\d+)(-server)?(-open)?$")


class NotOffered(ValueError):
    """The source has no such driver. The text names the drivers that it has."""


@dataclass(frozen=True)
class PackageSet:
    """packages: to install; before: packages that choose the branch, which are installed first;
    streams: {module of dnf: stream} to enable first. pin: source packages, or globs of names, that
    must have the same version. proof: executed, simulated or table; a `table` row needs an explicit
    yes. library: the package whose version is read back."""

    packages: tuple[str, ...]
    proof: str
    before: tuple[str, ...] = ()
    streams: Mapping[str, str] = field(default_factory=dict)
    pin: tuple[str, ...] = ()
    library: str | None = None
    fabric_manager: tuple[str, ...] = ()
    note: str | None = None


def package_set(
    family: str, release: str, branch: str, flavour: str, tables: Tables, kernel: str = "generic"
) -> PackageSet:
    """The set of a family (one of FAMILIES), its release (12, 24.04, 9), a branch (535) and a
    flavour (open, proprietary). Raises NotOffered.

    kernel: Ubuntu's name for the kernels that need prebuilt modules (generic, generic-hwe-24.04,
    aws …).
    """
    if flavour not in ("open", "proprietary"):
        raise NotOffered(f"the flavour must be open or proprietary, and is {flavour!r}")
    if not branch.isdigit():
        raise NotOffered(f"{branch!r} is not a branch such as 580")
    makers = {"debian": _debian, "ubuntu": _ubuntu, "nvidia-deb": _nvidia_deb, "redhat": _redhat}
    if family not in makers:
        raise NotOffered(f"the family {family!r} is not one of {', '.join(FAMILIES)}")
    return makers[family](release, branch, flavour, tables, kernel)


def _debian(release: str, branch: str, flavour: str, tables: Tables, _kernel: str) -> PackageSet:
    rows = [
        row
        for row in tables["driver_packages"]
        if row["family"] == "debian" and row["release"] == release
    ]
    for row in rows:
        if row["branch"] != branch or row["flavour"] != flavour:
            continue
        if "stands_for" in row:
            raise NotOffered(
                f"driver {branch} is not on offer: {row['packages'][0]} {row['version']} of Debian"
                f" {release} installs {row['stands_for']}"
            )
        return PackageSet(
            tuple(row["packages"]),
            row["proof"],
            pin=tuple(row["pin"]),
            library=row["library"],
            note=row.get("note"),
        )
    offered = ", ".join(
        sorted(f"{row['branch']} {row['flavour']}" for row in rows if "stands_for" not in row)
    )
    raise NotOffered(
        f"Debian {release} does not offer driver {branch} {flavour}; it offers"
        f" {offered or 'none that is known'}"
    )


def _ubuntu(release: str, branch: str, flavour: str, tables: Tables, kernel: str) -> PackageSet:
    """The data-centre packages (-server) if they exist for the branch, else the desktop ones.
    Without prebuilt modules of the branch, modules are built on the node."""
    rows = {
        row["package"]: row for row in tables["ubuntu_driver_packages"] if row["release"] == release
    }
    opened = "-open" if flavour == "open" else ""
    names = [f"{branch}-server{opened}", f"{branch}{opened}"]
    for name in names:
        row = rows.get(f"nvidia-driver-{name}")
        if row and "pulls_in" not in row:
            fabric = (f"nvidia-fabricmanager-{branch}", f"libnvidia-nscq-{branch}")
            pin = (f"*nvidia*-{branch}*",)
            ready = rows.get(f"linux-modules-nvidia-{name}-generic")
            modules = (
                f"linux-modules-nvidia-{name}-{kernel}"
                if ready and "pulls_in" not in ready
                else f"nvidia-dkms-{name}"
            )
            return PackageSet(
                (f"nvidia-driver-{name}", modules),
                "table",
                pin=pin,
                library=f"libnvidia-compute-{_bare(name)}",
                fabric_manager=fabric,
            )
    empty = next(
        (rows[f"nvidia-driver-{name}"] for name in names if f"nvidia-driver-{name}" in rows), None
    )
    if empty:
        found = (
            f"{empty['package']} {empty['version']} of Ubuntu {release} is empty and installs"
            f" {empty['pulls_in']}"
        )
        raise NotOffered(
            f"driver {branch} {flavour} is not on offer: {found}; offered are"
            f" {_offered(rows, flavour)}"
        )
    raise NotOffered(
        f"Ubuntu {release} does not offer driver {branch} {flavour}; it offers"
        f" {_offered(rows, flavour)}"
    )


def _bare(name: str) -> str:
    """The branch without its flavour, for libraries, which are the same for both flavours."""
    return name.removesuffix("-open")


def _offered(rows: Mapping[str, Mapping[str, Any]], flavour: str) -> str:
    found = set()
    for name, row in rows.items():
        matched = _UBUNTU_NAME.match(name)
        if matched and "pulls_in" not in row and bool(matched.group(3)) == (flavour == "open"):
            found.add(matched.group(1))
    return ", ".join(sorted(found)) or "none that is known"


def _nvidia_deb(
    _release: str, branch: str, flavour: str, tables: Tables, _kernel: str
) -> PackageSet:
    """NVIDIA's repository for Debian and Ubuntu: up to 580 the branch is part of the package names;
    later a package with pins chooses it."""
    _check_branch(branch, flavour, tables)
    plain = int(branch) >= PLAIN_NAMES_FROM
    name = "nvidia-open" if flavour == "open" else "cuda-drivers"
    end = "" if plain else f"-{branch}"
    before = (f"nvidia-driver-pinning-{branch}",) if plain else ()
    fabric = (f"nvidia-fabricmanager{end}",)
    return PackageSet(
        (name + end,),
        "table",
        before=before,
        pin=("*nvidia*", "cuda-drivers*", "libcuda1"),
        library="libnvidia-compute",
        fabric_manager=fabric,
    )


def _redhat(release: str, branch: str, flavour: str, tables: Tables, _kernel: str) -> PackageSet:
    """NVIDIA's repository for RHEL-like systems: module streams up to 9, version locks from 10 on,
    which has no modules."""
    if release not in REDHAT_RELEASES:
        raise NotOffered(f"release {release!r} is not one of {', '.join(REDHAT_RELEASES)}")
    _check_branch(branch, flavour, tables)
    pin, fabric = (f"*nvidia*{branch}*",), ("nvidia-fabricmanager", "libnvidia-nscq")
    if release == "10":
        if flavour != "open":
            raise NotOffered(
                f"release 10 has open modules alone, not {flavour} ones; ask for flavour open"
            )
        return PackageSet(
            ("nvidia-open",),
            "table",
            pin=pin,
            library="nvidia-driver-cuda-libs",
            fabric_manager=fabric,
        )
    stream = f"{branch}-open" if flavour == "open" else f"{branch}-dkms"
    packages = (
        ("nvidia-open",) if flavour == "open" else ("nvidia-driver", "kmod-nvidia-latest-dkms")
    )
    return PackageSet(
        packages,
        "table",
        streams={"nvidia-driver": stream},
        pin=pin,
        library="nvidia-driver-cuda-libs",
        fabric_manager=fabric,
    )


def _check_branch(branch: str, flavour: str, tables: Tables) -> None:
    row = next((row for row in tables["driver_branches"] if row["branch"] == branch), None)
    if row is None:
        raise NotOffered(
            f"{branch} is not a driver branch that unhang knows; it knows"
            f" {', '.join(row['branch'] for row in tables['driver_branches'])}"
        )
    if flavour == "open" and int(branch) < FIRST_OPEN:
        raise NotOffered(f"open modules begin with {FIRST_OPEN}, so {branch} has none")
    if row["modules"] not in ("either", flavour):
        raise NotOffered(f"{branch} has {row['modules']} modules alone, not {flavour} ones")


def flavour_faults(
    architectures: Iterable[str], branch: str, flavour: str, tables: Tables
) -> Iterator[str]:
    """Reasons why GPUs of these architectures cannot use a driver of this branch and flavour, a
    line each."""
    known = {row["architecture"]: row for row in tables["gpu_architectures"]}
    for name in sorted(set(architectures)):
        row = known.get(name)
        if row is None:
            yield f"the architecture {name} is not known"
            continue
        if row["modules"] not in ("either", flavour):
            yield f"{name}: takes {row['modules']} modules alone, asked for are {flavour} ones"
        if "last_branch" in row and int(branch) > int(row["last_branch"]):
            yield f"{name}: its last branch is {row['last_branch']}, asked for is {branch}"
        if "first_driver" in row and int(branch) < int(row["first_driver"].split(".")[0]):
            yield f"{name}: needs driver {row['first_driver']} or newer, asked for is {branch}"
