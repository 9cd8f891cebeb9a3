"""slurm.conf, cgroup.conf and gres.conf, as sites write them."""

from __future__ import annotations

import pytest

from unhang_node.facts.parse.slurm_conf import (
    count_gpus,
    expand,
    included,
    names_node,
    parse_cgroup_conf,
    parse_gres_conf,
    row_of_node,
    settings,
    slurm_lines,
    words,
)

CONF = """# a cluster
#ProctrackType=proctrack/pgid
ClusterName=hpc
taskPlugin=task/cgroup,task/affinity   # both, not SwitchType=none
SlurmctldParameters="enable_configless,idle_on_node_suspend"
UnkillableStepTimeout = 180
include /etc/slurm/nodes.conf
NodeName=DEFAULT Sockets=2 CoresPerSocket=48 \\
   ThreadsPerCore=2 RealMemory=2000000
NodeName=gpu[001-008] Gres=gpu:h200:8 State=UNKNOWN
NodeName=gpu[009-016] Gres=gpu:h200:8(S:0-1),shard:64 RealMemory=1000000
PartitionName=all Nodes=ALL Default=YES TaskPlugin=not-here
"""


def test_settings_are_read_without_lines_of_nodes_and_partitions():
    found = settings(slurm_lines(CONF))
    assert found == {
        "clustername": "hpc", "taskplugin": "task/cgroup,task/affinity",
        "slurmctldparameters": "enable_configless,idle_on_node_suspend",
        "unkillablesteptimeout": "180",
    }  # fmt: skip
    assert words(found["taskplugin"]) == ["task/affinity", "task/cgroup"]
    assert included(slurm_lines(CONF)) == ["/etc/slurm/nodes.conf"]


def test_the_row_of_a_node_takes_the_defaults_above_it():
    lines = slurm_lines(CONF)
    assert row_of_node(lines, "gpu004") == {
        "nodename": "gpu[001-008]", "sockets": "2", "corespersocket": "48", "threadspercore": "2",
        "realmemory": "2000000", "gres": "gpu:h200:8",
        "state": "UNKNOWN",
    }  # fmt: skip
    assert row_of_node(lines, "gpu016")["realmemory"] == "1000000"
    assert row_of_node(lines, "gpu017") == {}
    assert row_of_node(["PartitionName=p NodeHostname=real"], "real") == {}
    assert row_of_node(["NodeName=emulated NodeHostname=real CPUs=1"], "real")["cpus"] == "1"


@pytest.mark.parametrize(
    ("expression", "name", "wanted"),
    [
        ("gpu[001-008,010],login1", "gpu007", True),
        ("gpu[001-008,010],login1", "gpu009", False),
        ("gpu[001-008,010],login1", "gpu010", True),
        ("gpu[001-008,010],login1", "login1", True),
        ("gpu[001-008]", "gpu7", False),
        ("gpu[1-8]", "gpu07", False),
        ("gpu[1-8]", "gpu", False),
        ("rack[0-3]n[1-4]-ib", "rack2n4-ib", True),
        ("rack[0-3][00-10]", "rack309", True),
        ("gpu[a-b]", "gpua", False),
        ("", "", False),
        ("gpu[", "gpu1", False),
    ],
)
def test_a_node_expression_names_its_nodes(expression, name, wanted):
    assert names_node(expression, name) is wanted


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu:8", 8),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu", 1),
        ("gpu:a100:4,gpu:t4:2,shard:16", 6),
        ("gpu:a100", 1),
        ("nic:2", 0),
        ("", 0),
        ("gpu:h100:8(S:0,1)", 8),
    ],
)
def test_gpus_of_a_gres_are_counted(gres, count):
    assert count_gpus(gres) == count


def test_device_files_of_a_range_are_named_up_to_a_limit():
    assert expand("/dev/nvidia[0-2,7]") == [
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidia2",
        "/dev/nvidia7",
    ]
    assert expand("/dev/nvidia0,/dev/nvidia1") == ["/dev/nvidia0", "/dev/nvidia1"]
    assert expand("") == []
    for hostile in (
        "/dev/nvidia[0-999999999]",
        "x[0-63][0-63][0-63][0-63]",
        "x[5-2]",
        ",".join("abcdefgh" * 40),
    ):
        with pytest.raises(ValueError):
            expand(hostile)


def test_cgroup_conf_takes_slurms_defaults():
    plain = {
        "plugin": "autodetect",
        "constrain_devices": False,
        "constrain_cores": False,
        "constrain_ram": False,
        "allowed_ram_percent": 100,
    }
    assert parse_cgroup_conf("") == plain
    found = parse_cgroup_conf(
        "CgroupPlugin=cgroup/v1\nConstrainDevices=yes"
        " #all\nconstrainramspace=YES\nAllowedRAMSpace=95.5\n"
    )
    assert found == {
        **plain,
        "plugin": "cgroup/v1",
        "constrain_devices": True,
        "constrain_ram": True,
        "allowed_ram_percent": 95,
    }


def test_gres_conf_is_read_for_one_node():
    text = (
        "AutoDetect=nvml\nNodeName=gpu[1-4] Name=gpu Type=h100 File=/dev/nvidia[0-7]"
        " Cores=0-47\nNodeName=old1 Name=gpu File=/dev/nvidia0 AutoDetect=off\n"
    )
    assert parse_gres_conf(text, "gpu2") == (
        "nvml", [{"nodename": "gpu[1-4]", "name": "gpu", "type": "h100", "file": "/dev/nvidia[0-7]",
        "cores": "0-47"}]
    )  # fmt: skip
    assert parse_gres_conf(text, "old1")[0] == ""
    assert parse_gres_conf("Name=mps Count=100\n", "gpu2") == ("", [])


def test_hostile_text_is_bounded():
    assert slurm_lines("a\n" * 100_000) == ["a"] * 8192
    assert row_of_node(["NodeName=" + "[0-9]" * 400], "1" * 200) == {}
