"""A booted node with real apt, dpkg and unattended-upgrades, and on its bridge a signed repository
of packages that are built here in milliseconds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import audits
import module_calls
from archive import ORIGIN, Repository
from four_nodes import CACHE, Fleet
from repository import APT
from testbed import Testbed
from testbed.bed import CONTROLLER

NODE = "deb12"  # the tree of the node of that name in conftest.py, which has unattended-upgrades
PORT = 8080
KEY = f"/usr/share/keyrings/{ORIGIN}.asc"
SECRET = "s3cret"
SOURCE = f"deb [signed-by={KEY}] http://site:{SECRET}@{CONTROLLER}:{PORT}/{NODE}/ ./\n"


# A script that waits until it may continue.
HALTS = "[ -e /run/go ] || { touch /run/reached; while [ ! -e /run/go ]; do sleep 0.1; done; }"


@dataclasses.dataclass
class Trial:
    """The node, and its repository."""

    fleet: Fleet
    repository: Repository

    def shell(self, command):
        """Standard output of a root shell's command on the node, which must succeed."""
        return self.fleet.nodes[NODE].shell(command, timeout_s=audits.DEADLINE_S)

    def offer(self, *files, **signing):
        """Makes these packages the only content of the repository."""
        self.repository.remove("*.deb")
        # its entries are compared by name, size and second
        for known in self.repository.folder.parent.glob("sums.db"):
            known.unlink()
        for path in files:
            self.repository.add(path)
        newest = max(
            (known.stat().st_mtime for known in self.repository.folder.glob("*Release")), default=0
        )
        self.repository.index(**signing)
        # apt does not fetch a file again that changed within the same second
        for name in ("Packages", "InRelease"):
            place = self.repository.folder / name
            later = max(int(newest) + 1, place.stat().st_mtime)
            os.utime(place, (later, later))

    def have(self, *packages):
        """Installs exactly these, given as arguments of apt, with lists that are fetched again; at
        the end of the test they and their traces are removed."""
        names = " ".join(
            sorted({path.name.split("_")[0] for path in self.repository.folder.glob("*.deb")})
        )
        self.fleet.undo.callback(
            self.shell,
            f"(apt-mark unhold {names}; dpkg --force-all --purge {names}; rm -rf /var/lib/unhang"
            " /var/lib/apt/lists/*_*) 2>&1",
        )
        # apt compares only the size of a package in its cache.
        self.shell(f"apt-get clean && {APT} update && {APT} install {' '.join(packages)}")

    def code(self, line):
        """The result of a line of Python on the node."""
        return module_calls.run_code(self.fleet, NODE, line)

    def change(self, check=False, **options):
        """A result of package_change."""
        return self.code(change_code(options, check))

    def begin(self):
        """Id of a saved state."""
        return self.code(
            "from unhang_node.change.journal.saved_states import begin_state;"
            " print(json.dumps(begin_state('/', 'gpu_driver', 'r1')[0]['id']))"
        )

    def restore(self, state_id, lock_timeout_s=300):
        """Names of the packages that a rollback restored, or why it failed."""
        return self.code(restore_code(state_id, lock_timeout_s))

    @contextlib.contextmanager
    def under_way(self, line):
        """A line of Python that runs on the node, as a process; it is killed when the block
        ends."""
        argv = self.fleet.bed.inside(module_calls.code_call(self.fleet, NODE, line))
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                self.kill_module()
                process.kill()

    def kill_module(self):
        """Sends SIGKILL to the Python that works on the node, and not to the package manager that
        it started."""
        self.shell("pkill -KILL -f '[u]nhang.zip' || :")

    def await_file(self, path):
        """Waits until a package's script has created a file."""
        audits.wait_until(lambda: self.fleet.nodes[NODE].place(path).exists(), f"{path} is there")

    def installed(self, *names):
        """["ii 1", …] of packages, as dpkg reports them; packages that it does not know are left
        out."""
        return self.shell(
            f"dpkg-query -W -f '${{db:Status-Abbrev}}${{Version}}\\n' {' '.join(names)} 2>/dev/null"
            " || :"
        ).splitlines()

    def saved(self, state_id):
        """packages.json of a state."""
        return json.loads(self.shell(f"cat /var/lib/unhang/states/{state_id}/packages.json"))

    def assert_whole(self):
        """Checks that no package is half installed and that all dependencies are met."""
        assert self.shell("dpkg --audit") == ""
        self.shell("apt-get -q check")

    def assert_nothing_is_left(self):
        """Checks that there is no lock, no half-written file and no folder of a simulation."""
        assert (
            self.shell(
                "ls -d /var/tmp/.unhang-* /var/lib/unhang/.unhang-* /var/lib/unhang/packages"
                " /var/lib/unhang/lock.json 2>/dev/null || :"
            )
            == ""
        )
        self.assert_whole()


def change_code(options, check=False):
    """The work of the module package_change, as a line of Python."""
    options = {"root_free_min_mib": 20, **options}
    return (
        "from unhang_node.change.package.answer import change_packages;"
        f" print(json.dumps(change_packages({options!r}, {check})))"
    )


def restore_code(state_id, lock_timeout_s=300):
    """The work of the module state_restore, as a few lines of Python."""
    return f"""
from unhang_node.change.package.values import Locked
from unhang_node.change.rollback.restore import apply_restore, plan_restore
try:
    print(json.dumps([row["name"] for row in apply_restore("/", plan_restore("/", {state_id!r}), {lock_timeout_s}).packages]))
except (OSError, ValueError, Locked) as problem:
    print(json.dumps(str(problem)))
"""


@contextlib.contextmanager
def booted(folder, trees):
    """(booted node's bed, its repository)."""
    repository = Repository(folder / NODE, [], folder / "sums.db")

    def prepare(node):
        node.write(KEY, repository.key)
        node.write("/etc/apt/sources.list", SOURCE)

    with contextlib.ExitStack() as stack:
        bed = stack.enter_context(
            Testbed(CACHE, [NODE], prepare=prepare, trees={NODE: trees[NODE]})
        )
        serve(stack, bed, folder, PORT)
        yield bed, repository


def serve(stack, bed, folder, port):
    """Starts the mirror of the repositories in the folder; the file that says how it misbehaves."""
    faults = folder / "faults.json"
    faults.write_text("{}")
    mirror = [
        sys.executable,
        str(Path(__file__).with_name("mirror.py")),
        str(folder),
        CONTROLLER,
        str(port),
        str(faults),
    ]
    server = stack.enter_context(
        subprocess.Popen(bed.inside(mirror), stdout=subprocess.PIPE, text=True)
    )
    stack.callback(server.kill)
    assert server.stdout.readline() == "ready\n"
    return faults
