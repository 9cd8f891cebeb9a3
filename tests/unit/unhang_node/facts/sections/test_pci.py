"""Facts from the PCI bus: GPUs, their links, ACS above them, the IOMMU."""

from __future__ import annotations

import struct

import pytest
from recorded_roots import copied, facts, place, unread, write

from unhang_node.base.root import Root
from unhang_node.facts.parse.pci_config import find_extended_capability, is_redirecting, parse_acs
from unhang_node.facts.sections.nvidia_devices import find_nvidia
from unhang_node.facts.sections.pci import generation_of, read_pci_device

NOTHING = dict.fromkeys(
    (
        "numa_node",
        "cpus",
        "generation_now",
        "generation_max",
        "generation_card",
        "width_now",
        "width_max",
        "errors_fatal",
        "errors_nonfatal",
    )
)


def config(*capabilities):
    """Configuration space with extended capabilities (offset, id, next, 4 bytes)."""
    data = bytearray(4096)
    for offset, number, following, body in capabilities:
        struct.pack_into("<I", data, offset, number | 1 << 16 | following << 20)
        data[offset + 4 : offset + 8] = body
    return bytes(data)


def test_eight_gpus_are_counted_without_a_driver(tmp_path):
    assert facts(copied("h200x8", tmp_path), "gpus") == {"pci_count": 8}


def test_audio_functions_switches_and_virtual_functions_are_no_gpus(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    assert find_nvidia(Root([str(folder)])) == {
        "gpus": ["0000:18:00.0", "0000:28:00.0"],
        "switches": ["0000:05:00.0"],
    }
    write(folder, "/sys/bus/pci/devices/0000:28:00.0/physfn", "")
    assert facts(folder, "gpus") == {"pci_count": 1}
    assert facts(copied("a6000x3-kernel-5.4", tmp_path), "gpus") == {"pci_count": 3}


def test_a_device_says_where_it_sits_and_how_fast_it_is_linked():
    assert read_pci_device(Root([str(place("rdma-h100"))]), "0000:28:00.0") == {
        "numa_node": 1, "cpus": "112-223", "generation_now": 5, "generation_max": 5,
        "generation_card": 5, "width_now": 16, "width_max": 16,
        "errors_fatal": None, "errors_nonfatal": None,
    }  # fmt: skip


def test_a_slot_that_is_narrower_than_the_card_limits_the_link():
    device = read_pci_device(Root([str(place("a6000x3-kernel-5.4"))]), "0000:43:00.0")
    assert (
        device["generation_card"],
        device["generation_max"],
        device["width_max"],
        device["generation_now"],
    ) == (4, 3, 8, 1)


def test_a_numa_node_of_minus_one_is_none():
    assert read_pci_device(Root([str(place("h200x8"))]), "0000:00:06.0")["numa_node"] is None


def test_a_device_that_is_not_there_has_nothing():
    assert read_pci_device(Root([str(place("h200x8"))]), "0000:ff:00.0") == NOTHING


@pytest.mark.parametrize(
    ("speed", "generation"),
    [
        ("2.5 GT/s PCIe", 1),
        ("8 GT/s", 3),
        ("64.0 GT/s PCIe", 6),
        ("Unknown", None),
        ("", None),
        (None, None),
    ],
)
def test_generations_of_link_speeds(speed, generation):
    assert generation_of(speed) == generation


def test_acs_is_read_of_every_bridge_above_a_gpu_and_denied_where_only_64_bytes_show(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    interconnect = facts(folder, "interconnect")
    assert interconnect["acs"] == [
        {"pci_address": "0000:00:03.1", "capable": None, "enabled": None, "control": None},
        {"pci_address": "0000:40:01.1", "capable": True, "enabled": True, "control": "0x001d"},
        {"pci_address": "0000:41:00.0", "capable": False, "enabled": False, "control": None},
        {"pci_address": "0000:42:08.0", "capable": True, "enabled": True, "control": "0x001d"},
        {"pci_address": "0000:42:10.0", "capable": True, "enabled": False, "control": "0x0000"},
    ]
    assert interconnect["acs_enabled"] is True
    assert unread(folder, "interconnect")["acs[0000:00:03.1].control"]["status"] == "denied"


def test_acs_that_was_only_partly_read_is_unknown_unless_found_on(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    assert facts(folder, "interconnect")["acs_enabled"] is False
    next(folder.glob("sys/devices/pci*/0000:15:01.0/config")).write_bytes(bytes(64))
    assert facts(folder, "interconnect")["acs_enabled"] is None


@pytest.mark.parametrize(
    ("control", "redirects"),
    [
        (0x00, False),
        (0x1D, True),
        (0x01, True),
        (0x04, True),
        (0x08, True),
        (0x10, False),
        (0x62, False),
    ],
)
def test_only_validation_and_redirects_keep_gpus_apart(control, redirects):
    assert is_redirecting(control) is redirects


def test_acs_behind_other_capabilities_is_found():
    data = config(
        (0x100, 0x0001, 0x148, b"\0" * 4),
        (0x148, 0x0019, 0x200, b"\0" * 4),
        (0x200, 0x000D, 0, struct.pack("<HH", 0x5F, 0x1D)),
    )
    assert parse_acs(data) == (True, 0x1D)


@pytest.mark.parametrize(
    "data",
    [
        config(),
        b"\xff" * 4096,
        bytes(256),
        config((0x100, 0x0001, 0x100, b"\0" * 4)),  # points at itself
        config((0x100, 0x0001, 0x200, b"\0" * 4), (0x200, 0x0002, 0x100, b"\0" * 4)),  # a circle
        config((0x100, 0x0001, 0x040, b"\0" * 4)),  # out of extended space
        config((0x100, 0x0001, 0xFFC, b"\0" * 4)),
    ],
)
def test_a_configuration_space_without_acs_or_out_of_order_has_none(data):
    assert find_extended_capability(data, 0x000D) is None
    assert parse_acs(data) == (False, None)


def test_an_acs_capability_cut_short_is_none():
    assert parse_acs(config((0x100, 0x000D, 0, b"\0" * 4))[:0x106]) == (False, None)


def test_no_groups_means_no_iommu(tmp_path):
    assert facts(copied("h200x8", tmp_path), "interconnect")["iommu"] == {
        "mode": "off",
        "groups": 0,
        "evidence": "no groups in /sys/kernel/iommu_groups",
    }


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("identity", "passthrough"),
        ("DMA", "translated"),
        ("DMA-FQ", "translated"),
        ("weird", "unknown"),
    ],
)
def test_the_gpus_groups_tell_the_iommus_mode(tmp_path, kind, mode):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/sys/kernel/iommu_groups/1/type", kind + "\n")
    assert facts(folder, "interconnect")["iommu"]["mode"] == mode


@pytest.mark.parametrize(
    ("cmdline", "mode"),
    [
        ("quiet iommu=pt", "passthrough"),
        ("intel_iommu=on", "translated"),
        ("intel_iommu=on,sm_on iommu=pt", "passthrough"),
        ("quiet", "unknown"),
    ],
)
def test_before_group_types_the_command_line_tells(tmp_path, cmdline, mode):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, "/proc/cmdline", cmdline)
    assert facts(folder, "interconnect")["iommu"]["mode"] == mode


def test_a_node_without_a_bus_is_null_with_a_reason(tmp_path):
    folder = copied("container", tmp_path)
    assert facts(folder, "interconnect") == {"acs": None, "acs_enabled": None, "iommu": None}
    assert unread(folder, "gpus")["pci_count"]["status"] == "absent"
