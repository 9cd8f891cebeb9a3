"""Signs of a node's own health: disks, arrays, crashes, full tables of the kernel, its clock,
device files, and error counters of PCIe and ports."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_roots import complaints, copied, facts, unread, write

from unhang_node.base.parse.mounts import parse_fstab
from unhang_node.base.root import Root
from unhang_node.facts.parse.host_state import parse_timex
from unhang_node.facts.parse.mdstat import parse_mdstat
from unhang_node.facts.sections.driver import read_device_nodes
from unhang_node.facts.sections.host_state import ask_clock

MDSTAT = """Personalities : [raid1] [raid0]
md1 : active raid1 nvme1n1p2[1](F) nvme0n1p2[0]
      467716096 blocks super 1.2 [2/1] [U_]
      bitmap: 4/4 pages [16KB], 65536KB chunk

md127 : active (auto-read-only) raid0 nvme3n1[1] nvme2n1[0]
      7501213696 blocks super 1.2 512k chunks

md5 : inactive nvme4n1[0](S)
      3750606848 blocks super 1.2

unused devices: <none>
"""
CPU = "/sys/devices/system/cpu"
CARD = "/sys/devices/pci0000:1a/0000:1a:00.0"


def node(tmp_path, files, name="h200x8"):
    folder = copied(name, tmp_path)
    for path, text in files.items():
        write(folder, path, text)
    return folder


def test_arrays_say_how_many_of_their_disks_work():
    assert parse_mdstat(MDSTAT) == [
        {"name": "md1", "level": "raid1", "state": "active", "disks": 2, "disks_working": 1},
        {
            "name": "md127",
            "level": "raid0",
            "state": "active",
            "disks": None,
            "disks_working": None,
        },
        {"name": "md5", "level": None, "state": "inactive", "disks": None, "disks_working": None},
    ]


def test_a_node_reads_its_arrays_and_has_none_without_the_driver_for_them(tmp_path):
    assert facts(copied("h200x8", tmp_path / "without"), "node")["arrays"] == []
    assert [
        row["name"] for row in facts(node(tmp_path, {"/proc/mdstat": MDSTAT}), "node")["arrays"]
    ] == ["md1", "md127", "md5"]


def test_disks_are_told_with_their_state(tmp_path):
    files = {
        "/sys/class/nvme/nvme0/state": "live\n",
        "/sys/class/nvme/nvme0/model": "SAMSUNG MZ \n",
        "/sys/class/nvme/nvme1/state": "dead\n",
    }
    disks = facts(node(tmp_path, {**files, "/sys/class/nvme/nvme-fabrics/x": ""}), "node")["disks"]
    assert disks == [
        {"name": "nvme0", "model": "SAMSUNG MZ", "state": "live"},
        {"name": "nvme1", "model": None, "state": "dead"},
    ]


def test_records_of_crashed_kernels_are_found_and_those_of_programs_are_not(tmp_path):
    names = [
        "/sys/fs/pstore/dmesg-efi_pstore-1",
        "/var/crash/202611190307/dump",
        "/var/crash/_usr_bin_python3.1000.crash",
        "/var/crash/gpu1-2026-11-20-03:49:11/vmcore",
    ]
    folder = node(tmp_path, dict.fromkeys(names, "x"))
    for day, name in (
        (1, "/sys/fs/pstore/dmesg-efi_pstore-1"),
        (2, "/var/crash/202611190307"),
        (3, "/var/crash/gpu1-2026-11-20-03:49:11"),
    ):
        os.utime(str(folder) + name, (day * 86400, day * 86400))
    crashes = facts(folder, "node")["crashes"]
    assert [(row["path"].rpartition("/")[2], row["day"]) for row in crashes] == [
        ("dmesg-efi_pstore-1", "1970-01-02"), ("202611190307", "1970-01-03"),
        ("gpu1-2026-11-20-03:49:11", "1970-01-04"),
    ]  # fmt: skip


def test_the_longest_slowed_processor_is_told(tmp_path):
    files = {
        f"{CPU}/cpu{number}/thermal_throttle/package_throttle_total_time_ms": f"{number * 10}\n"
        for number in range(16)
    }
    assert facts(node(tmp_path, files), "node")["cpu_throttled_ms"] == 140
    assert (
        unread(copied("h200x8", tmp_path / "without"), "node")["cpu_throttled_ms"]["status"]
        == "absent"
    )


def test_the_lowest_limit_of_the_frequencies_is_told_beside_what_the_hardware_can_do(tmp_path):
    files = {}
    for number, limit in enumerate((3800000, 2000000, 3800000)):
        files[f"{CPU}/cpufreq/policy{number}/cpuinfo_max_freq"] = "3800000\n"
        files[f"{CPU}/cpufreq/policy{number}/scaling_max_freq"] = f"{limit}\n"
    frequency = facts(node(tmp_path, files), "node")["cpu"]["frequency"]
    assert (frequency["max_mhz"], frequency["limit_mhz"]) == (3800, 2000)


def test_tables_of_the_kernel_are_read_with_their_limits(tmp_path):
    files = {
        "/proc/loadavg": "6.24 3.06 2.23 9/21400 17093\n",
        "/proc/sys/fs/file-nr": "5632\t0\t9223372036854775807\n",
        "/proc/sys/kernel/pid_max": "32768\n", "/proc/sys/kernel/threads-max": "8000000\n",
        "/proc/sys/net/netfilter/nf_conntrack_count": "250000\n",
        "/proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
    }  # fmt: skip
    assert facts(node(tmp_path, files), "limits")["in_use"] == {
        "tasks": 21400, "tasks_max": 32768, "files": 5632, "files_max": 9223372036854775807,
        "connections": 250000, "connections_max": 262144, "load_15": 2.23,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/proc/loadavg", "nan nan nan 1/2 3"),
        ("/proc/loadavg", "1"),
        ("/proc/sys/fs/file-nr", "1 2"),
    ],
)
def test_a_table_of_another_form_is_an_error_of_that_field(tmp_path, path, text):
    files = {
        "/proc/loadavg": "6.24 3.06 2.23 9/214 17093\n",
        "/proc/sys/fs/file-nr": "1 0 2\n",
        path: text,
    }
    assert unread(node(tmp_path, files), "limits")["in_use"]["status"] == "error"


FSTAB = """# a comment with /dev/sda1 /nowhere ext4 defaults 0 0
UUID=1 / ext4 defaults 0 1
/swap.img none swap sw 0 0
fs01:/data /data nfs4 rw,hard 0 0
fs01:/home /home/ nfs4 rw,nofail 0 0
fs01:/old /old nfs4 noauto 0 0
fs01:/lazy /lazy nfs4 defaults,x-systemd.automount 0 0
/data/a /a none bind 0 0
map.auto /auto autofs defaults 0 0
/dev/nvme1n1 /scratch\\040space xfs defaults 0 2
broken
"""


def test_what_a_boot_mounts_is_read_from_fstab():
    assert parse_fstab(FSTAB) == ["/", "/data", "/home", "/scratch space"]


def test_what_fstab_names_and_is_not_mounted_is_told(tmp_path):
    folder = node(tmp_path, {"/etc/fstab": FSTAB})
    assert facts(folder, "limits")["not_mounted"] == ["/data", "/home", "/scratch space"]
    assert facts(copied("h200x8", tmp_path / "without"), "limits")["not_mounted"] == []


@pytest.mark.parametrize(("status", "in_step"), [(0x2001, True), (0x40, False), (0x2041, False)])
def test_the_kernels_clock_says_whether_something_keeps_it_in_step(status, in_step):
    answer = struct.pack("@Illlli", 0, 0, 0, 1234567, 0, status).ljust(208, b"\0")
    assert parse_timex(answer) == {"kernel_in_step": in_step, "max_error_ms": 1235}


def test_this_machines_clock_answers_and_a_recorded_one_is_absent(tmp_path):
    assert set(ask_clock(Root(["/"]))) == {"kernel_in_step", "max_error_ms"}
    assert isinstance(ask_clock(Root(["/"]))["kernel_in_step"], bool)
    folder = node(tmp_path, {"/sys/fs/cgroup/system.slice/chronyd.service/cgroup.procs": "812\n"})
    assert unread(folder, "node")["time.kernel_in_step"]["status"] == "absent"


def test_device_files_of_the_driver_are_told_and_others_are_not(tmp_path):
    folder = node(
        tmp_path,
        dict.fromkeys(
            (
                "/dev/nvidia0",
                "/dev/nvidiactl",
                "/dev/nvidia-uvm",
                "/dev/nvidia-caps/x",
                "/dev/nvidia0old",
                "/dev/null2",
            ),
            "",
        ),
    )
    (folder / "dev/nvidia0").chmod(0o666)
    (folder / "dev/nvidiactl").chmod(0o666)
    (folder / "dev/nvidia-uvm").chmod(0o660)
    assert read_device_nodes(Root([str(folder)])) == [
        {"path": "/dev/nvidia-uvm", "open_to_all": False},
        {"path": "/dev/nvidia0", "open_to_all": True},
        {"path": "/dev/nvidiactl", "open_to_all": True},
    ]  # fmt: skip


def card(network, name="mlx5_0"):
    return next(row for row in network["rdma"] if row["name"] == name)


def test_pcie_errors_of_a_card_are_summed_by_severity(tmp_path):
    files = {
        CARD + "/aer_dev_fatal": "Undefined 0\nDLP 1\nSDES 1\nTOTAL_ERR_FATAL 2\n",
        CARD + "/aer_dev_nonfatal": "DLP 0\nTOTAL_ERR_NONFATAL 0\n",
    }
    pcie = card(facts(node(tmp_path, files, "rdma-h100"), "network"))["pcie"]
    assert (pcie["errors_fatal"], pcie["errors_nonfatal"]) == (2, 0)


@pytest.mark.parametrize(
    ("mode", "wanted"), [(0o666, "open"), (0o660, "restricted"), (None, "missing")]
)
def test_whether_programs_may_open_a_card_is_told(tmp_path, mode, wanted):
    folder = node(
        tmp_path,
        {CARD + "/infiniband_verbs/uverbs0/dev": "231:192\n", "/dev/infiniband/rdma_cm": ""},
        "rdma-h100",
    )
    if mode is not None:
        write(folder, "/dev/infiniband/uverbs0", "")
        (folder / "dev/infiniband/uverbs0").chmod(mode)
    assert card(facts(folder, "network"))["programs"] == wanted


def test_a_card_without_a_device_file_of_its_own_is_missing_for_programs(tmp_path):
    assert (
        card(facts(node(tmp_path, {"/dev/infiniband/rdma_cm": ""}, "rdma-h100"), "network"))[
            "programs"
        ]
        == "missing"
    )


def test_a_recording_without_device_files_says_nothing_about_them(tmp_path):
    network = facts(copied("rdma-h100", tmp_path), "network")
    assert card(network)["programs"] is None


def test_port_knows_its_subnet_manager_and_how_often_it_gave_up(tmp_path):
    port = CARD + "/infiniband/mlx5_0/ports/1"
    files = {
        port + "/sm_lid": "0x1f\n",
        port + "/hw_counters/req_transport_retries_exceeded": "7\n",
        port + "/hw_counters/rx_drops": "9\n",
    }
    found = card(facts(node(tmp_path, files, "rdma-h100"), "network"))["ports"][0]
    assert found["sm_lid"] == 31
    assert found["counters"]["req_transport_retries_exceeded"] == 7
    assert "rx_drops" not in found["counters"]


def test_counters_of_an_efa_card_are_its_own(tmp_path):
    folder = node(
        tmp_path, {CARD + "/infiniband/mlx5_0/ports/1/hw_counters/rx_drops": "9\n"}, "rdma-h100"
    )
    driver = next(folder.glob("sys/devices/*/0000:1a:00.0")) / "driver"
    if driver.is_symlink():
        driver.unlink()
    driver.symlink_to("../../../bus/pci/drivers/efa")
    assert card(facts(folder, "network"))["ports"][0]["counters"]["rx_drops"] == 9


def test_damaged_frames_of_a_real_port_are_counted(tmp_path):
    statistics = "/sys/class/net/eth0/statistics"
    folder = node(
        tmp_path, {statistics + "/rx_packets": "1000000\n", statistics + "/rx_crc_errors": "12\n"}
    )
    row = next(row for row in facts(folder, "network")["interfaces"] if row["name"] == "eth0")
    assert (row["frames_received"], row["frames_damaged"]) == (1000000, 12)


def test_what_is_read_fits_the_schema(tmp_path):
    files = {
        "/proc/mdstat": MDSTAT,
        "/sys/class/nvme/nvme0/state": "live\n",
        "/etc/fstab": FSTAB,
        "/sys/fs/pstore/dmesg-1": "x",
    }
    folder = node(tmp_path, files, "rdma-h100")
    for section in ("node", "limits", "network"):
        assert complaints(section, facts(folder, section), unread(folder, section).values()) == []


@given(
    st.lists(
        st.sampled_from(
            [
                "md0",
                " : ",
                "active",
                " raid1",
                "[2/1]",
                " [U_]",
                "\n",
                "/",
                " ",
                "nfs",
                "x" * 300,
                "\x1b",
                "\\040",
                "#",
                "9" * 30,
            ]
        ),
        max_size=30,
    )
)
def test_no_mixture_of_telling_words_breaks_the_parsers(words):
    text = "".join(words)
    assert all(row["name"].startswith("md") for row in parse_mdstat(text))
    assert all(point.startswith("/") for point in parse_fstab(text))
