"""Booted nodes of two Debian releases, and on their bridge a signed repository of Debian's own
driver packages. For `make test-packages`.

deb12, deb13    a fresh node of bookworm and of trixie for each test (Equipped)
versions        versions that the archives offer, by their purpose
trial           a node with a repository of packages that are built here, signed and served like
Debian's (Trial)
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys

import pytest
from archive import ORIGIN, Archive, Repository, Wanted
from debian_node import CONTROL_PACKAGE, PROPRIETARY, SOURCE, T470, T535, Equipped
from four_nodes import CACHE, Fleet
from repository import build_package
from testbed import Testbed
from testbed.bed import CONTROLLER
from testbed.tree import ready_tree
from trial_node import Trial, booted, serve

MORE = ("unattended-upgrades", "dkms")
TREES = {"deb12": ("bookworm", MORE), "deb13": ("trixie", MORE)}
PORT = 8080
NEEDED = ("mmdebstrap", "systemd-nspawn", "apt-ftparchive", "gpg", "ssh")


@pytest.fixture(scope="session", autouse=True)
def needed():
    """Reports at once what the tests of this folder lack."""
    assert os.geteuid() == 0, "make test-packages boots nodes, which takes root on Linux"
    missing = [program for program in NEEDED if shutil.which(program) is None]
    assert not missing, (
        f"not installed: {', '.join(missing)}; `make test-packages` installs what"
        " tests/system-packages.txt lists"
    )


@pytest.fixture(scope="session")
def archives():
    """Debian's two releases as apt on this machine sees them, with the packages that the nodes have
    installed."""
    folder = CACHE.parent / "packages"
    found = {}
    for name, tree in TREES.items():
        status = ready_tree(CACHE, *tree) / "var/lib/dpkg/status"
        found[name] = Archive(folder / name, tree[0], status, backports=tree[0] == "bookworm")
    return found


@pytest.fixture(scope="session")
def versions(archives):
    """The versions that are offered today, by their purpose."""
    deb12, deb13 = archives["deb12"], archives["deb13"]
    return {
        "deb12": {
            "older": deb12.version("nvidia-driver", "535.216"),
            "old": deb12.versions("nvidia-driver")[1],
            "new": deb12.versions("nvidia-driver")[0],
            "470": deb12.versions(T470[0])[-1],
            "headers": deb12.version("linux-headers-amd64", "6.1."),
            "new headers": deb12.version("linux-headers-amd64", "6.12."),
        },
        "deb13": {
            "550": deb13.version("nvidia-driver", "550."),
            "535": deb13.version(T535[0], "535."),
        },
    }


def sets_of(versions):
    """The sets of packages that the nodes need in their repository."""
    sets = {
        "deb12": [
            Wanted(PROPRIETARY, ((SOURCE, versions["deb12"][age]),))
            for age in ("older", "old", "new")
        ]
    }
    sets["deb12"] += [
        Wanted(T470, ((f"{SOURCE}-tesla-470", versions["deb12"]["470"]),)),
        Wanted(("nvidia-tesla-driver",)),
    ]
    sets["deb12"] += [
        Wanted((f"linux-headers-amd64={versions['deb12'][age]}",))
        for age in ("headers", "new headers")
    ]
    sets["deb13"] = [
        Wanted(PROPRIETARY, ((SOURCE, versions["deb13"]["550"]),)),
        Wanted(T535, ((f"{SOURCE}-tesla-535", versions["deb13"]["535"]),)),
    ]
    return sets


@pytest.fixture(scope="session")
def package_bed(archives, versions, tmp_path_factory):
    """(booted nodes, repository by node, file of faults): everything is served before the first
    request of a node."""
    folder = tmp_path_factory.mktemp("mirror")
    controls = [build_package(folder, CONTROL_PACKAGE, version) for version in ("1", "2")]
    with contextlib.ExitStack() as stack:
        repositories = {}
        for name, wanted in sets_of(versions).items():
            files = {path for one in wanted for path in archives[name].fetch(one)}
            repositories[name] = Repository(
                folder / name, [*sorted(files), *controls], archives[name].folder / "sums.db"
            )

        def prepare(node):
            key = f"/usr/share/keyrings/{ORIGIN}.asc"
            node.write(key, repositories[node.name].key)
            node.write(
                "/etc/apt/sources.list",
                f"deb [signed-by={key}] http://{CONTROLLER}:{PORT}/{node.name}/ ./\n",
            )

        bed = stack.enter_context(Testbed(CACHE, list(TREES), prepare=prepare, trees=TREES))
        yield bed, repositories, serve(stack, bed, folder, PORT)


def _equipped(name, package_bed, versions, work):
    bed, repositories, faults = package_bed
    node = bed.nodes[name]
    with contextlib.ExitStack() as undo:
        undo.callback(faults.write_text, "{}")
        node.shell("apt-get -q update")
        yield Equipped(
            Fleet(bed, None, work, undo), name, repositories[name], faults, versions[name]
        )
    bed.renew(node)


@pytest.fixture
def deb12(package_bed, versions, tmp_path):
    """A fresh node of bookworm, its lists of packages fetched."""
    yield from _equipped("deb12", package_bed, versions, tmp_path)


@pytest.fixture
def deb13(package_bed, versions, tmp_path):
    """A fresh node of trixie, its lists of packages fetched."""
    yield from _equipped("deb13", package_bed, versions, tmp_path)


@pytest.fixture(scope="module")
def trial_bed(tmp_path_factory):
    """(booted node, its repository) for all trials of one file."""
    with booted(tmp_path_factory.mktemp("trial"), TREES) as bed_and_repository:
        yield bed_and_repository


@pytest.fixture
def trial(trial_bed, tmp_path):
    """A node with a signed repository of the test's own; the changes of a trial are undone."""
    bed, repository = trial_bed
    with contextlib.ExitStack() as undo:
        yield Trial(Fleet(bed, None, tmp_path, undo), repository)


@pytest.fixture
def moments():
    """A random number generator whose seed is printed; TEST_SEED repeats a run."""
    seed = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"TEST_SEED={seed}\n")
    return random.Random(seed)


def pytest_collection_modifyitems(items):
    """Real packages, and builds of kernel modules, take minutes on a slow machine."""
    for item in items:
        item.add_marker(pytest.mark.timeout(3600))
