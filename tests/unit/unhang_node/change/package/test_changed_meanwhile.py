"""Another process changes packages while unhang fetches a change: apt would take steps that were
not judged, so it is not run."""

from __future__ import annotations

import sys

import pytest
from fakes.node_tree import dpkg_status, plant

from unhang_node.base import process
from unhang_node.change.package.answer import change_packages

# Reached as `chroot ROOT PROGRAM …`. What apt would do differs once /meanwhile is there, which a
# fetch makes where /busy is.
APT = """#!{python}
import sys
from pathlib import Path
root, program, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
meanwhile = root / "meanwhile"
if program == "apt-cache" and "madison" in arguments:
    print("tool | 2 | http://mirror stable/main amd64 Packages")
elif "--simulate" in arguments:
    print("Inst tool (2 site:stable [amd64])")
    if meanwhile.exists():
        print("Remv site-tool [1]")
elif "--download-only" in arguments:
    if (root / "busy").exists():
        meanwhile.touch()
elif program == "apt-get" and "install" in arguments:
    (root / "ran").write_text(" ".join(arguments))
    (root / "var/lib/dpkg/status").write_text((root / "after").read_text())
"""


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node of dpkg with a site's tool, and a tool on offer."""
    program = tmp_path / "bin" / "chroot"
    plant(tmp_path, {"/bin/chroot": APT.format(python=sys.executable)})
    program.chmod(0o755)
    monkeypatch.setitem(
        process.ENVIRONMENT, "PATH", f"{program.parent}:{process.ENVIRONMENT['PATH']}"
    )
    installed = {"dpkg": "1.21", "site-tool": "1"}
    files = {
        "/var/lib/dpkg/status": dpkg_status(installed) + "\n",
        "/var/lib/dpkg/updates/": "",
        "/var/tmp/": "",
        "/after": dpkg_status({**installed, "tool": "2"}) + "\n",
    }
    plant(
        tmp_path / "node",
        {**files, "/usr/bin/apt-get": "", "/boot/": "", "/usr/lib/": "", "/var/lib/apt/lists/": ""},
    )
    return tmp_path / "node"


def install(node):
    options = {
        "rootfs": str(node),
        "install": {"tool": "2"},
        "allow_no_rollback": True,
        "update_cache": False,
        "root_free_min_mib": 0,
        "boot_free_min_mib": 0,
    }
    return change_packages(options, False)


def test_a_change_that_nobody_disturbs_is_run_and_may_remove_nothing(node):
    answer = install(node)
    assert (answer["failed"], answer["changed"], answer["after"]) == (False, True, {"tool": "2"}), (
        answer
    )
    assert "--no-remove" in (node / "ran").read_text().split()


def test_steps_that_are_others_once_the_packages_are_fetched_are_refused(node):
    (node / "busy").touch()
    answer = install(node)
    assert (answer["failed"], answer["changed"], answer.get("stopped_at")) == (
        True,
        False,
        "fetching",
    ), answer
    assert "for site-tool; somebody has changed packages meanwhile" in answer["msg"]
    assert not (node / "ran").exists()
