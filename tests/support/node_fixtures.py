"""Fixtures of the tiers that boot nodes: four nodes with recorded 8×H200 hardware, restored after
each test. A tier's conftest.py imports them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

import audits
import hardware
import nccl_libraries
import pytest
import torch_in_nodes
from four_nodes import CACHE, NAMES, Fleet
from testbed import Testbed

NEEDED = ("mmdebstrap", "systemd-nspawn", "unshare", "nsenter", "ip", "ssh", "ssh-keygen", "gcc")


def why_not():
    """Why no nodes can be booted here, or None."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "they boot nodes, which takes root on Linux"
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        return (
            f"not installed: {', '.join(missing)}; `make test` installs what"
            " tests/system-packages.txt lists"
        )
    return None


def pytest_configure(config):
    """In CI nodes are required: skipped tests would look like tests that passed."""
    if why_not() and os.environ.get("CI") and os.geteuid() == 0:
        raise pytest.UsageError(f"tests on booted nodes cannot run: {why_not()}")


def pytest_report_header():
    """The one line that reports that a tier is skipped."""
    return f"tests on booted nodes are skipped: {why_not()}" if why_not() else None


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    """The fake libnvidia-ml.so.1, compiled from C."""
    from fakes.nvml import build_fake_nvml

    return build_fake_nvml(str(tmp_path_factory.mktemp("fake-nvml")))


@pytest.fixture(scope="session")
def nccl():
    """Folders of real libnccl files by version."""
    return {version: nccl_libraries.ready(CACHE, version) for version in nccl_libraries.VERSIONS}


@pytest.fixture(scope="session")
def layers():
    """Folders that lie over the root of each node."""
    return [nccl_libraries.ready(CACHE, nccl_libraries.USUAL)]


@pytest.fixture(scope="session")
def bed(fake_library, layers, tmp_path_factory):
    """The booted nodes."""
    from unhang.core.ansible.packed_pynvml import link_pynvml

    link_pynvml(audits.PROJECT)
    work = tmp_path_factory.mktemp("profiles")

    def prepare(node):
        hardware.install(node, hardware.H200X8, fake_library, work)
        torch_in_nodes.mount(node)

    with Testbed(CACHE, NAMES, prepare=prepare, layers=layers) as testbed:
        yield testbed


def fleet_for(bed, library, work):
    """The nodes; all changes to them are undone at the end."""
    with contextlib.ExitStack() as undo:
        yield Fleet(bed, library, work, undo)


@pytest.fixture
def fleet(bed, fake_library, tmp_path):
    """The nodes for one test."""
    yield from fleet_for(bed, fake_library, tmp_path)


@pytest.fixture(scope="class")
def class_fleet(bed, fake_library, tmp_path_factory):
    """The nodes for the tests of one class, which share one audit."""
    yield from fleet_for(bed, fake_library, tmp_path_factory.mktemp("class"))


@pytest.fixture(scope="module")
def shared_fleet(bed, fake_library, tmp_path_factory):
    """The nodes for the tests of one module."""
    yield from fleet_for(bed, fake_library, tmp_path_factory.mktemp("module"))
