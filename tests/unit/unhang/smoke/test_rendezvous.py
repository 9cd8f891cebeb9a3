"""The address of the rendezvous is one that all nodes can reach, and from which answers arrive."""

from __future__ import annotations

import pytest

from unhang.smoke.rendezvous import NoMeeting, choose_meeting, other_interfaces


def interface(name, *addresses, up=True, kind="physical"):
    return {"name": name, "up": up, "kind": kind, "addresses": list(addresses)}


def route(dst, dev, **more):
    return {"dst": dst, "dev": dev, **more}


LO = interface("lo", "127.0.0.1/8", "::1/128", kind="loopback")
DOCKER = interface("docker0", "172.17.0.1/16", kind="bridge")
TO_DOCKER = route("172.17.0.0/16", "docker0")


def node(number, extra_interfaces=(), extra_routes=(), own="eth0"):
    return {
        "interfaces": [
            LO,
            DOCKER,
            *extra_interfaces,
            interface(own, f"10.0.0.{number}/24", f"fe80::{number}/64"),
        ],
        "routes": [TO_DOCKER, *extra_routes, route("10.0.0.0/24", own)],
    }


def chosen(*surveys):
    hosts = [f"gpu{number:03d}" for number in range(1, len(surveys) + 1)]
    return choose_meeting(dict(zip(hosts, surveys, strict=True)), hosts)


def test_the_shared_link_is_taken_and_loopback_and_docker_are_refused():
    meeting = chosen(node(1), node(2), node(3))
    assert (meeting.host, meeting.address, meeting.interface) == ("gpu001", "10.0.0.1", "eth0")
    assert meeting.interfaces == {"gpu001": "eth0", "gpu002": "eth0", "gpu003": "eth0"}
    assert "interface eth0" in meeting.why
    assert "127.0.0.1 (lo): loopback" in meeting.why
    assert "172.17.0.1 (docker0): a container" in meeting.why


def test_each_node_may_reach_it_by_an_interface_of_its_own_name():
    assert chosen(node(1), node(2, own="ens5f0")).interfaces == {
        "gpu001": "eth0",
        "gpu002": "ens5f0",
    }


def test_a_link_that_only_some_nodes_have_is_passed_over():
    private = ([interface("ib0", "192.168.9.1/24")], [route("192.168.9.0/24", "ib0")])
    meeting = chosen(
        node(1, *private),
        node(2, [interface("ib0", "192.168.9.2/24")], [route("192.168.9.0/24", "ib0")]),
        node(3),
    )
    assert meeting.address == "10.0.0.1"
    assert "gpu003 has no route to 192.168.9.1" in meeting.why


def test_a_way_there_without_a_way_back_is_refused():
    public = ([interface("eth1", "203.0.113.1/32")], [])
    others = [
        node(number, (), [route("default", "eth0", gateway="10.0.0.254")]) for number in (2, 3)
    ]
    assert chosen(node(1, *public), *others).address == "10.0.0.1"
    alone = {"interfaces": [LO, interface("eth1", "203.0.113.1/32")], "routes": []}
    with pytest.raises(NoMeeting, match="no way back to gpu002"):
        chosen(alone, *others)


@pytest.mark.parametrize(
    "routes, message",
    [
        ([route("10.0.0.1", "docker0")], "into docker0, which leads to no other node"),
        ([route("10.0.0.1", "eth0", type="unreachable")], "of type unreachable"),
        ([route("10.0.0.1", "eth9")], "by eth9, which is down"),
        ([route("10.0.0.1/32", "eth0", flags=["linkdown"])], "by eth0, which is down"),
    ],
)
def test_a_more_special_route_that_leads_nowhere_is_found(routes, message):
    with pytest.raises(NoMeeting, match=message):
        chosen(node(1), node(2, (), routes))


def test_a_gateway_will_do_but_the_direct_link_is_better():
    far = node(1, [interface("eth1", "10.9.0.1/24")], [route("10.9.0.0/24", "eth1")])
    other = node(2, (), [route("10.9.0.0/24", "eth0", gateway="10.0.0.254")])
    meeting = chosen(far, other)
    assert (meeting.address, "on the link" in meeting.why) == ("10.0.0.1", True)


def test_the_same_address_on_two_nodes_is_no_meeting_place():
    same = [
        {
            "interfaces": [interface("br0", "192.168.1.1/24", kind="bridge")],
            "routes": [route("192.168.1.0/24", "br0")],
        }
        for _ in range(2)
    ]
    with pytest.raises(NoMeeting, match="gpu002 has the same address"):
        chosen(*same)


def test_an_interface_that_is_down_is_refused():
    down = {
        "interfaces": [LO, interface("eth0", "10.0.0.1/24", up=False)],
        "routes": [route("10.0.0.0/24", "eth0")],
    }
    with pytest.raises(NoMeeting, match="the interface is down"):
        chosen(down, node(2))


def test_nodes_with_ipv6_alone_meet_there():
    six = [
        {
            "interfaces": [LO, interface("eth0", f"2001:db8::{number}/64")],
            "routes": [route("2001:db8::/64", "eth0")],
        }
        for number in (1, 2)
    ]
    assert chosen(*six).address == "2001:db8::1"


@pytest.mark.parametrize(
    "rubbish",
    [
        {},
        {"interfaces": "x"},
        {"interfaces": [None, {"addresses": ["x", None]}], "routes": [None, {"dst": 5}]},
    ],
)
def test_rubbish_from_a_node_is_a_reason_and_no_crash(rubbish):
    with pytest.raises(NoMeeting):
        chosen(rubbish, node(2))
    with pytest.raises(NoMeeting):
        chosen(node(1), rubbish)


def test_nodes_that_share_one_machines_network_meet_at_its_address():
    shared = {**node(1), "network": "machine-1"}
    assert chosen(shared, dict(shared)).address == "10.0.0.1"
    with pytest.raises(NoMeeting, match="same address"):
        chosen(shared, {**shared, "network": "machine-2"})


def test_interfaces_worth_a_try_are_those_that_all_nodes_have():
    surveys = {
        "gpu001": node(1, [interface("ib0", "192.168.9.1/24"), interface("eth1", "10.9.0.1/24")]),
        "gpu002": node(
            2, [interface("ib0", "192.168.9.2/24"), interface("eth1", "10.9.0.2/24", up=False)]
        ),
    }
    assert other_interfaces(surveys, "eth0") == ["ib0"]


def test_one_node_alone_needs_no_route():
    assert chosen(node(1)).address == "10.0.0.1"
