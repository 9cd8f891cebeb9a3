"""The role nccl_profile, run by ansible-playbook on a planted file tree."""

from __future__ import annotations

import pytest
from fakes.ansible_module import tree
from fakes.node_tree import nccl_library, plant
from fakes.role_play import play_here

NODE = {
    "/etc/os-release": "ID=debian\n",
    "/var/lib/": "",
    "/etc/nccl.conf": "NCCL_IB_TIMEOUT=22\nNCCL_P2P_DISABLE=1\n",
    "/etc/environment": "NCCL_TIMEOUT=1200000\nSITE=1\n",
    "/usr/lib/x86_64-linux-gnu/libnccl.so.2": nccl_library("2.27.5"),
    "/sys/class/net/eno1/operstate": "up\n",
    "/sys/class/net/eno1/type": "1\n",
    "/sys/class/net/eno1/device/vendor": "0x15b3\n",
    "/proc/net/route": (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neno1\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
    ),
    "/proc/net/fib_trie": (
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.7\n        /32 host LOCAL\n"
    ),
    "/proc/self/mountinfo": "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
}
POLICY = {
    "nccl": {"profile": "single_node_nvlink+flight_recorder", "settings": {"NCCL_DEBUG": "WARN"}}
}


@pytest.fixture
def node(tmp_path):
    """A planted node, and how the role runs on it."""
    plant(tmp_path / "node", NODE)

    def play(*arguments, policy=POLICY, **variables):
        given = {
            "unhang_rootfs": [str(tmp_path / "node")],
            "nccl_profile_rootfs": str(tmp_path / "node"),
            "unhang_policy": policy,
            **variables,
        }
        return play_here(tmp_path, "nccl_profile", given, *arguments)

    play.root = tmp_path / "node"
    return play


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_a_node_that_is_read_elsewhere_is_refused_also_in_a_preview(node, tmp_path, arguments):
    before = tree(node.root)
    refused = node(*arguments, unhang_rootfs=[str(tmp_path / "recorded"), str(tmp_path / "layer")])
    assert refused.code != 0
    assert "this node is a recorded node or an image" in refused.output
    assert f"unhang_rootfs of this node is {tmp_path}/recorded, {tmp_path}/layer" in refused.output
    assert tree(node.root) == before
    (tmp_path / "layer").mkdir()
    assert node(*arguments, unhang_rootfs=[str(tmp_path / "layer"), str(node.root)]).code == 0


def test_a_setting_that_does_not_exist_stops_the_role_before_it_writes(node):
    before = tree(node.root)
    refused = node(policy={"nccl": {"settings": {"NCCL_TIMEOUT": "1200000"}}})
    assert refused.code != 0
    assert "init_process_group" in refused.output
    assert tree(node.root) == before


def test_a_node_without_a_policy_loses_only_what_nobody_reads(node):
    assert node(policy={}).code == 0
    assert (node.root / "etc/nccl.conf").read_text() == NODE["/etc/nccl.conf"]
    assert (
        "# disabled by unhang: NCCL_TIMEOUT=1200000" in (node.root / "etc/environment").read_text()
    )


def test_each_launch_path_gets_its_file(node):
    paths = {
        "nccl_profile_launch_paths": [
            "login",
            "ssh",
            "systemd",
            "slurm",
            "enroot",
            "apptainer",
            "pod",
        ],
        "nccl_profile_systemd_units": ["ray.service"],
    }
    assert node(**paths).code == 0
    for path, line in {
        "etc/environment": "TORCH_NCCL_DUMP_ON_TIMEOUT=1\n",
        "etc/profile.d/unhang-nccl.sh": "export TORCH_NCCL_DUMP_ON_TIMEOUT='1'\n",
        "etc/systemd/system/ray.service.d/50-unhang-nccl.conf": (
            'Environment="TORCH_NCCL_DUMP_ON_TIMEOUT=1"\n'
        ),
        "etc/slurm/unhang-task-prolog": "echo 'export TORCH_NCCL_DUMP_ON_TIMEOUT=1'\n",
        "etc/enroot/environ.d/50-unhang-nccl.env": "NCCL_DEBUG=WARN\n",
        "etc/profile.d/unhang-nccl-apptainer.sh": "export APPTAINERENV_NCCL_DEBUG='WARN'\n",
        "etc/unhang/nccl-pod.env": "TORCH_NCCL_DUMP_ON_TIMEOUT=1\n",
    }.items():
        assert line in (node.root / path).read_text(), path
    assert (node.root / "etc/slurm/unhang-task-prolog").stat().st_mode & 0o111
