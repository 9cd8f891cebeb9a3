"""The actions of a test on the nodes; all of them are undone when the test ends."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys

import audits
import hardware
from testbed import Testbed

NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
CACHE = audits.PROJECT / ".cache" / "testbed"


@dataclasses.dataclass
class Fleet:
    """The nodes of one test. undo: runs when it ends."""

    bed: Testbed
    library: str
    work: pathlib.Path
    undo: contextlib.ExitStack

    @property
    def nodes(self):
        """Nodes by name."""
        return self.bed.nodes

    def plant(self, name, path, content, mode=0o644, owner=0):
        """Writes a file on the node, until the test ends."""
        return self.undo.enter_context(self.nodes[name].planted(path, content, mode, owner))

    def shell(self, name, command, undo=None):
        """Runs a command in a root shell on the node; `undo` is another command that reverses
        it."""
        output = self.nodes[name].shell(command)
        if undo:
            self.undo.callback(lambda: self.nodes[name].shell(undo))
        return output

    def equip(self, name, machine):
        """Gives the node other hardware, until the test ends."""
        self.undo.callback(self._equip, name, hardware.H200X8)
        self._equip(name, machine)

    def _equip(self, name, machine):
        node = self.nodes[name]
        node.shell("systemctl stop testbed-hardware")
        hardware.install(node, machine, self.library, self.work)
        node.shell("systemctl start testbed-hardware")

    def answer(self, name, **answers):
        """Gives the same hardware other answers of the driver (a derived recording), until the test
        ends."""
        self.undo.callback(hardware.install_profile, self.nodes[name], hardware.H200X8, self.work)
        hardware.install_profile(
            self.nodes[name], dataclasses.replace(hardware.H200X8, answers=answers), self.work
        )

    def power_off(self, name):
        """Cut the power; the node boots again when the test ends."""
        self.undo.callback(self.nodes[name].boot)
        self.nodes[name].power_off()

    def audit(self, *arguments, groups=None, variables=None, host_variables=None, **options):
        """Run the audit over the named groups (default: all nodes in one group) and return it."""
        inventory = audits.inventory_of(
            self.bed, groups or {"training": list(NAMES)}, variables, host_variables
        )
        return audits.run_audit(self.bed, self.work, inventory, *arguments, **options)

    def unhang_audit(self, *arguments):
        """`unhang audit` over all nodes, as an Audit."""
        path = self.work / "hosts.json"
        path.write_text(audits.inventory_of(self.bed, {"training": list(NAMES)}))
        runs = self.work / "runs"
        return self.unhang(
            "audit",
            "--inventory",
            str(path),
            "--out",
            str(runs),
            *arguments,
            folder=runs / "latest",
        )

    def unhang(self, *arguments, folder):
        """A command of `unhang` run among the nodes, as an Audit. folder: of its run."""
        command = [sys.executable, "-P", "-m", "unhang", *arguments]
        return audits.run(self.bed, command, audits.environment_of(self.bed, self.work), folder)
