"""The test bed itself, on which all other integration tests depend."""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess
import sys

import four_nodes as shared
from testbed import Testbed

BED_IN_A_PROCESS = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from testbed import Testbed
with Testbed(sys.argv[2], ["solo"]) as bed:
    print(bed.keeper_pid, bed.folder, flush=True)
    sys.stdin.read()
"""


def test_each_node_answers_over_ssh_with_its_own_name_and_key(fleet):
    names = {
        name: node.ssh("cat /etc/hostname; cat /etc/ssh/ssh_host_ed25519_key").stdout
        for name, node in fleet.nodes.items()
    }
    assert {name: text.splitlines()[0] for name, text in names.items()} == {
        name: name for name in shared.NAMES
    }
    assert len(set(names.values())) == len(shared.NAMES)


def test_a_changed_host_key_is_refused(fleet):
    node = fleet.nodes["gpu001"]
    key = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", fleet.work / "other"], check=False
    )
    assert key.returncode == 0
    # undone last: with its own key restored
    fleet.undo.callback(node.shell, "systemctl restart ssh")
    fleet.plant(
        "gpu001", "/etc/ssh/ssh_host_ed25519_key", (fleet.work / "other").read_bytes(), mode=0o600
    )
    node.shell("systemctl restart ssh")
    refused = node.ssh("true")
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


def test_a_node_that_reboots_comes_back_with_another_boot_id(bed):
    with_reboot = bed.nodes["gpu004"]
    before = with_reboot.ssh(
        "cat /proc/sys/kernel/random/boot_id; cat /etc/machine-id"
    ).stdout.split()
    with_reboot.order_reboot()
    after = with_reboot.ssh(
        "cat /proc/sys/kernel/random/boot_id; cat /etc/machine-id"
    ).stdout.split()
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_hardware_of_a_node_is_the_recorded_one(fleet):
    output = (
        fleet.nodes["gpu002"]
        .ssh(
            "head -1 /proc/driver/nvidia/version; cat /sys/module/nvidia/version; cat"
            " /sys/bus/pci/devices/0000:00:06.0/vendor"
        )
        .stdout
    )
    assert "580.159.04" in output.splitlines()[0]
    assert output.splitlines()[1:] == ["580.159.04", "0x10de"]


def test_a_killed_session_leaves_no_process_and_the_next_one_clears_the_rest(tmp_path):
    def start():
        argv = [
            sys.executable,
            "-c",
            BED_IN_A_PROCESS,
            str(pathlib.Path(__file__).parents[1] / "support"),
            str(shared.CACHE),
        ]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start() as killed:
        keeper, folder = killed.stdout.readline().split()
        descriptor = os.pidfd_open(int(keeper))
        killed.send_signal(signal.SIGKILL)
    # A process descriptor becomes readable when its process has ended.
    assert select.select([descriptor], [], [], 300)[0], "the keeper of a killed session still runs"
    os.close(descriptor)
    assert pathlib.Path(folder).exists()
    with start() as following:
        following.stdout.readline()
        assert not pathlib.Path(folder).exists()
        following.send_signal(signal.SIGINT)
        own = following.wait(300)
    assert own != 0
    records = [json.loads(record.read_text()) for record in (shared.CACHE / "running").glob("*")]
    assert {killed.pid, following.pid}.isdisjoint(record["pid"] for record in records)


def test_two_beds_at_a_time_do_not_meet(bed):
    with Testbed(shared.CACHE, ["gpu001"]) as other:
        assert other.nodes["gpu001"].address == bed.nodes["gpu001"].address
        assert other.nodes["gpu001"].host_key != bed.nodes["gpu001"].host_key
        assert bed.nodes["gpu001"].ssh("true").returncode == 0
        assert other.nodes["gpu001"].ssh("true").returncode == 0
