"""A rollback restores only what is still as unhang wrote it: each kind of restored thing, changed by
an admin after unhang, stays as the admin has it and is named. With the real dpkg for holds."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from fakes.ansible_module import run_module
from fakes.boot_tree import (
    NEW,
    OLD,
    fake_tools,
    grubenv,
    kernel_files,
    plant_grub_node,
    running_files,
)
from fakes.node_tree import dpkg_status, plant

from unhang_node.change.atomic_files import STATES
from unhang_node.change.journal.running_values import GPU_MODES, Change, keep_running
from unhang_node.change.package.saved import write_saved
from unhang_node.change.rollback.left_values import BOOT, FILES, HOLDS, LINKS, read_left
from unhang_node.change.rollback.running_values import kinds_of

CONF, PIN = "/etc/nccl.conf", "/etc/apt/preferences.d/unhang-package-hold"
SYSCTL = "/proc/sys/net/ipv4/tcp_rmem"
WANTS = "/etc/systemd/system/multi-user.target.wants"
UNIT, SERVICE = "/lib/systemd/system/nvidia-persistenced.service", "nvidia-persistenced.service"
OURS, LATER = "535.261.03-1", "535.309.01-1"


def begun(root, role="host_tuning", run="r"):
    return run_module("saved_state", rootfs=str(root), state="begun", role=role, run=run)["id"]


def finished(root, state_id):
    run_module("saved_state", rootfs=str(root), state="finished", id=state_id)
    return state_id


def restore(root, **more):
    answer = run_module("state_restore", rootfs=str(root), **(more or {"id": "latest"}))
    assert not answer.get("failed"), answer
    return answer


def select(root, *lines):
    subprocess.run(
        ["dpkg", f"--root={root}", "--set-selections"],
        input="\n".join(lines) + "\n",
        text=True,
        check=True,
    )


def selections(root):
    argv = ["dpkg", f"--root={root}", "--get-selections"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def packages(root, version):
    """The database of dpkg, in which the driver has this version."""
    names = {"nvidia-driver": version, "libnccl2": "2.18.3-1"}
    plant(root, {"/var/lib/dpkg/status": dpkg_status(names) + "\n"})


def planted(root):
    plant(
        root,
        {
            CONF: "NCCL_IB_TIMEOUT=22\n",
            SYSCTL: "1\n",
            "/proc/sys/kernel/random/boot_id": "one\n",
            "/etc/apt/preferences.d/": "",
            "/etc/apt/apt.conf.d/": "",
            "/var/lib/dpkg/available": "",
            "/var/lib/dpkg/updates/": "",
            UNIT: "[Service]\n",
        },
    )
    packages(root, OURS)
    return root


def write_file(root):
    state_id = begun(root)
    settings = {"format": "nccl_conf", "settings": {"A": "1"}}
    run_module("own_file", rootfs=str(root), state_id=state_id, path=CONF, **settings)
    return finished(root, state_id)


def hold(root, groups=("driver",), run="r"):
    state_id = begun(root, "package_hold", run)
    run_module("package_pin", rootfs=str(root), groups=list(groups), state_id=state_id)
    return finished(root, state_id)


def hold_and_let_go(root):
    hold(root, run="r1")
    hold(root, (), run="r2")


def set_sysctl(root):
    state_id = begun(root)
    keep_running(str(root), state_id, [Change("sysctl", "net.ipv4.tcp_rmem", "1", "2")])
    place(root, SYSCTL).write_text("2\n")
    return finished(root, state_id)


def enable(root):
    """A change of a package, with which a unit has come to start at boot."""
    state_id = begun(root, "gpu_driver")
    row = {
        "name": "nvidia-driver", "architecture": "amd64", "before": OURS, "after": OURS,
        "deb": None, "held": False, "automatic": False, "config_files": True,
        "units": [SERVICE], "links": {},
    }  # fmt: skip
    saved = {"manager": "dpkg", "packages": [row], "status": "done"}
    write_saved(str(root), f"{STATES}/{state_id}", saved)
    link(root, UNIT)
    return finished(root, state_id)


def place(root, path):
    return Path(root) / path.lstrip("/")


def link(root, target):
    there = place(root, f"{WANTS}/{SERVICE}")
    there.parent.mkdir(parents=True, exist_ok=True)
    there.unlink(missing_ok=True)
    there.symlink_to(target)


def links(root):
    there = place(root, WANTS)
    found = {one.name: os.readlink(one) for one in there.iterdir()} if there.is_dir() else {}
    return {**found, "mask": place(root, f"/etc/systemd/system/{SERVICE}").is_symlink()}


def mask(root):
    place(root, f"{WANTS}/{SERVICE}").unlink()
    place(root, f"/etc/systemd/system/{SERVICE}").symlink_to("/dev/null")


def upgrade_and_hold(root):
    packages(root, LATER)
    select(root, "nvidia-driver hold")


def mode_of(root):
    return place(root, CONF).stat().st_mode & 0o777


# what unhang does, what the admin does after it, what is looked at, what is named
TABLE = {
    "file": (
        write_file,
        lambda root: place(root, CONF).write_text("MINE=1\n"),
        lambda root: place(root, CONF).read_text(),
        CONF,
    ),
    "file, its mode": (
        write_file,
        lambda root: place(root, CONF).chmod(0o604),
        mode_of,
        CONF,
    ),
    "file, removed": (
        write_file,
        lambda root: place(root, CONF).unlink(),
        lambda root: place(root, CONF).exists(),
        CONF,
    ),
    "pin": (
        hold,
        lambda root: place(root, PIN).write_text("Package: *\n"),
        lambda root: place(root, PIN).exists() and place(root, PIN).read_text(),
        PIN,
    ),
    "hold, of a version that unhang has not held": (
        hold,
        upgrade_and_hold,
        selections,
        "nvidia-driver:amd64",
    ),
    "hold, of what unhang has let go": (
        hold_and_let_go,
        lambda root: select(root, "nvidia-driver hold"),
        selections,
        "nvidia-driver:amd64",
    ),
    "sysctl": (
        set_sysctl,
        lambda root: place(root, SYSCTL).write_text("3\n"),
        lambda root: place(root, SYSCTL).read_text(),
        "sysctl net.ipv4.tcp_rmem",
    ),
    "service, masked": (enable, mask, links, f"/etc/systemd/system/{SERVICE}"),
    "service, started by another unit file": (
        enable,
        lambda root: link(root, f"/etc/systemd/system/{SERVICE}"),
        links,
        f"{WANTS}/{SERVICE}",
    ),
}


@pytest.mark.parametrize("kind", TABLE)
def test_what_an_admin_changed_after_unhang_stays_and_is_named(tmp_path, kind):
    root = planted(tmp_path)
    change, change_by_admin, read, named = TABLE[kind]
    change(root)
    plant(root, {f"/etc/systemd/system/{SERVICE}.old": ""})
    change_by_admin(root)
    as_admin_left_it = read(root)
    first = run_module("saved_state", rootfs=str(root), state="listed")["states"][0]["id"]
    foretold = run_module("state_restore", rootfs=str(root), id=first, check=True)
    answer = restore(root, id=first)
    assert read(root) == as_admin_left_it
    lines = [line for line in answer["needs_manual_action"] if line.startswith(f"{named}: ")]
    assert len(lines) == 1, answer
    assert "somebody changed it since, and it stays" in lines[0]
    assert foretold["needs_manual_action"] == answer["needs_manual_action"]


@pytest.mark.parametrize("kind", TABLE)
def test_without_an_admin_the_same_things_come_back(tmp_path, kind):
    root = planted(tmp_path)
    change, _by_admin, read, _named = TABLE[kind]
    before = read(root)
    change(root)
    first = run_module("saved_state", rootfs=str(root), state="listed")["states"][0]["id"]
    answer = restore(root, id=first)
    assert read(root) == before
    assert answer["needs_manual_action"] == []


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """A node on which the role kernel has made another kernel the default."""
    monkeypatch.setenv("PATH", f"{fake_tools(tmp_path / 'bin')}:{os.environ['PATH']}")
    root = plant_grub_node(tmp_path / "node", kernels=(OLD,))
    state_id = begun(root, "kernel")
    run_module("boot_trial", rootfs=str(root), state="prepared", state_id=state_id)
    plant(root, kernel_files(NEW))
    run_module("boot_trial", rootfs=str(root), state="armed", release=NEW, gpus=["GPU-0"])
    plant(root, {"/proc/sys/kernel/osrelease": NEW + "\n"})
    return root, state_id


def test_a_boot_entry_that_an_admin_chose_after_unhang_stays_and_is_named(tmp_path, tried):
    root, state_id = tried
    finished(root, state_id)
    menu = place(root, "/boot/grub/grubenv")
    menu.write_bytes(grubenv(saved_entry="admins-own"))
    answer = restore(root)
    assert b"saved_entry=admins-own" in menu.read_bytes()
    assert answer["boot"] == []
    [line] = [one for one in answer["needs_manual_action"] if one.startswith("default boot entry")]
    assert "it is admins-own now; somebody changed it since, and it stays" in line


def test_a_trial_that_one_run_prepared_and_a_later_one_kept_is_rolled_back_with_both(
    tmp_path, monkeypatch
):
    """The later state has saved the entry as it was before the first one."""
    monkeypatch.setenv("PATH", f"{fake_tools(tmp_path / 'bin')}:{os.environ['PATH']}")
    root = plant_grub_node(tmp_path / "node", kernels=(OLD,))
    menu = place(root, "/boot/grub/grubenv")
    first = begun(root, "kernel", run="r1")
    run_module("boot_trial", rootfs=str(root), state="prepared", state_id=first)
    plant(root, kernel_files(NEW))
    finished(root, first)
    later = begun(root, "kernel", run="r2")
    armed = {"release": NEW, "gpus": ["GPU-0"], "state_id": later}
    # the package of the new kernel does that
    subprocess.run(["chroot", str(root), "update-grub"], check=True)
    run_module("boot_trial", rootfs=str(root), state="armed", **armed)
    plant(root, running_files(NEW, "boot-2"))
    kept = run_module("boot_trial", rootfs=str(root), state="confirmed", **armed)
    assert kept.get("standing") == "confirmed", kept
    finished(root, later)
    assert NEW.encode() in menu.read_bytes()
    answer = restore(root, id=first)
    assert answer["needs_manual_action"] == []
    assert answer["boot"] != []


def test_every_kind_of_restored_thing_is_in_the_table_or_has_its_value_beside_it(tmp_path):
    """A new kind of thing needs a row above. Values of the running system, and packages, carry what
    unhang wrote in their own record (running.json, packages.json)."""
    state_id = write_file(planted(tmp_path))
    assert set(read_left(str(tmp_path), state_id)) == {FILES, HOLDS, BOOT, LINKS}
    by_record = {
        "sysctl", "shm_size", "limit", "service_at_boot", "started_by", "service_now",
        "boot_parameter", "kernel_module",
    }  # fmt: skip
    assert set(kinds_of("/")) == by_record
    assert GPU_MODES == ("compute_mode", "persistence")


def test_a_role_that_was_killed_before_it_recorded_what_it_wrote_is_rolled_back_all_the_same(
    tmp_path,
):
    root = planted(tmp_path)
    state_id = begun(root)
    settings = {"format": "nccl_conf", "settings": {"A": "1"}}
    run_module("own_file", rootfs=str(root), state_id=state_id, path=CONF, **settings)
    assert (
        json.loads(place(root, f"{STATES}/{state_id}/state.json").read_text()).get("left") is None
    )
    restore(root)
    assert place(root, CONF).read_text() == "NCCL_IB_TIMEOUT=22\n"
