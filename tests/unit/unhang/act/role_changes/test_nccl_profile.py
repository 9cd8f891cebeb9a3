"""Settings of a node out of a profile, the node's facts and the policy."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from unhang.act.role_changes.nccl_profile import Node, plan_settings
from unhang.act.role_changes.nccl_setting_check import read_known
from unhang.act.role_changes.nccl_values import DesiredState
from unhang.core.strict_yaml import load_yaml

PROFILES = load_yaml(Path(__file__).parents[5] / "roles" / "nccl_profile" / "vars" / "main.yml")[0][
    "__nccl_profile_profiles"
]
IPV4_GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"
IPV6_GID = "fe80:0000:0000:0000:0000:0000:0000:0001"


def interface(name, address, default_route=False):
    return {"name": name, "addresses": [address], "default_route": default_route}


def port(layer="infiniband", rate=400, state="active", gids=()):
    return {"port": 1, "state": state, "link_layer": layer, "rate_gbps": rate, "gids": list(gids)}


def gid(index, address=IPV4_GID, kind="roce_v2"):
    return {"index": index, "gid": address, "type": kind}


ONE_CARD = {
    "interfaces": [interface("eno1", "10.0.0.1/24", True)],
    "usable_interfaces": ["eno1"],
    "rdma": [],
    "has_rdma": False,
    "has_infiniband": False,
}
TWO_CARDS = {
    **ONE_CARD,
    "interfaces": [interface("eno1", "192.0.2.7/24"), interface("bond0", "10.1.0.7/16")],
    "usable_interfaces": ["eno1", "bond0"],
}
INFINIBAND = {
    **TWO_CARDS,
    "has_rdma": True,
    "has_infiniband": True,
    "rdma": [
        {"name": "mlx5_0", "ports": [port()]},
        {"name": "mlx5_1", "ports": [port()]},
        {"name": "mlx5_2", "ports": [port(rate=100)]},
        {"name": "mlx5_3", "ports": [port(state="down")]},
        {"name": "mlx5_4", "ports": [port("ethernet", 400)]},
    ],
}


def roce(*indices):
    """A node whose RoCE ports have their IPv4 GID at these places."""
    devices = [
        {
            "name": f"mlx5_{n}",
            "ports": [port("ethernet", gids=[gid(0, IPV6_GID), gid(1, kind="roce_v1"), gid(i)])],
        }
        for n, i in enumerate(indices)
    ]
    return {**ONE_CARD, "has_rdma": True, "rdma": devices}


@functools.cache
def known():
    return read_known()


def plan(
    network,
    policy,
    *,
    nccl="2.27.5",
    torch=(),
    desired=None,
    host="gpu001",
    today="2026-11-20",
    allow_debug=False,
    profiles=PROFILES,
):
    sections = {
        "network": network,
        "nccl": {"libraries": [{"version": nccl}] if nccl else []},
        "torch": {"environments": [{"torch": version} for version in torch]},
    }
    return plan_settings(
        Node(host, ("training",), sections, today),
        policy,
        profiles,
        known(),
        desired or DesiredState(),
        allow_debug,
    )


def of_profile(name, network, **more):
    return plan(network, {"nccl": {"profile": name}}, **more)


@pytest.mark.parametrize(
    ("profile", "network", "conf"),
    [
        ("single_node_nvlink", ONE_CARD, {}),
        (
            "single_node_nvlink",
            {**TWO_CARDS, "interfaces": [interface("bond0", "10.1.0.7/16", True)]},
            {"NCCL_SOCKET_IFNAME": "=bond0"},
        ),
        ("pcie_workstation", ONE_CARD, {"NCCL_DEBUG": "WARN"}),
        ("no_infiniband", ONE_CARD, {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "=eno1"}),
        ("tcp", ONE_CARD, {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "=eno1"}),
        ("efa", ONE_CARD, {"NCCL_SOCKET_IFNAME": "=eno1"}),
        ("gcp_gvnic", ONE_CARD, {"NCCL_SOCKET_IFNAME": "=eno1"}),
        ("roce", roce(3, 3), {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_SOCKET_IFNAME": "=eno1"}),
        ("debug", ONE_CARD, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH"}),
    ],
)
def test_each_profile_gives_the_values_of_this_node(profile, network, conf):
    found = of_profile(profile, network)
    assert found["problems"] == []
    assert found["conf"] == conf


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_names_its_source_and_sets_only_what_is_known(profile):
    """On some node that it fits, each profile passes the check against the known variables."""
    networks = [ONE_CARD, roce(3, 3), {**INFINIBAND, "usable_interfaces": ["bond0"]}]
    waiver = {"rule": "nccl-p2p-disabled", "reason": "r", "by": "b", "until": "2026-12-31"}
    plans = [
        plan(network, {"nccl": {"profile": profile}, "waivers": [waiver]}) for network in networks
    ]
    assert any(one["problems"] == [] for one in plans), plans
    assert PROFILES[profile]["source"].startswith("https://")


def test_a_gid_index_is_set_only_where_nccl_does_not_choose_it_itself():
    assert of_profile("roce", roce(3, 3), nccl="2.20.5")["conf"]["NCCL_IB_GID_INDEX"] == "3"
    assert "NCCL_IB_GID_INDEX" not in of_profile("roce", roce(3, 3), nccl="2.21.5")["conf"]


def test_ports_whose_gids_stand_at_different_places_are_refused():
    (problem,) = of_profile("roce", roce(3, 5), nccl="2.20.5")["problems"]
    assert "mlx5_0:1: 3" in problem
    assert "mlx5_1:1: 5" in problem


def test_infiniband_takes_active_ports_of_the_fastest_rate_and_tells_what_it_left_out():
    found = of_profile("infiniband", INFINIBAND, desired=DesiredState(network="10.1.0.0/16"))
    assert found["conf"] == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_SOCKET_IFNAME": "=bond0"}
    assert any("mlx5_2:1 (100 Gbit/s)" in note for note in found["notes"])


def test_named_hcas_are_taken_and_one_that_is_down_is_refused():
    desired = DesiredState(network="10.1.0.0/16", hcas=("mlx5_2",))
    assert (
        of_profile("infiniband", INFINIBAND, desired=desired)["conf"]["NCCL_IB_HCA"] == "=mlx5_2:1"
    )
    (problem,) = of_profile(
        "infiniband", INFINIBAND, desired=DesiredState(network="10.1.0.0/16", hcas=("mlx5_3",))
    )["problems"]
    assert "mlx5_3" in problem


def test_an_interface_that_the_facts_do_not_decide_is_asked_for():
    (problem,) = of_profile("tcp", TWO_CARDS)["problems"]
    assert "eno1, bond0" in problem
    assert "network.interfaces" in problem


def test_the_policys_interfaces_are_taken_by_their_exact_names():
    policy = {"nccl": {"profile": "tcp"}, "network": {"interfaces": ["bond0"]}}
    assert (
        plan(TWO_CARDS, policy, desired=DesiredState(interfaces=("bond0",)))["conf"][
            "NCCL_SOCKET_IFNAME"
        ]
        == "=bond0"
    )
    (problem,) = plan(TWO_CARDS, policy, desired=DesiredState(interfaces=("eth0",)))["problems"]
    assert "eth0" in problem


def test_a_profile_for_other_hardware_is_refused():
    (first, *_more) = of_profile("infiniband", ONE_CARD)["problems"]
    assert "needs has_infiniband to be true, and it is false" in first


def test_profiles_are_added_up_and_what_torch_reads_goes_apart():
    found = of_profile("no_infiniband+flight_recorder", ONE_CARD)
    assert found["conf"]["NCCL_NET"] == "Socket"
    assert found["environment"]["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert not any(name.startswith("TORCH_") for name in found["conf"])


def test_what_no_torch_of_the_node_reads_is_left_out():
    found = of_profile("flight_recorder", ONE_CARD, torch=["2.12.0"])
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in found["environment"]
    assert (
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
        in of_profile("flight_recorder", ONE_CARD, torch=["2.12.0", "2.7.1"])["environment"]
    )


@pytest.mark.parametrize(
    ("name", "value", "nccl", "says"),
    [
        ("NCCL_TIMEOUT", "1200000", "2.27.5", "init_process_group"),
        ("NCCL_BLOCKING_WAIT", "1", "2.27.5", "TORCH_NCCL_BLOCKING_WAIT"),
        ("NCCL_SOKET_IFNAME", "eth0", "2.27.5", "did you mean NCCL_SOCKET_IFNAME"),
        ("NCCL_ALGO", "Tree", "2.27.5", "not for production"),
        ("NCCL_DEBUG", "LOUD", "2.27.5", "must be one of"),
        ("NCCL_IB_TIMEOUT", "long", "2.27.5", "must be a whole number"),
        ("NCCL_CROSS_NIC", "9", "2.27.5", "must be one of 0, 1, 2"),
        (
            "NCCL_SOCKET_RETRY_CNT",
            "50",
            "2.21.5",
            "is read from NCCL 2.24.3 on, and this node has 2.21.5",
        ),
        ("NCCL_SOCKET_IFNAME", '"=eno1"', "2.27.5", "has quotes"),
        ("NCCL_SOCKET_IFNAME", "=eno1\nNCCL_DEBUG=INFO", "2.27.5", "must be one line"),
        (
            "TORCH_NCCL_TRACE_BUFER_SIZE",
            "2000",
            "2.27.5",
            "did you mean TORCH_NCCL_TRACE_BUFFER_SIZE",
        ),
    ],
)
def test_a_setting_of_the_policy_that_does_not_hold_is_reported(name, value, nccl, says):
    problems = plan(ONE_CARD, {"nccl": {"settings": {name: value}}}, nccl=nccl)["problems"]
    assert any(says in problem and name in problem for problem in problems), problems


def test_a_variable_for_debugging_can_be_allowed():
    policy = {"nccl": {"settings": {"NCCL_ALGO": "Tree"}}}
    assert plan(ONE_CARD, policy, allow_debug=True)["problems"] == []


def test_settings_of_the_policy_win_over_the_profile():
    found = plan(
        ONE_CARD,
        {
            "nccl": {
                "profile": "no_infiniband",
                "settings": {"NCCL_SOCKET_IFNAME": "=ib0", "NCCL_IB_TIMEOUT": 22},
            }
        },
    )
    assert found["conf"] == {
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "=ib0",
        "NCCL_IB_TIMEOUT": "22",
    }


def test_an_unknown_profile_is_reported_with_its_neighbour():
    (problem,) = of_profile("infinband", ONE_CARD)["problems"]
    assert "did you mean infiniband" in problem


class TestPeerToPeerWorkaround:
    """The workaround holds for as long as the policy waives the rule that tells of it."""

    def waived(self, until, hosts=("gpu[001-004]",), host="gpu001"):
        waiver = {
            "rule": "nccl-p2p-disabled",
            "hosts": list(hosts),
            "reason": "driver 545",
            "by": "ops",
            "until": until,
        }
        return plan(
            ONE_CARD, {"nccl": {"profile": "p2p_workaround"}, "waivers": [waiver]}, host=host
        )

    def test_it_is_applied_until_the_last_day_of_the_waiver(self):
        found = self.waived("2026-11-20")
        assert found["problems"] == []
        assert found["conf"] == {"NCCL_P2P_DISABLE": "1"}
        assert found["until"] == "2026-11-20"

    def test_it_is_refused_after_that(self):
        (problem,) = self.waived("2026-11-19")["problems"]
        assert "ended on 2026-11-19" in problem

    def test_it_is_refused_without_a_waiver(self):
        (problem,) = of_profile("p2p_workaround", ONE_CARD)["problems"]
        assert "the rule nccl-p2p-disabled is not waived" in problem

    def test_another_hosts_waiver_does_not_count(self):
        (problem,) = self.waived("2027-01-01", host="gpu005")["problems"]
        assert "gpu005" in problem


def test_nothing_is_claimed_of_a_release_that_was_not_found():
    found = plan(ONE_CARD, {"nccl": {"settings": {"NCCL_SOCKET_RETRY_CNT": "50"}}}, nccl=None)
    assert found["problems"] == []
    assert any("no NCCL was found" in note for note in found["notes"])


def test_what_the_profile_forbids_or_nobody_reads_is_decided():
    decided = of_profile("single_node_nvlink", ONE_CARD)["decided"]
    assert {"NCCL_P2P_DISABLE", "NCCL_TIMEOUT", "NCCL_BLOCKING_WAIT"} <= set(decided)
    assert "NCCL_IB_TIMEOUT" not in decided
