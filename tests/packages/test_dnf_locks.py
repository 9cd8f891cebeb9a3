"""The module package_pin with the real dnf 4 and rpm, over a root and a repository of its own. Run
by `make test-packages`.

Needs dnf, rpm, createrepo-c and dnf's versionlock plugin (Debian: dnf rpm createrepo-c
dnf-plugins-core); changes nothing on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
import rpms
from fakes.ansible_module import run_module

OLD, NEW = "570.86.15", "580.95.05"
CONFIG = "[main]\ngpgcheck=0\nplugins=1\nreposdir={0}/none\npluginconfpath={0}/plugins\ncachedir={0}/cache\n[own]\nname=own\nbaseurl=file://{0}/repository\n"
DEADLINE_S = 300


@pytest.fixture
def system(tmp_path):
    """A root with the old driver, and a repository that offers the new one; gives a function that
    runs dnf on it."""
    missing = [
        name for name in ("dnf", "rpm", "rpmbuild", "createrepo_c") if shutil.which(name) is None
    ]
    assert not missing, f"not installed: {', '.join(missing)}"
    for version in (OLD, NEW):
        rpms.build(tmp_path, "nvidia-driver", version)
    rpms.index(tmp_path)
    plugins = tmp_path / "root" / "etc" / "dnf" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "versionlock.list").touch()
    (plugins / "versionlock.conf").write_text(
        f"[main]\nenabled = 1\nlocklist = {plugins}/versionlock.list\n"
    )
    (tmp_path / "plugins").symlink_to(plugins)
    (tmp_path / "own.conf").write_text(CONFIG.format(tmp_path))

    # Debian's rpm has its database elsewhere
    (tmp_path / ".rpmmacros").write_text("%_dbpath /var/lib/rpm\n")

    def dnf(*arguments):
        command = [
            "dnf",
            "-q",
            "-y",
            "-c",
            str(tmp_path / "own.conf"),
            f"--installroot={tmp_path}/root",
            "--releasever=9",
            *arguments,
        ]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        return installed(tmp_path / "root")

    assert dnf("install", f"nvidia-driver-3:{OLD}") == {OLD}
    return dnf, tmp_path / "root"


def installed(root):
    """Versions of the driver in the root's database."""
    command = [
        "rpm",
        "--dbpath",
        str(root / "var/lib/rpm"),
        "-qa",
        "--qf",
        "%{VERSION}\\n",
        "nvidia-driver",
    ]
    return set(
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=DEADLINE_S
        ).stdout.split()
    )


def test_a_held_driver_stays_through_an_upgrade_until_it_is_let_go(system):
    dnf, root = system
    untouched = (root / "etc/dnf/plugins/versionlock.list").read_text()
    foretold = run_module(
        "package_pin", check=True, rootfs=str(root), groups=["driver"], driver_version=OLD
    )
    assert (root / "etc/dnf/plugins/versionlock.list").read_text() == untouched
    done = run_module("package_pin", rootfs=str(root), groups=["driver"], driver_version=OLD)
    assert done["changed"]
    assert done["manager"] == "rpm"
    assert done == foretold
    assert not run_module("package_pin", rootfs=str(root), groups=["driver"], driver_version=OLD)[
        "changed"
    ]
    assert dnf("upgrade") == {OLD}
    assert run_module("package_pin", rootfs=str(root), groups=[])["changed"]
    assert (root / "etc/dnf/plugins/versionlock.list").read_text() == untouched
    assert dnf("upgrade") == {NEW}
