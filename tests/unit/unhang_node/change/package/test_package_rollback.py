"""The data to restore packages: saved rows, packages rebuilt from their files with the real
dpkg-deb, locks, and the separate process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest
from fakes.node_tree import Link, plant

from unhang_node.base.versions.packages import deb_version_key
from unhang_node.change.package.apt.installed import (
    read_automatic,
    read_installed,
    removed_with_config_files,
    sources_of,
)
from unhang_node.change.package.apt.repack import CannotRepack, repack
from unhang_node.change.package.lock_files import APT_LOCKS, find_holder, wait_for_locks
from unhang_node.change.package.restore import restore_packages
from unhang_node.change.package.restore_plan import kept_as_is, known_versions, plan_restore
from unhang_node.change.package.saved import (
    forget_damaged,
    forget_fetched,
    mark,
    read_saved,
    seal_kept,
    write_saved,
)
from unhang_node.change.package.values import Locked, Step

STATUS = """Package: libnvidia-ml1
Status: hold ok installed
Architecture: amd64
Source: nvidia-graphics-drivers
Version: 535.261.03-1
Maintainer: x <x@example.org>
Conffiles:
 /etc/nvidia.conf 0123
Description: a library
 of two lines

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: half
Status: install ok half-configured
Architecture: amd64
Version: 2
"""
INFO = "/var/lib/dpkg/info/libnvidia-ml1"
LISTED = (
    "/. /usr /usr/lib /usr/lib/libnvidia-ml.so.1 /usr/lib/libnvidia-ml.so /lib /lib/x /lib/x/y /etc"
    " /etc/nvidia.conf /usr/share/doc/x /usr/bin/z"
)
FILES = {
    "/var/lib/dpkg/status": STATUS, "/var/lib/dpkg/arch": "amd64\n", "/var/tmp/": "",
    f"{INFO}:amd64.list": LISTED.replace(" ", "\n") + "\n",
    f"{INFO}:amd64.postinst": "#!/bin/sh\nexit 0\n",
    f"{INFO}:amd64.conffiles": "/etc/nvidia.conf\n",
    "/usr/lib/libnvidia-ml.so.1": "changed by hand",
    "/usr/lib/libnvidia-ml.so": Link("libnvidia-ml.so.1"), "/usr/lib/x/y": "merged",
    "/lib": Link("usr/lib"),
    "/etc/nvidia.conf": "a = 1\n", "/usr/bin/z.distrib": "diverted",
    "/var/lib/dpkg/diversions": "/usr/bin/z\n/usr/bin/z.distrib\nother\n",
}  # fmt: skip


@pytest.fixture
def node(tmp_path):
    """A planted node with one package of files, links, a diverted file and merged /usr."""
    (tmp_path / "node").mkdir()
    plant(tmp_path / "node", FILES)
    os.chmod(tmp_path / f"node{INFO}:amd64.postinst", 0o755)
    return tmp_path / "node"


def test_a_package_is_built_again_with_what_lies_on_the_node(node, tmp_path):
    name = repack(str(node), "libnvidia-ml1", "amd64", "535.261.03-1", str(tmp_path))
    assert name == "libnvidia-ml1_535.261.03-1_amd64.deb"
    subprocess.run(
        ["dpkg-deb", "--raw-extract", str(tmp_path / name), str(tmp_path / "out")], check=True
    )
    out = tmp_path / "out"
    control = (out / "DEBIAN/control").read_text()
    assert "Version: 535.261.03-1" in control
    assert "Status" not in control
    assert "nvidia.conf" not in control
    assert (out / "DEBIAN/postinst").stat().st_mode & 0o111
    assert (out / "usr/lib/libnvidia-ml.so.1").read_text() == "changed by hand"
    assert (out / "usr/lib/libnvidia-ml.so").readlink().name == "libnvidia-ml.so.1"
    assert (out / "lib/x/y").read_text() == "merged"
    assert not (out / "lib").is_symlink()
    assert (out / "usr/bin/z").read_text() == "diverted"


def test_a_package_that_lacks_files_is_not_built_again(node, tmp_path):
    (node / "usr/lib/libnvidia-ml.so.1").unlink()
    with pytest.raises(
        CannotRepack, match=r"1 of its files are gone, such as /usr/lib/libnvidia-ml\.so\.1"
    ):
        repack(str(node), "libnvidia-ml1", "amd64", "535.261.03-1", str(tmp_path))
    with pytest.raises(CannotRepack, match="the node has another version"):
        repack(str(node), "libnvidia-ml1", "amd64", "535.1-1", str(tmp_path))
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".repack")] == []


def test_what_dpkg_and_apt_know_is_read(node):
    installed = read_installed(str(node))
    found = {name: (package.version, package.held) for name, package in installed.packages.items()}
    assert found == {"libnvidia-ml1": ("535.261.03-1", True), "half": ("2", False)}
    assert (installed.unfinished, installed.interrupted, installed.config_files) == (
        ["half"],
        False,
        {"gone"},
    )
    assert installed.sources == {"libnvidia-ml1": "nvidia-graphics-drivers", "half": "half"}
    plant(
        node,
        {
            "/var/lib/dpkg/updates/0001": (
                "Package: half\nStatus: install ok installed\nArchitecture: amd64\nVersion: 3\n"
            )
        },
    )
    again = read_installed(str(node))
    assert again.interrupted
    assert again.packages["half"].version == "3"
    states = (
        "Package: half\nArchitecture: i386\nAuto-Installed: 1\n\nPackage: gone\nArchitecture:"
        " amd64\nAuto-Installed: 0\n"
    )
    plant(node, {"/var/lib/apt/extended_states": states})
    assert read_automatic(str(node), "amd64") == {"half:i386"}
    assert (
        removed_with_config_files(
            b"Package: a\nStatus: install ok installed\nDescription: config-files\n"
        )
        == set()
    )
    assert sources_of(b"Package: a\n\nPackage: b\nSource: c (1.2)\n") == {"a": "a", "b": "c"}


def row(name, before, after, deb=None):
    return {
        "name": name, "architecture": "amd64", "before": before, "after": after, "deb": deb,
        "held": False, "automatic": False, "config_files": False,
    }  # fmt: skip


def test_a_rollback_is_what_differs_from_what_was(node):
    saved = {
        "packages": [
            row("libnvidia-ml1", "535.261.03-1", "535.309.01-1"),
            row("half", "1", "2"),
            row("new", None, "1"),
            row("old", "7", None),
        ]
    }
    assert plan_restore(saved, read_installed(str(node)), deb_version_key) == [
        Step("half", "downgrade", "2", "1"),
        Step("old", "install", None, "7"),
    ]


def test_a_rollback_without_its_packages_is_refused_before_anything_is_done(node):
    folder = "/var/lib/unhang/states/one"
    assert restore_packages(str(node), folder, 1, False) == []
    write_saved(
        str(node),
        folder,
        {"packages": [row("half", "1", "2", "packages/old/half_1_amd64.deb")], "status": "done"},
    )
    with pytest.raises(ValueError, match=r"half_1_amd64\.deb is missing in "):
        restore_packages(str(node), folder, 1, True)


def kept_package(node, content=b"the package as it was kept"):
    """A saved state that keeps half 1, whose file is there with another content maybe; gives its
    folder."""
    folder = "/var/lib/unhang/states/one"
    path = node / f"{folder}/packages/old/half_1_amd64.deb".lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"the package as it was kept")
    rows = [row("half", "1", "2", "packages/old/half_1_amd64.deb")]
    seal_kept(str(node), folder, rows)
    write_saved(str(node), folder, {"packages": rows, "status": "done"})
    path.write_bytes(content)
    return folder


@pytest.mark.parametrize(
    "content",
    [b"", b"the package as", b"the package as it was kepT", b"another package altogether"],
)
def test_a_kept_package_that_is_not_what_was_kept_is_refused_in_the_preview_already(node, content):
    folder = kept_package(node, content)
    before = sorted(path.name for path in (node / folder.lstrip("/")).rglob("*"))
    with pytest.raises(
        ValueError,
        match=r"half_1_amd64\.deb is not as it was kept \(SHA-256 [0-9a-f]{12}…\): it is ",
    ):
        restore_packages(str(node), folder, 1, True)
    with pytest.raises(ValueError, match=r"half_1_amd64\.deb is not as it was kept"):
        restore_packages(str(node), folder, 1, False)
    assert read_saved(str(node), folder)["status"] == "done"
    assert sorted(path.name for path in (node / folder.lstrip("/")).rglob("*")) == before


def test_a_damaged_package_of_an_earlier_try_does_not_count_as_kept(node):
    folder = kept_package(node, b"cut")
    rows = read_saved(str(node), folder)["packages"]
    forget_damaged(str(node), folder, rows)
    assert rows[0]["deb"] is None


def test_a_kept_package_that_is_what_was_kept_is_accepted(node):
    assert [step["name"] for step in restore_packages(str(node), kept_package(node), 1, True)] == [
        "half"
    ]


class TestChangedSince:
    """The node has libnvidia-ml1 535.261.03-1 on hold, and half 2."""

    def found(self, node, rows, status="done", named=(), newer=None):
        saved = {"packages": rows, "status": status}
        installed = read_installed(str(node))
        return sorted(kept_as_is(saved, installed, known_versions([saved, newer]), named))

    def test_what_is_as_unhang_left_it_or_found_it_is_rolled_back(self, node):
        held = dict(row("libnvidia-ml1", "535.216.01-1", "535.261.03-1"), held=True)
        assert self.found(node, [held, row("half", "1", "2"), row("gone-again", "7", None)]) == []
        assert self.found(node, [row("half", "2", "3")]) == []

    def test_what_somebody_has_upgraded_or_removed_since_stays_unless_it_is_named(self, node):
        rows = [
            row("half", "1", "1.5"),
            row("removed-by-admin", "1", "2"),
            row("brought", None, "1"),
        ]
        assert self.found(node, rows) == ["half", "removed-by-admin"]
        assert self.found(node, rows, named=["hal*"]) == ["removed-by-admin"]

    def test_a_hold_that_an_admin_has_set_since_stays_and_one_of_unhang_does_not_count(self, node):
        rows = [row("libnvidia-ml1", "535.216.01-1", "535.261.03-1")]
        assert self.found(node, rows) == ["libnvidia-ml1"]
        plant(
            node,
            {
                "/var/lib/unhang/package_hold.json": (
                    '{"schema": "unhang/state/1", "holds": ["libnvidia-ml1:amd64"]}'
                )
            },
        )
        assert self.found(node, rows) == []

    def test_what_a_newer_state_or_an_interrupted_change_left_is_nobody_elses(self, node):
        rows = [row("half", "1", "1.5"), row("taken-out", "1", "2")]
        newer = {"packages": [row("half", "1.5", "2")], "status": "done"}
        assert self.found(node, rows, newer=newer) == ["taken-out"]
        assert self.found(node, rows, status="applying", newer=newer) == []


def test_what_was_fetched_for_nothing_goes_and_what_was_touched_stays(node):
    folder = "/var/lib/unhang/states/one"
    plant(node, {f"{folder}/packages/old/x.deb": "", f"{folder}/state.json": "{}"})
    write_saved(str(node), folder, {"packages": [], "status": "fetching"})
    forget_fetched(str(node), folder, "404")
    assert sorted(path.name for path in (node / folder.lstrip("/")).iterdir()) == ["state.json"]
    write_saved(str(node), folder, {"packages": [], "status": "fetching"})
    mark(str(node), folder, "applying")
    forget_fetched(str(node), folder, "404")
    assert read_saved(str(node), folder)["status"] == "failed"


def test_a_broken_file_of_saved_packages_is_named(node):
    plant(node, {"/var/lib/unhang/states/one/packages.json": "{"})
    with pytest.raises(
        ValueError, match=r"states/one/packages\.json does not hold what unhang saved there"
    ):
        read_saved(str(node), "/var/lib/unhang/states/one")


def test_the_holder_of_a_lock_is_named_by_pid_and_command(node):
    plant(node, {"/var/lib/dpkg/lock-frontend": ""})
    assert find_holder(str(node), APT_LOCKS) is None
    code = (
        "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX);"
        " print('taken',flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(node / "var/lib/dpkg/lock-frontend")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        path, pid, words = find_holder(str(node), APT_LOCKS)
        assert (path, pid) == ("/var/lib/dpkg/lock-frontend", other.pid)
        assert words.startswith(f"{sys.executable} -c import fcntl")
        with pytest.raises(Locked, match=f"by /var/lib/dpkg/lock-frontend .pid {other.pid}: "):
            wait_for_locks(str(node), APT_LOCKS, 0)
        other.stdin.close()
        other.wait()
    assert wait_for_locks(str(node), APT_LOCKS, 0) == ""


def test_our_own_lock_is_no_other_process(node):
    plant(node, {"/var/lib/dpkg/lock": ""})
    with (node / "var/lib/dpkg/lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert wait_for_locks(str(node), APT_LOCKS, 0) == ""
