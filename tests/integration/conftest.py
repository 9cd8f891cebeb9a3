"""The fleet that integration tests share: four booted nodes with recorded 8×H200 hardware, whole again after each test."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import audits
import hardware
from testbed import Testbed

NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
NEEDED = ("mmdebstrap", "systemd-nspawn", "unshare", "nsenter", "ip", "ssh", "ssh-keygen", "gcc")
CACHE = audits.PROJECT / ".cache" / "testbed"


def why_not():
    """Why no nodes can be booted here, or None."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "they boot nodes, which takes root on Linux"
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}; `make test` installs what tests/system-packages.txt lists"
    return None


collect_ignore_glob = ["test_*.py"] if why_not() else []


def pytest_configure(config):
    """In CI nodes are no choice: tests that were left out would look like tests that passed."""
    if why_not() and os.environ.get("CI") and os.geteuid() == 0:
        raise pytest.UsageError(f"integration tests cannot run: {why_not()}")


def pytest_report_header():
    """The one line that says that a tier is left out."""
    return f"integration tests are skipped: {why_not()}" if why_not() else None


def pytest_collection_modifyitems(items):
    """All tests of this folder share the nodes, and so one worker of pytest-xdist."""
    for item in items:
        if HERE in pathlib.Path(item.path).parents:
            item.add_marker(pytest.mark.xdist_group("nodes"))


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    """The fake libnvidia-ml.so.1, built from C."""
    from fakes.nvml import build_fake_nvml

    return build_fake_nvml(str(tmp_path_factory.mktemp("fake-nvml")))


@pytest.fixture(scope="session")
def bed(fake_library, tmp_path_factory):
    """The booted nodes."""
    from unhang.project import link_pynvml

    link_pynvml(audits.PROJECT)
    work = tmp_path_factory.mktemp("profiles")
    with Testbed(CACHE, NAMES, prepare=lambda node: hardware.install(node, hardware.H200X8, fake_library, work)) as testbed:
        yield testbed


@dataclasses.dataclass
class Fleet:
    """What a test may do to the nodes; all of it is undone when the test ends."""

    bed: Testbed
    library: str
    work: pathlib.Path
    undo: contextlib.ExitStack

    @property
    def nodes(self):
        """Node by name."""
        return self.bed.nodes

    def plant(self, name, path, content, mode=0o644, owner=0):
        """A file on the node, until the test ends."""
        return self.undo.enter_context(self.nodes[name].planted(path, content, mode, owner))

    def shell(self, name, command, undo=None):
        """A root shell's command on the node; `undo` is another that takes it back."""
        if undo:
            self.undo.callback(lambda: self.nodes[name].shell(undo))
        return self.nodes[name].shell(command)

    def equip(self, name, machine):
        """Other hardware, until the test ends."""
        self.undo.callback(self._equip, name, hardware.H200X8)
        self._equip(name, machine)

    def _equip(self, name, machine):
        node = self.nodes[name]
        node.shell("systemctl stop testbed-hardware")
        hardware.install(node, machine, self.library, self.work)
        node.shell("systemctl start testbed-hardware")

    def answer(self, name, **answers):
        """The same hardware, whose driver answers otherwise (a derived recording), until the test ends."""
        self.undo.callback(hardware.install_profile, self.nodes[name], hardware.H200X8, self.work)
        hardware.install_profile(self.nodes[name], dataclasses.replace(hardware.H200X8, answers=answers), self.work)

    def power_off(self, name):
        """Pull the plug; the node boots again when the test ends."""
        self.undo.callback(self.nodes[name].boot)
        self.nodes[name].power_off()

    def audit(self, *arguments, groups=None, variables=None, host_variables=None, **options):
        """Run the audit over the named groups (default: all nodes in one group) and return it."""
        inventory = audits.inventory_of(self.bed, groups or {"training": list(NAMES)}, variables, host_variables)
        return audits.run_audit(self.bed, self.work, inventory, *arguments, **options)


@pytest.fixture
def fleet(bed, fake_library, tmp_path):
    """The nodes for one test."""
    with contextlib.ExitStack() as undo:
        yield Fleet(bed, fake_library, tmp_path, undo)
