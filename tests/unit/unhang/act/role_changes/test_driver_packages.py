"""Packages of a driver, as a table: the request, its package set, and the proof of the set."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_rows import case_rows

from unhang.act.role_changes.driver_packages import (
    FAMILIES,
    NotOffered,
    flavour_faults,
    package_set,
)
from unhang.core.strict_yaml import load_yaml

ROWS = case_rows(__file__)

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
EXPECTED = ROWS["EXPECTED"]


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
    ROWS["test_what_is_not_offered_is_refused_with_what_there_is"],
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
