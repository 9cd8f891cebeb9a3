"""Packages of a driver, as a table: the request, its package set, and the proof of the set."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.act.role_changes.driver_packages import (
    FAMILIES,
    NotOffered,
    flavour_faults,
    package_set,
)
from unhang.core.strict_yaml import load_yaml

UNHANG = Path(__file__).parents[5] / "tools" / "unhang"


def _rows(file, table):
    (path,) = UNHANG.glob(f"*/catalogue/tables/{file}")
    return load_yaml(path)[0]["tables"][table]["rows"]


TABLES = {
    "driver_packages": _rows("driver_packages.yml", "driver_packages"),
    "ubuntu_driver_packages": _rows("ubuntu_packages.yml", "ubuntu_driver_packages"),
    "driver_branches": _rows("driver_branches.yml", "driver_branches"),
    "gpu_architectures": _rows("cuda.yml", "gpu_architectures"),
}
OPEN, OLD = "open", "proprietary"
EXPECTED = [
    # family, release, branch, flavour, packages, packages and streams before, proof
    ("debian", "12", "535", OLD, "nvidia-driver nvidia-kernel-dkms", "", "executed"),
    ("debian", "12", "535", OPEN, "nvidia-driver nvidia-open-kernel-dkms", "", "simulated"),
    (
        "debian",
        "12",
        "470",
        OLD,
        "nvidia-tesla-470-driver nvidia-tesla-470-kernel-dkms",
        "",
        "simulated",
    ),
    ("debian", "13", "550", OLD, "nvidia-driver nvidia-kernel-dkms", "", "executed"),
    ("debian", "13", "550", OPEN, "nvidia-driver nvidia-open-kernel-dkms", "", "simulated"),
    (
        "debian",
        "13",
        "535",
        OLD,
        "nvidia-tesla-535-driver nvidia-tesla-535-kernel-dkms",
        "",
        "executed",
    ),
    (
        "ubuntu",
        "22.04",
        "580",
        OLD,
        "nvidia-driver-580-server linux-modules-nvidia-580-server-generic",
        "",
        "table",
    ),
    (
        "ubuntu",
        "24.04",
        "580",
        OPEN,
        "nvidia-driver-580-server-open linux-modules-nvidia-580-server-open-generic",
        "",
        "table",
    ),
    (
        "ubuntu",
        "24.04",
        "595",
        OPEN,
        "nvidia-driver-595-server-open linux-modules-nvidia-595-server-open-generic",
        "",
        "table",
    ),
    (
        "ubuntu",
        "26.04",
        "615",
        OPEN,
        "nvidia-driver-615-server-open nvidia-dkms-615-server-open",
        "",
        "table",
    ),
    ("ubuntu", "22.04", "545", OLD, "nvidia-driver-545 nvidia-dkms-545", "", "table"),
    ("nvidia-deb", "12", "535", OLD, "cuda-drivers-535", "", "table"),
    ("nvidia-deb", "24.04", "580", OPEN, "nvidia-open-580", "", "table"),
    ("nvidia-deb", "24.04", "590", OPEN, "nvidia-open", "nvidia-driver-pinning-590", "table"),
    ("nvidia-deb", "24.04", "595", OLD, "cuda-drivers", "nvidia-driver-pinning-595", "table"),
    ("redhat", "9", "580", OPEN, "nvidia-open", "nvidia-driver:580-open", "table"),
    (
        "redhat",
        "8",
        "535",
        OLD,
        "nvidia-driver kmod-nvidia-latest-dkms",
        "nvidia-driver:535-dkms",
        "table",
    ),
    ("redhat", "10", "580", OPEN, "nvidia-open", "", "table"),
]


@pytest.mark.parametrize(
    ("family", "release", "branch", "flavour", "packages", "before", "proof"), EXPECTED
)
def test_the_set_of_a_driver(family, release, branch, flavour, packages, before, proof):
    found = package_set(family, release, branch, flavour, TABLES)
    assert " ".join(found.packages) == packages
    assert " ".join([*found.before, *map(":".join, found.streams.items())]) == before
    assert found.proof == proof
    assert found.pin


def test_every_family_has_rows():
    assert {row[0] for row in EXPECTED} == set(FAMILIES)


@pytest.mark.parametrize(
    ("family", "release", "branch", "flavour", "says"),
    [
        ("debian", "12", "525", OLD, "installs 535"),
        ("debian", "12", "580", OLD, "it offers 470 proprietary, 535 open, 535 proprietary"),
        ("debian", "13", "535", OPEN, "it offers 535 proprietary, 550 open, 550 proprietary"),
        ("ubuntu", "22.04", "535", OLD, "is empty and installs nvidia-driver-580-server"),
        ("ubuntu", "22.04", "535", OPEN, "is empty and installs nvidia-driver-580-server-open"),
        ("ubuntu", "22.04", "570", OLD, "installs nvidia-driver-580-server"),
        ("ubuntu", "24.04", "615", OLD, "is empty and installs nvidia-driver-615-server-open"),
        ("ubuntu", "24.04", "555", OPEN, "Ubuntu 24.04 does not offer"),
        ("nvidia-deb", "24.04", "470", OPEN, "begin with 515"),
        ("nvidia-deb", "24.04", "620", OLD, "open modules alone"),
        ("nvidia-deb", "24.04", "999", OLD, "it knows"),
        ("redhat", "10", "580", OLD, "ask for flavour open"),
        ("redhat", "7", "470", OLD, "is not one of 8, 9, 10"),
        ("arch", "1", "580", OPEN, "is not one of debian"),
        ("debian", "12", "535.261.03", OLD, "is not a branch such as 580"),
        ("debian", "12", "535", "opened", "the flavour must be"),
    ],
)
def test_what_is_not_offered_is_refused_with_what_there_is(family, release, branch, flavour, says):
    with pytest.raises(NotOffered) as refused:
        package_set(family, release, branch, flavour, TABLES)
    assert says in str(refused.value)


def packages_of(release, branch, flavour):
    """None where the table offers nothing."""
    try:
        return package_set("ubuntu", release, branch, flavour, TABLES).packages
    except NotOffered:
        return None


def test_no_set_of_ubuntu_holds_an_empty_package():
    """Whatever is asked for, a package that installs another branch is never the answer."""
    empty = [
        row
        for row in TABLES["ubuntu_driver_packages"]
        if "pulls_in" in row and row["package"].startswith("nvidia-driver-")
    ]
    sets = [
        (row, packages_of(row["release"], row["package"].split("-")[2], flavour))
        for row in empty
        for flavour in (OPEN, OLD)
    ]
    offered = [(row, packages) for row, packages in sets if packages is not None]
    assert (
        offered and [row["name"] for row, packages in offered if row["package"] in packages] == []
    )


@pytest.mark.parametrize(
    ("architectures", "branch", "flavour", "says"),
    [
        (["blackwell"], "580", OLD, ["takes open modules alone"]),
        (["blackwell"], "550", OPEN, ["needs driver 570.26 or newer"]),
        (["volta"], "580", OPEN, ["takes proprietary modules alone"]),
        (["maxwell"], "595", OLD, ["its last branch is 580"]),
        (["hopper", "ampere"], "580", OPEN, []),
        (["pascal", "hopper"], "595", OPEN, ["takes proprietary", "its last branch is 580"]),
        (["fermi"], "580", OLD, ["the architecture"]),
    ],
)
def test_gpus_that_cannot_run_a_driver_say_why(architectures, branch, flavour, says):
    faults = list(flavour_faults(architectures, branch, flavour, TABLES))
    assert len(faults) == len(says)
    assert all(part in fault for part, fault in zip(says, faults, strict=True))
