"""A configuration file that stays as an admin has it, when a package brings another: reported with
what the package brings, by the real dpkg in a tree of its own."""

from __future__ import annotations

import subprocess

import pytest
from fakes.ansible_module import run_module

from unhang_node.change.atomic_files import STATES
from unhang_node.change.package.saved import write_saved

CONF = "/etc/site.conf"


def install(root, version, text):
    """Builds and installs a version of the package."""
    package = root.parent / f"site-{version}"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "etc").mkdir()
    (package / "etc/site.conf").write_text(text)
    (package / "DEBIAN/conffiles").write_text(f"{CONF}\n")
    (package / "DEBIAN/control").write_text(
        f"Package: site\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@y.z>\n"
        "Description: x\n"
    )
    deb = root.parent / f"site-{version}.deb"
    argv = [
        ["dpkg-deb", "-b", str(package), str(deb)],
        ["dpkg", f"--root={root}", "--force-confdef,confold,bad-path", "-i", str(deb)],
    ]
    for one in argv:
        subprocess.run(one, check=True, capture_output=True)


@pytest.fixture
def node(tmp_path):
    root = tmp_path / "node"
    for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    install(root, "1", "a=1\n")
    return root


def changed(node):
    """A role that has upgraded the package, and how its end answers."""
    state_id = run_module("saved_state", rootfs=str(node), state="begun", role="kernel", run="r")[
        "id"
    ]
    row = {"name": "site", "before": "1", "after": "2", "held": False}
    document = {"manager": "dpkg", "packages": [row], "status": "done"}
    write_saved(str(node), f"{STATES}/{state_id}", document)
    install(node, "2", "a=2\n")
    return run_module("saved_state", rootfs=str(node), state="finished", id=state_id)


def test_a_config_file_that_an_admin_changed_is_reported_with_that_of_the_package(node):
    (node / "etc/site.conf").write_text("a=mine\n")
    [line] = changed(node)["needs_manual_action"]
    assert line == (
        f"{CONF}: stays as it was changed here; what the package brings is in {CONF}.dpkg-dist:"
        " compare them"
    )
    assert (node / "etc/site.conf").read_text() == "a=mine\n"
    assert (node / "etc/site.conf.dpkg-dist").read_text() == "a=2\n"
    [state] = run_module("saved_state", rootfs=str(node), state="listed")["states"]
    assert state["look_at"] == [line]


def test_a_config_file_that_nobody_changed_is_that_of_the_package_and_nothing_is_reported(node):
    assert changed(node)["needs_manual_action"] == []
    assert (node / "etc/site.conf").read_text() == "a=2\n"
