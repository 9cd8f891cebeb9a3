"""The role package_hold, run by ansible-playbook on a planted package database, and the audit's
verdict before and after it."""

from __future__ import annotations

import json

from fakes.ansible_module import run_module, tree
from fakes.node_tree import dpkg_status, plant
from fakes.role_play import play_here

PACKAGES = {
    "nvidia-driver": "535.261.03-1",
    "linux-image-amd64": "6.1.140-1",
    "libnccl2": "2.18.3-1",
    "mlnx-ofed-kernel-dkms": "24.10-1",
    "bash": "5.2-1",
}
POLICY = {
    "driver": {"version": "535.261.03", "held": True},
    "kernel": {"held": True},
    "nccl": {"held": True},
    "ofed": {"held": True},
    "gpu": {"count": 8},
}


def node(folder):
    plant(
        folder / "node",
        {
            "/var/lib/dpkg/status": dpkg_status(PACKAGES) + "\n",
            "/var/lib/dpkg/available": "",
            "/var/lib/dpkg/updates/": "",
        },
    )
    return folder / "node"


def play(folder, policy, *arguments, **variables):
    return play_here(
        folder,
        "package_hold",
        {"package_hold_rootfs": str(folder / "node"), "unhang_policy": policy, **variables},
        *arguments,
    )


def test_what_the_policy_wants_held_is_held_and_let_go_again(tmp_path):
    root = node(tmp_path)
    before = tree(root)
    foretold = play(tmp_path, POLICY, "--check", "--diff")
    assert foretold.changed == {"planted": 1}
    assert "+nvidia-driver:amd64" in foretold.output
    assert tree(root) == before
    assert play(tmp_path, POLICY).changed == {"planted": 1}
    held = run_module(
        "package_pin", check=True, rootfs=str(root), groups=["driver", "kernel", "nccl", "ofed"]
    )
    assert {row["name"].split(":")[0] for row in held["before"] if row["held"]} == set(PACKAGES) - {
        "bash"
    }
    assert play(tmp_path, POLICY).changed == {"planted": 0}
    assert play(tmp_path, POLICY, package_hold_state="absent").changed == {"planted": 1}
    assert not (root / "var/lib/unhang/package_hold.json").exists()


def test_another_driver_than_the_policys_stops_the_role(tmp_path):
    root = node(tmp_path)
    before = tree(root)
    refused = play(tmp_path, {"driver": {"version": "580.95.05", "held": True}})
    assert refused.code != 0
    assert "driver 535.261.03 is installed, not 580.95.05" in json.dumps(refused.output)
    assert tree(root) == before
