"""The role gpu_driver on a booted node, with small packages: up and held, audited before and after a real reboot; and the services that hold GPUs."""

from __future__ import annotations

from driver_node import NEW, OLD, prepare
from role_plays import play_role, state_of

NODE = "gpu001"
POLICY = {"driver": {"version": NEW, "flavour": "proprietary", "held": True}}
RULES = {"policy-driver-version", "policy-driver-not-held", "driver-library-mismatch", "driver-next-load-differs"}


def rules(fleet):
    """What the audit finds of the driver under the policy."""
    return RULES & set(fleet.audit(groups={"training": [NODE]}, variables={"unhang_policy": POLICY}).rules(NODE))


def driver_of(fleet):
    """Version of the driver's packages."""
    return set(fleet.shell(NODE, "dpkg-query -W -f '${Version}\\n' nvidia-driver nvidia-kernel-dkms libnvidia-ml1").split())


def test_a_driver_goes_up_is_held_and_counts_after_the_reboot(fleet, tmp_path):
    prepare(fleet, NODE, tmp_path)
    assert rules(fleet) == {"policy-driver-version", "policy-driver-not-held"}
    untouched = state_of(fleet, NODE)
    foretold = play_role(fleet, "gpu_driver", NODE, POLICY, "--check", "--diff")
    assert foretold.code == 0
    assert "simulated" in foretold.said
    assert state_of(fleet, NODE) == untouched

    applied = play_role(fleet, "gpu_driver", NODE, POLICY)
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert driver_of(fleet) == {f"{NEW}-1"}
    assert f"{OLD} is loaded until the node boots" in applied.said
    assert rules(fleet) == {"policy-driver-version", "driver-library-mismatch", "driver-next-load-differs"}

    settled = state_of(fleet, NODE)
    assert play_role(fleet, "gpu_driver", NODE, POLICY).changed == {NODE: 0}
    assert state_of(fleet, NODE) == settled
    fleet.shell(NODE, "apt-get -y -q full-upgrade 2>&1")
    assert driver_of(fleet) == {f"{NEW}-1"}

    fleet.nodes[NODE].order_reboot()
    assert rules(fleet) == set()
    assert play_role(fleet, "gpu_driver", NODE, POLICY).changed == {NODE: 0}
