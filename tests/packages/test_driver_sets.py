"""Every driver set that is marked as proved by the package manager, resolved by apt-get with the
archive's current index. Run by `make test-packages`.

Needs apt, the keys of Debian's archive and its mirror; changes nothing on this machine. Versions
are read from the index.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from archive import COMPONENTS, KEY, mirrors

from unhang_node.base.versions.compare import compare_versions, holds

TABLE = (
    Path(__file__).parents[2]
    / "tools"
    / "unhang"
    / "act"
    / "catalogue"
    / "tables"
    / "driver_packages.yml"
)
ROWS = yaml.safe_load(TABLE.read_text())["tables"]["driver_packages"]["rows"]
CODENAMES = {"12": "bookworm", "13": "trixie"}
DEADLINE_S = 300


def apt(folder, *arguments, check=True):
    """A program of apt over an empty system of its own."""
    options = [
        "-o",
        f"Dir={folder}",
        "-o",
        f"Dir::State::status={folder}/status",
        "-o",
        "Acquire::Languages=none",
        "-o",
        "APT::Architecture=amd64",
    ]
    command = [arguments[0], *options, *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=DEADLINE_S)


@pytest.fixture(scope="session")
def systems(tmp_path_factory):
    """Folder of an empty system by release; each uses the archive of its release and the security
    updates."""
    return {
        release: make_system(tmp_path_factory.mktemp(name), name)
        for release, name in CODENAMES.items()
    }


def make_system(folder, name):
    """An empty system for apt, its index fetched."""
    for inner in (
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
    ):
        (folder / inner).mkdir(parents=True)
    for proxy in Path("/etc/apt/apt.conf.d").glob("*prox*"):
        shutil.copy(proxy, folder / "etc/apt/apt.conf.d")
    (folder / "status").touch()
    main, security = mirrors()
    lines = [
        f"deb {KEY} {main} {name} {COMPONENTS}",
        f"deb {KEY} {security} {name}-security {COMPONENTS}",
    ]
    (folder / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
    apt(folder, "apt-get", "update")
    return folder


def versions_offered(folder, package):
    """Versions of a package in the index, newest first."""
    return [
        line.split("|")[1].strip()
        for line in apt(folder, "apt-cache", "madison", package).stdout.splitlines()
        if "Packages" in line
    ]


def resolved(folder, row, version):
    """{package: version} that apt would install for the row, with its sources pinned at
    `version`."""
    pins = [
        f"Package: src:{source}\nPin: version {version}\nPin-Priority: 1001\n"
        for source in row["pin"]
    ]
    (folder / "etc/apt/preferences.d/unhang").write_text("\n".join(pins))
    output = apt(
        folder,
        "apt-get",
        "-s",
        "-q",
        "install",
        "--no-install-recommends",
        *row["packages"],
        check=False,
    )
    assert output.returncode == 0, output.stdout + output.stderr
    return dict(re.findall(r"^Inst (\S+) \((\S+)", output.stdout, re.M))


def driver_of(version):
    """535.261.03 for 535.261.03-1."""
    return version.split(":")[-1].split("-")[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_set_resolves_to_one_driver_of_the_branch_that_it_names(systems, row):
    folder = systems[row["release"]]
    offered = versions_offered(folder, row["packages"][1])
    assert offered, f"{row['packages'][1]} is not offered any more; drop the row"
    found = resolved(folder, row, offered[-1])
    version = driver_of(found[row["library"]])
    assert version.split(".")[0] == row.get("stands_for", row["branch"])
    if "stands_for" in row:
        return
    assert version == driver_of(offered[-1])
    libraries = {
        name: driver_of(one)
        for name, one in found.items()
        if re.match(r"lib(cuda|nvidia|egl-nvidia|glx-nvidia)", name)
    }
    assert {one for one in libraries.values() if re.match(r"\d{3}\.", one)} == {version}, (
        "two versions of the driver in one set"
    )
    assert (
        holds(compare_versions(driver_of(row["version"]), version, "driver"), "<=")
        or row["version"] in offered
    )
