"""The roles build_toolchain and gpu_binding on a booted node: they repair the findings of the
audit."""

from __future__ import annotations

import pytest
from playbooks_on_nodes import play
from repository import APT, build_package, serve
from role_plays import play_role, state_of
from toolchain_packages import TOOLS, offer_toolchain, toolchain

NODE = "gpu001"
BUILT = "/usr/local/lib/fused.so"
PREBUILD = [
    {
        "name": "fused kernels",
        "argv": ["install", "-m", "644", "/dev/null", BUILT],
        "creates": BUILT,
    }
]
POLICY = {"build": {"extensions": True}, "torch": {"cuda": "12.8"}}
LOCK = "/root/.cache/torch_extensions/py310_cu128/fused/lock"
MISSING = {
    "build-compiler-missing",
    "build-ninja-missing",
    "build-python-headers-missing",
    "extension-lock-stale",
}
PINNED = {
    "/etc/environment": "SITE=1\nCUDA_VISIBLE_DEVICES=0\n",
    "/etc/profile.d/cuda.sh": "if true; then\n  export CUDA_VISIBLE_DEVICES=0\nfi\n",
}


def rules(fleet, policy):
    """Findings of the audit on the node under the policy."""
    return set(
        fleet.audit(groups={"training": [NODE]}, variables={"unhang_policy": policy}).rules(NODE)
    )


@pytest.fixture
def bare(fleet, tmp_path):
    """A node without compilers, whose repository has them, and with the lock of a build that was
    killed."""
    offer_toolchain(fleet, NODE, tmp_path)
    fleet.plant(NODE, LOCK, "")
    fleet.undo.callback(fleet.shell, NODE, f"rm -rf {BUILT} /var/lib/unhang")
    return fleet


def test_what_building_takes_is_installed_and_a_dead_lock_goes(bare):
    found, untouched = rules(bare, POLICY), state_of(bare, NODE)
    assert found >= MISSING
    prebuild = {"build_toolchain_prebuild": PREBUILD}
    foretold = play_role(bare, "build_toolchain", NODE, POLICY, "--check", "--diff", **prebuild)
    assert foretold.changed == {NODE: 3}
    assert state_of(bare, NODE) == untouched
    assert play_role(bare, "build_toolchain", NODE, POLICY, **prebuild).changed == {NODE: 3}
    assert not {
        rule
        for rule in rules(bare, POLICY)
        if rule.startswith(("build-", "extension-")) and rule in MISSING | {"build-nvcc-missing"}
    }
    applied_state = state_of(bare, NODE)
    assert play_role(bare, "build_toolchain", NODE, POLICY, **prebuild).changed == {NODE: 0}
    assert state_of(bare, NODE) == applied_state


def installed(fleet):
    """Every package of the node, with its state and version."""
    return fleet.shell(
        NODE, "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'; apt-mark showauto"
    )


def test_a_rollback_takes_away_exactly_what_came_and_what_came_because_of_it(fleet, tmp_path):
    needing = build_package(
        tmp_path, "make", "4.3-1", TOOLS["make"], fields="Depends: libguile-probe\n"
    )
    serve(
        fleet,
        NODE,
        [needing, build_package(tmp_path, "libguile-probe", "1.0-1"), *toolchain(tmp_path, "make")],
    )
    fleet.shell(NODE, f"{APT} install ninja-build")
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang")
    before = installed(fleet)
    assert play_role(fleet, "build_toolchain", NODE, POLICY).code == 0
    after = installed(fleet)
    assert "ii  libguile-probe" in after
    preview = play(fleet, "playbooks/rollback.yml", [NODE], {})
    assert "package libguile-probe: remove, 1.0-1 to not installed" in preview.output
    assert "package ninja-build" not in preview.output
    assert installed(fleet) == after
    assert play(fleet, "playbooks/rollback.yml", [NODE], {}, unhang_apply=True).code == 0
    assert installed(fleet) == before
    again = play(fleet, "playbooks/rollback.yml", [NODE], {}, unhang_apply=True)
    assert (again.code != 0, "that was not rolled back already" in again.output) == (
        True,
        True,
    )


def test_pins_of_gpus_are_taken_out_and_put_back(fleet):
    for path, content in PINNED.items():
        fleet.plant(NODE, path, content)
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang")
    untouched = state_of(fleet, NODE)
    assert "cuda-visible-devices-pinned" in rules(fleet, {})
    foretold = play_role(fleet, "gpu_binding", NODE, {}, "--check", "--diff")
    assert state_of(fleet, NODE) == untouched
    applied = play_role(fleet, "gpu_binding", NODE, {})
    assert applied.changed == foretold.changed == {NODE: 1}
    assert "cuda-visible-devices-pinned" not in rules(fleet, {})
    assert "CUDA_VISIBLE_DEVICES" not in fleet.nodes[NODE].ssh("bash -lc env").stdout
    assert play_role(fleet, "gpu_binding", NODE, {}).changed == {NODE: 0}
    assert play_role(fleet, "gpu_binding", NODE, {}, gpu_binding_state="absent").changed == {
        NODE: 1
    }
    fleet.shell(
        NODE, "rm -r /var/lib/unhang/states /var/lib/unhang/fencing.json; rmdir /var/lib/unhang"
    )
    assert state_of(fleet, NODE) == untouched
