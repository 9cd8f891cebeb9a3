"""The role nccl_profile on a booted node: it repairs the findings of the audit, and a rollback
restores the old settings."""

from __future__ import annotations

import pytest
from role_plays import play_role, state_of

NODE = "gpu001"
POLICY = {
    "nccl": {"profile": "single_node_nvlink+flight_recorder", "settings": {"NCCL_DEBUG": "WARN"}}
}
BROKEN = {
    "/etc/nccl.conf": "NCCL_IB_TIMEOUT=22\nNCCL_P2P_DISABLE=1\n",
    "/etc/environment": "NCCL_TIMEOUT=1200000\nNCCL_BLOCKING_WAIT=1\nSITE=1\n",
    "/etc/profile.d/site.sh": 'if [ -n "$HOME" ]; then\n  export NCCL_SOCKET_IFNAME=eth7\nfi\n',
}
REPAIRED = {
    "nccl-p2p-disabled",
    "nccl-setting-not-real",
    "torch-setting-renamed",
    "nccl-interface-does-not-exist",
    "policy-nccl-setting",
}
SECOND_INTERFACE = (
    "ip link add eth1 type veth peer name eth2 && ip address add 10.99.0.2/24 dev eth1 && ip link"
    " set eth1 up && ip link set eth2 up"
)


@pytest.fixture
def broken(fleet):
    """A node with harmful settings, and two interfaces of which one has its address."""
    for path, content in BROKEN.items():
        fleet.plant(NODE, path, content)
    fleet.shell(NODE, SECOND_INTERFACE, undo="ip link del eth1")
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang /etc/profile.d/unhang-nccl.sh")
    return fleet


def rules(fleet):
    """Findings of the audit on the node under the policy."""
    return set(
        fleet.audit(groups={"training": [NODE]}, variables={"unhang_policy": POLICY}).rules(NODE)
    )


def test_what_the_audit_finds_the_role_repairs_and_takes_back(broken):
    network = {"nccl_profile_network": broken.nodes[NODE].address + "/24"}
    found, untouched = rules(broken), state_of(broken, NODE)
    assert found >= REPAIRED

    foretold = play_role(broken, "nccl_profile", NODE, POLICY, "--check", "--diff", **network)
    assert foretold.code == 0
    assert state_of(broken, NODE) == untouched

    applied = play_role(broken, "nccl_profile", NODE, POLICY, **network)
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert applied.changed[NODE] > 0
    assert "NCCL_IB_TIMEOUT=22" in broken.shell(NODE, "cat /etc/nccl.conf")
    assert "NCCL_SOCKET_IFNAME==host0" in broken.shell(NODE, "cat /etc/nccl.conf")

    left = rules(broken)
    assert not REPAIRED & left
    assert left <= found, f"the role brought in {left - found}"
    login = broken.nodes[NODE].ssh("bash -lc env").stdout
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT=1" in login
    assert "NCCL_TIMEOUT" not in login
    assert "SITE=1" in login

    applied_state = state_of(broken, NODE)
    assert play_role(broken, "nccl_profile", NODE, POLICY, **network).changed == {NODE: 0}
    assert state_of(broken, NODE) == applied_state

    assert play_role(broken, "nccl_profile", NODE, POLICY, nccl_profile_state="absent").code == 0
    broken.shell(
        NODE, "rm -r /var/lib/unhang/states /var/lib/unhang/fencing.json; rmdir /var/lib/unhang"
    )
    assert state_of(broken, NODE) == untouched


def test_an_unusable_profile_writes_nothing_and_says_why(fleet):
    before = state_of(fleet, NODE)
    refused = play_role(fleet, "nccl_profile", NODE, {"nccl": {"profile": "p2p_workaround"}})
    assert refused.failed == {NODE: 1}
    assert "the rule nccl-p2p-disabled is not waived" in refused.output
    assert state_of(fleet, NODE) == before
