"""The role package_hold on a booted node, with real apt and dpkg and a repository that offers a
newer driver."""

from __future__ import annotations

import pytest
from repository import APT, build_package, serve
from role_plays import play_role, state_of

NODE = "gpu001"
OLD, NEW = "580.159.04-1", "580.178.04-1"
NAMES = ("nvidia-driver", "libnvidia-ml1")
POLICY = {"driver": {"version": "580.159.04", "held": True}}


@pytest.fixture
def equipped(fleet, tmp_path):
    """A node with the old driver's packages, and an apt repository that offers the new one; without
    holds that another test may have left on it."""
    fleet.shell(
        NODE,
        "rm -f /etc/apt/preferences.d/unhang-package-hold"
        " /etc/apt/apt.conf.d/52unhang-package-hold",
    )
    serve(
        fleet,
        NODE,
        [build_package(tmp_path, name, version) for name in NAMES for version in (OLD, NEW)],
    )
    fleet.shell(NODE, f"{APT} install " + " ".join(f"{name}={OLD}" for name in NAMES))
    return fleet


def versions(fleet):
    """Installed versions as dpkg reports them."""
    return set(fleet.shell(NODE, "dpkg-query -W -f '${Version}\\n' " + " ".join(NAMES)).split())


def rules(fleet):
    """Findings of the audit on the node under the policy."""
    return set(
        fleet.audit(groups={"training": [NODE]}, variables={"unhang_policy": POLICY}).rules(NODE)
    )


def test_a_held_driver_stays_through_every_upgrade_until_it_is_let_go(equipped):
    untouched = state_of(equipped, NODE)
    assert "policy-driver-not-held" in rules(equipped)

    foretold = play_role(equipped, "package_hold", NODE, POLICY, "--check", "--diff")
    assert foretold.changed == {NODE: 1}
    assert state_of(equipped, NODE) == untouched
    assert play_role(equipped, "package_hold", NODE, POLICY).changed == {NODE: 1}
    assert "policy-driver-not-held" not in rules(equipped)
    held = state_of(equipped, NODE)
    assert play_role(equipped, "package_hold", NODE, POLICY).changed == {NODE: 0}
    assert state_of(equipped, NODE) == held

    equipped.shell(NODE, f"{APT} full-upgrade")
    equipped.shell(NODE, f"{APT} install {NAMES[0]}")
    assert versions(equipped) == {OLD}
    # only the pin holds the package now
    equipped.shell(NODE, f"apt-mark unhold {NAMES[0]} && {APT} full-upgrade")
    assert versions(equipped) == {OLD}

    assert play_role(
        equipped, "package_hold", NODE, POLICY, package_hold_state="absent"
    ).changed == {NODE: 1}
    equipped.shell(
        NODE, "rm -r /var/lib/unhang/states /var/lib/unhang/fencing.json; rmdir /var/lib/unhang"
    )
    assert state_of(equipped, NODE) == untouched
    equipped.shell(NODE, f"{APT} full-upgrade")
    assert versions(equipped) == {NEW}
