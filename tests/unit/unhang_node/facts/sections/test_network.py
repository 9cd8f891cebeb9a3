"""Section network: interfaces, addresses, RDMA."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import pytest
from recorded_roots import copied, facts, unread, write

from unhang_node.facts.parse.addresses import (
    is_routable,
    match_ipv4,
    netlink_request,
    parse_default_interfaces,
    parse_if_inet6,
    parse_local_addresses,
    parse_netlink,
    parse_routes,
)

ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


def interface(network, name):
    return next(row for row in network["interfaces"] if row["name"] == name)


def device(network, name):
    return next(row for row in network["rdma"] if row["name"] == name)


def test_a_virtual_machines_interface_is_known_with_its_addresses(tmp_path):
    network = facts(copied("h200x8", tmp_path), "network")
    assert interface(network, "eth0") == {
        "name": "eth0", "kind": "physical", "state": "up", "speed_mbps": None, "mtu": 1400,
        "numa_node": None, "driver": "virtio_net",
        "frames_received": None, "frames_damaged": None,
        "pci_address": "0000:00:03.0", "carrier_changes": 2, "master": None,
        "addresses": ["192.0.2.2/24", "fe80::fc:ff:fe00:1/64", "fd00::2/64"], "default_route": True,
    }  # fmt: skip
    assert network["usable_interfaces"] == ["eth0"]
    assert network["has_infiniband"] is False
    assert network["rdma"] == []


def test_of_many_interfaces_only_those_that_lead_elsewhere_are_usable(tmp_path):
    network = facts(copied("a6000x3-kernel-5.4", tmp_path), "network")
    assert network["usable_interfaces"] == ["eno1", "eno2"]
    assert interface(network, "docker0")["kind"] == "bridge"
    assert interface(network, "enp5s0")["speed_mbps"] is None
    assert interface(network, "eno2")["carrier_changes"] == 14
    assert [row["name"] for row in network["interfaces"] if row["default_route"]] == ["eno1"]


def test_bonds_vlans_and_infiniband_are_told_apart_and_slaves_are_not_usable(tmp_path):
    network = facts(copied("rdma-h100", tmp_path), "network")
    assert {row["name"]: row["kind"] for row in network["interfaces"]} == {
        "bond0": "bond", "bond0.100": "vlan", "eno8303": "physical", "ens1np0": "physical",
        "ens2np0": "physical", "ib0": "infiniband", "lo": "loopback",
    }  # fmt: skip
    assert network["usable_interfaces"] == ["ens1np0", "ib0", "bond0", "bond0.100"]


def test_a_bonds_slave_is_not_usable_even_with_an_address(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/proc/net/if_inet6", "fd000000000000000000000000000002 02 40 00 82 eno8303\n")
    network = facts(folder, "network")
    assert interface(network, "eno8303")["addresses"] == ["fd00::2/64"]
    assert "eno8303" not in network["usable_interfaces"]


def test_a_containers_only_interface_is_usable_though_it_is_virtual(tmp_path):
    assert facts(copied("container", tmp_path), "network")["usable_interfaces"] == ["eth0"]


def test_rdma_ports_show_state_rate_gids_and_counters(tmp_path):
    network = facts(copied("rdma-h100", tmp_path), "network")
    assert network["has_rdma"] is True
    assert network["has_infiniband"] is True
    first = device(network, "mlx5_0")
    assert (first["driver"], first["firmware"], first["pci_address"]) == (
        "mlx5_core",
        "28.39.3004",
        "0000:1a:00.0",
    )
    port = first["ports"][0]
    assert (port["state"], port["physical_state"], port["link_layer"], port["rate_gbps"]) == (
        "active",
        "linkup",
        "ethernet",
        400.0,
    )
    assert [(gid["index"], gid["type"], gid["interface"]) for gid in port["gids"]] == [
        (0, "roce_v1", "ens1np0"), (1, "roce_v2", "ens1np0"), (2, "roce_v1", "ens1np0"),
        (3, "roce_v2", "ens1np0"),
    ]  # fmt: skip
    assert port["counters"]["np_cnp_sent"] == 1234
    down = device(network, "mlx5_1")["ports"][0]
    assert (down["state"], down["gids"], down["counters"]["link_downed"]) == ("down", [], 7)
    infiniband = device(network, "mlx5_2")["ports"][0]
    assert (infiniband["link_layer"], infiniband["lid"], infiniband["gids"][0]["type"]) == (
        "infiniband",
        27,
        "ib",
    )


def test_the_link_of_a_card_is_that_of_the_card_and_of_the_port_above_it(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    card = next(folder.glob("sys/devices/*/0000:1a:00.0"))
    for name, text in (
        ("current_link_speed", "8.0 GT/s PCIe"),
        ("max_link_speed", "32.0 GT/s PCIe"),
        ("current_link_width", "8"),
        ("max_link_width", "16"),
    ):
        (card / name).write_text(text + "\n")
    first = device(facts(folder, "network"), "mlx5_0")
    assert {**first["pcie"], "errors_fatal": None, "errors_nonfatal": None} == {
        "generation_now": 3, "generation_max": 5, "generation_card": 5, "width_now": 8,
        "width_max": 16, "errors_fatal": None, "errors_nonfatal": None,
    }  # fmt: skip
    (card / "current_link_width").write_text("0\n")  # as a virtual function has it
    assert device(facts(folder, "network"), "mlx5_0")["pcie"]["width_now"] is None


def test_a_software_device_has_no_slot_and_says_so(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n")
    assert device(facts(folder, "network"), "rxe0")["pcie"] is None
    assert unread(folder, "network")["rdma[*].pcie"]["reason"] == "a software device has no slot"


def test_a_hole_in_the_gid_table_hides_nothing_behind_it(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    gids = next(folder.glob("sys/devices/*/0000:1a:00.0/infiniband/mlx5_0/ports/1/gids"))
    gids.joinpath("9").write_text("0000:0000:0000:0000:0000:ffff:0a64:0009\n")
    assert [
        gid["index"] for gid in device(facts(folder, "network"), "mlx5_0")["ports"][0]["gids"]
    ] == [0, 1, 2, 3, 9]


def test_roce_alone_is_no_infiniband(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    (folder / "sys/class/infiniband/mlx5_2").unlink()
    network = facts(folder, "network")
    assert (network["has_rdma"], network["has_infiniband"]) == (True, False)


def test_without_sysfs_nothing_is_claimed_about_infiniband(tmp_path):
    network = facts(tmp_path, "network")
    assert (network["has_rdma"], network["has_infiniband"], network["interfaces"]) == (
        None,
        None,
        None,
    )


def test_an_absurd_port_rate_is_an_error_of_that_port(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    next(folder.glob("sys/devices/*/0000:1a:00.0/infiniband/mlx5_0/ports/1/rate")).write_text(
        "nan Gb/sec"
    )
    network = facts(folder, "network")
    assert device(network, "mlx5_0")["ports"][0]["rate_gbps"] is None
    assert device(network, "mlx5_1")["ports"][0]["rate_gbps"] == 40.0
    assert unread(folder, "network")["rdma[mlx5_0].ports[1].rate_gbps"]["status"] == "error"


@pytest.mark.parametrize(
    ("name", "peermem", "possible", "why"),
    [
        ("h200x8", False, True, None),
        ("rdma-h100", True, True, None),
        ("a6000x3-kernel-5.4", False, False, "5.4.0-182-generic is older than 5.12"),
        ("container", False, None, None),
    ],
)
def test_gpu_memory_reaches_the_network_by_peermem_or_dmabuf(
    tmp_path, name, peermem, possible, why
):
    network = facts(copied(name, tmp_path), "network")
    assert network["peermem"]["loaded"] is peermem
    assert network["dmabuf"]["possible"] is possible
    assert (why or "") in (network["dmabuf"]["why_not"] or "")


@pytest.mark.parametrize(
    ("peers", "registered"),
    [((), None), (("",), False), (("/nv_mem",), True), (("/nv_mem_nc",), True)],
)
def test_peer_memory_is_registered_when_the_rdma_stack_lists_it(tmp_path, peers, registered):
    folder = copied("rdma-h100", tmp_path)
    for peer in peers:
        write(folder, "/sys/kernel/mm/memory_peers" + (peer or "/other") + "/version", "1\n")
    assert facts(folder, "network")["peermem"]["registered"] is registered


NEEDS = (
    "kernel/drivers/x/x.ko: kernel/y/nvidia-peermem.ko\nupdates/dkms/nvidia-peermem.ko.zst:"
    " {}updates/dkms/nvidia.ko.zst\n"
)


@pytest.mark.parametrize(
    ("listing", "linked"),
    [
        (NEEDS.format("updates/dkms/ib_core.ko.zst "), True),
        (NEEDS.format("") + "z.ko: ib_core.ko\n", False),
        ("kernel/z.ko:\n", None),
        (None, None),
    ],
)
def test_peer_memory_that_was_built_without_the_rdma_stack_is_seen(tmp_path, listing, linked):
    folder = copied("rdma-h100", tmp_path)
    release = (folder / "proc/sys/kernel/osrelease").read_text().strip()
    target = folder / "lib/modules" / release / "modules.dep"
    target.unlink(missing_ok=True)
    if listing is not None:
        write(folder, f"/lib/modules/{release}/modules.dep", listing)
    assert facts(folder, "network")["peermem"]["linked"] is linked
    assert ("peermem.linked" in unread(folder, "network")) is (linked is None)


LISTING = (
    "# EFA installer version: 1.38.1\n# Debug packages installed: no\n# Packages"
    " installed:\nefa-config_1.17_all libnccl-ofi_1.13.2-1_amd64\n"
)


@pytest.mark.parametrize(
    ("text", "installer", "plugin"),
    [
        (LISTING, "1.38.1", "1.13.2"),
        ("# EFA installer version: 1.29.0\n", "1.29.0", None),
        ("nothing\n", None, None),
    ],
)
def test_the_efa_installer_leaves_its_version(tmp_path, text, installer, plugin):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/opt/amazon/efa_installed_packages", text)
    assert facts(folder, "network")["efa"] == {"installer": installer, "plugin": plugin}


def test_a_node_without_efa_says_so(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    assert facts(folder, "network")["efa"] is None
    assert unread(folder, "network")["efa"]["status"] == "absent"


@pytest.mark.parametrize(("control", "enabled"), [(0x8000, True), (0x0000, False), (None, False)])
def test_address_translation_of_a_card_is_read_in_a_virtual_machine(tmp_path, control, enabled):
    folder = copied("rdma-h100", tmp_path)
    config = bytearray(0x200)
    if control is not None:
        config[0x100:0x108] = (
            (0x0001000F).to_bytes(4, "little")
            + (0).to_bytes(2, "little")
            + control.to_bytes(2, "little")
        )
    write(folder, "/proc/cpuinfo", "processor : 0\nflags : fpu hypervisor\n")
    for device in ("mlx5_0", "mlx5_1", "mlx5_2"):
        place = os.path.realpath(folder / "sys/class/infiniband" / device / "device")
        (Path(place) / "config").write_bytes(config)
    assert [device["ats_enabled"] for device in facts(folder, "network")["rdma"]] == [enabled] * 3


def test_address_translation_is_not_asked_on_bare_metal(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    assert {device["ats_enabled"] for device in facts(folder, "network")["rdma"]} == {None}
    assert (
        unread(folder, "network")["rdma[*].ats_enabled"]["reason"]
        == "asked only in virtual machines"
    )


def test_the_proprietary_driver_gives_no_dmabuf(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(
        folder,
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Wed Feb 21 2024\n",
    )
    dmabuf = facts(folder, "network")["dmabuf"]
    assert dmabuf["possible"] is False
    assert "proprietary" in dmabuf["why_not"]


def test_an_address_that_two_interfaces_could_have_is_nobodys_and_said(tmp_path):
    folder = copied("h200x8", tmp_path)
    text = (folder / "proc/net/route").read_text()
    write(
        folder,
        "/proc/net/route",
        text + "eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
    )
    network = facts(folder, "network")
    assert interface(network, "eth0")["addresses"] == ["fe80::fc:ff:fe00:1/64", "fd00::2/64"]
    assert "192.0.2.2" in unread(folder, "network")["interfaces[*].addresses"]["reason"]


def test_this_machines_addresses_are_those_the_kernel_gives():
    network = facts("/", "network")
    assert "127.0.0.1/8" in interface(network, "lo")["addresses"]


def test_the_most_specific_direct_route_owns_an_address():
    routes = parse_routes(
        ROUTE
        + "a\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\nb\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    found, unclear = match_ipv4({0x0A000105, 0x0A090001, 0xC0A80001}, routes)
    assert found == {"b": ["10.0.1.5/24"], "a": ["10.9.0.1/8"]}
    assert unclear == ["192.168.0.1"]


def test_a_broadcast_address_is_not_the_nodes_own():
    text = (
        "Local:\n  |-- 10.0.0.5\n     /32 host LOCAL\n  |-- 10.0.0.255\n     /32 link BROADCAST\n "
        " |-- 10.0.0.0\n     /24 link UNICAST\n"
    )
    text += "  |-- x.y\n     /32 host LOCAL\n"
    assert parse_local_addresses(text) == {0x0A000005}


def test_default_routes_of_both_families_count_and_rejecting_ones_do_not():
    route = (
        ROUTE
        + "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\neth9\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\nbad\n"
    )
    zero = "0" * 32
    six = (
        f"{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003"
        f" eth1\n{zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo\n"
    )
    assert parse_default_interfaces(route, six) == ["eth0", "eth1"]


def test_ipv6_addresses_are_written_short():
    assert parse_if_inet6(
        "fd000000000000000000000000000002 02 40 00 82 eth0\nzz 1 2 3 4 5\n"
        + "g" * 32
        + " 02 40 00 82 eth0\n"
    ) == {"eth0": ["fd00::2/64"]}


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("10.0.0.1/8", True),
        ("169.254.1.1/16", False),
        ("127.0.0.1/8", False),
        ("fe80::1/64", False),
        ("fd00::1/64", True),
        ("::1/128", False),
    ],
)
def test_link_local_and_loopback_addresses_lead_nowhere(address, wanted):
    assert is_routable(address) is wanted


def message(index, family, attributes):
    body = struct.pack("=BBBBi", family, 24, 0, 0, index)
    for kind, raw in attributes:
        body += struct.pack("=HH", 4 + len(raw), kind) + raw + b"\0" * (-len(raw) % 4)
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


def test_netlink_gives_the_own_end_of_a_point_to_point_link():
    data = (
        message(
            3,
            socket.AF_INET,
            [(1, socket.inet_aton("10.0.0.2")), (2, socket.inet_aton("10.0.0.1"))],
        )
        + struct.pack("=IHHII", 20, 3, 2, 1, 0)
        + b"\0" * 4
    )
    assert parse_netlink(data) == ([(3, "10.0.0.1/24")], True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 40,
        b"\xff" * 64,
        message(1, socket.AF_INET, [(2, b"\1\2")]),
        message(1, 99, [(2, b"\1\2\3\4")])[:-3],
    ],
)
def test_a_netlink_answer_of_rubbish_gives_no_address(data):
    assert parse_netlink(data) == ([], False)


def test_a_netlink_refusal_is_an_os_error():
    with pytest.raises(PermissionError):
        parse_netlink(struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", -1) + b"\0" * 16)
    assert len(netlink_request()) == 24
