"""Configuration files of container runtimes, of modprobe, and the mounted file systems."""

from __future__ import annotations

import errno
import json

import pytest
from recorded_roots import complaints, copied, facts, read, unread, write

from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.parse.container_config import (
    parse_containerd,
    parse_docker,
    parse_kubelet,
    parse_size,
    parse_toolkit,
)
from unhang_node.facts.parse.modprobe import parse_modprobe
from unhang_node.facts.sections.container_config import read_container_config

DAEMON = {
    "default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
    "default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}},
    "default-shm-size": "8G", "storage-driver": "overlay2",
    "features": {"cdi": True},
}  # fmt: skip
CONTAINERD = """
version = 2
disabled_plugins = ["cri"]  # as docker ships it
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "nvidia"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        BinaryName = "/usr/bin/nvidia-container-runtime"
        SystemdCgroup = true
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      #SystemdCgroup = true
"""
TOOLKIT = """
#accept-nvidia-visible-devices-as-volume-mounts = false
[nvidia-container-cli]
#no-cgroups = false
no-cgroups = true # for rootless
ldconfig = "@/sbin/ldconfig.real"
[nvidia-container-runtime]
mode = "cdi"
"""
KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
cgroupDriver: systemd   # kubeadm
podPidsLimit: 1024
memoryManager:
  cpuManagerPolicy: inner
topologyManagerPolicy: "single-numa-node"
memoryManagerPolicy: Static
"""


def containers(folder):
    return facts(folder, "node")["containers"]


def test_dockers_file_is_read(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/etc/docker/daemon.json", json.dumps(DAEMON))
    assert containers(folder)["docker"] == {
        "fault": "", "default_runtime": "nvidia", "cgroup_driver": "cgroupfs",
        "storage_driver": "overlay2", "runtimes": ["nvidia"], "cdi": True,
        "memlock_bytes": -1, "shm_size_bytes": 8 << 30,
    }  # fmt: skip


@pytest.mark.parametrize("text", ['{"runtimes": {},}', "[]", "{"])
def test_a_file_that_docker_refuses_says_why(tmp_path, text):
    folder = copied("container", tmp_path)
    write(folder, "/etc/docker/daemon.json", text)
    assert containers(folder)["docker"]["fault"].startswith("/etc/docker/daemon.json: ")


def test_what_dockers_file_does_not_set_is_absent_and_no_zero(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/etc/docker/daemon.json", "\n")
    assert (
        containers(folder)["docker"]["fault"],
        containers(folder)["docker"]["memlock_bytes"],
    ) == ("", None)
    assert unread(folder, "node")["containers.docker.memlock_bytes"]["status"] == "absent"


def test_runtimes_that_are_not_there_are_absent(tmp_path):
    folder = copied("container", tmp_path)
    assert containers(folder) == {
        "docker": None,
        "containerd": None,
        "toolkit": None,
        "kubelet": None,
        "device_links": False,
    }
    assert unread(folder, "node")["containers.docker"] == {
        "field": "containers.docker", "status": "absent", "reason": "no /etc/docker/daemon.json"
    }  # fmt: skip


def test_runtimes_of_containerd_are_told_with_their_control_group_driver():
    assert parse_containerd(CONTAINERD) == {
        "default_runtime": "nvidia", "disabled_plugins": ["cri"], "cdi": True,
        "runtimes": [{"name": "nvidia", "systemd_cgroup": True}, {"name": "runc",
        "systemd_cgroup": False}],
    }  # fmt: skip


def test_a_drop_in_of_containerd_overrides_its_main_file(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/etc/containerd/config.toml", CONTAINERD)
    write(
        folder,
        "/etc/containerd/conf.d/99-nvidia.toml",
        "[plugins.x.containerd.runtimes.nvidia.options]\nSystemdCgroup = false\n",
    )
    assert containers(folder)["containerd"]["runtimes"] == [
        {"name": "nvidia", "systemd_cgroup": False},
        {"name": "runc", "systemd_cgroup": False},
    ]


OWN_FILES = [
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/run/k0s/containerd-cri.toml",
]


@pytest.mark.parametrize("own", OWN_FILES)
def test_dockers_containerd_is_not_taken_for_the_one_that_a_distribution_of_kubernetes_brings(
    tmp_path, own
):
    folder = copied("container", tmp_path)
    write(folder, "/etc/containerd/config.toml", CONTAINERD)
    write(folder, "/etc/containerd/conf.d/99-docker.toml", 'disabled_plugins = ["cri"]\n')
    write(
        folder,
        own,
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n  SystemdCgroup"
        " = true\n",
    )
    assert containers(folder)["containerd"] == {
        "default_runtime": "", "disabled_plugins": [], "cdi": False,
        "runtimes": [{"name": "runc", "systemd_cgroup": True}],
    }  # fmt: skip


class Denied(Root):
    """A node on which only root may look into the folder of k3s."""

    def stat(self, path):
        if path.startswith("/var/lib/rancher/k3s/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().stat(path)


def test_dockers_containerd_is_not_reported_where_another_one_may_be_hidden(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/etc/containerd/config.toml", CONTAINERD)
    missing = Unread()
    assert read_container_config(Denied([str(folder)]), missing)["containerd"] is None
    assert {row["field"]: row["status"] for row in missing.rows}[
        "containers.containerd"
    ] == "denied"


def test_the_toolkits_file_is_read_and_its_ldconfig_looked_for(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/etc/nvidia-container-runtime/config.toml", TOOLKIT)
    assert containers(folder)["toolkit"] == {
        "no_cgroups": True,
        "ldconfig": "@/sbin/ldconfig.real",
        "ldconfig_there": False,
        "mode": "cdi",
    }
    write(folder, "/sbin/ldconfig.real", "")
    assert containers(folder)["toolkit"]["ldconfig_there"] is True


def test_the_kubelets_own_settings_are_those_at_the_left_edge():
    assert parse_kubelet(KUBELET) == {
        "cgroup_driver": "systemd", "pod_pids_limit": 1024, "cpu_manager": "",
        "memory_manager": "Static", "topology_manager": "single-numa-node",
    }  # fmt: skip
    assert parse_toolkit("ldconfig = 1\n") == {"no_cgroups": False, "ldconfig": "", "mode": ""}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("64M", 64 << 20),
        ("8gb", 8 << 30),
        ("1073741824", 1 << 30),
        ("", None),
        ("much", None),
        ("1.5G", None),
    ],
)
def test_sizes_are_read_as_docker_writes_them(text, wanted):
    assert parse_size(text) == wanted


def test_dockers_file_of_strange_types_is_no_error():
    assert (
        parse_docker(
            '{"exec-opts": [7], "runtimes": [], "default-ulimits": {"memlock": {"Hard": true}},'
            ' "features": 1}'
        )["memlock_bytes"]
        is None
    )


def test_links_to_the_gpus_by_number_are_seen(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/dev/char/1:3", "")
    assert containers(folder)["device_links"] is False
    write(folder, "/dev/char/195:0", "")
    assert containers(folder)["device_links"] is True


MODPROBE = """# a comment
blacklist nouveau
install nvidia-uvm /bin/false
install nvidia_drm /sbin/modprobe --ignore-install nvidia_drm
options nvidia NVreg_EnableGpuFirmware=0 \\
  NVreg_RegistryDwords="PeerMappingOverride=1;"
options snd_hda_intel power_save=0
blacklist
"""


def test_lines_of_modprobe_forbid_and_set():
    assert parse_modprobe(MODPROBE) == (
        ["nouveau", "nvidia_uvm"],
        [
            ("nvidia", "NVreg_EnableGpuFirmware", "0"),
            ("nvidia", "NVreg_RegistryDwords", "PeerMappingOverride=1;"),
        ],
    )


def test_of_two_files_of_one_name_that_of_etc_counts(tmp_path):
    folder = copied("h200x8", tmp_path)
    write(folder, "/usr/lib/modprobe.d/nvidia.conf", "options nvidia NVreg_A=1\n")
    write(folder, "/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_A=2\nblacklist nouveau\n")
    row = {
        "module": "nvidia",
        "parameter": "NVreg_A",
        "value": "2",
        "path": "/etc/modprobe.d/nvidia.conf",
    }
    assert facts(folder, "kernel")["modprobe"] == {"forbidden": ["nouveau"], "options": [row]}


@pytest.mark.parametrize(
    ("text", "wanted"), [("none [integrity] confidentiality\n", "integrity"), (None, "none")]
)
def test_lockdown_is_read(tmp_path, text, wanted):
    folder = copied("h200x8", tmp_path)
    write(folder, "/sys/kernel/security/lsm", "lockdown,yama")
    if text:
        write(folder, "/sys/kernel/security/lockdown", text)
    assert facts(folder, "kernel")["lockdown"] == wanted


def mount(number, point, kind, options):
    return f"{number} 1 {options[1]} / {point} {options[0]} - {kind} source {options[0]}\n"


SPACE = {
    "/": {"size_bytes": 100, "free_bytes": 40, "inodes": 1000, "free_inodes": 10},
    "/data": {"size_bytes": 200, "free_bytes": 20, "inodes": 0, "free_inodes": 0},
    "/home": {"size_bytes": 7, "free_bytes": 7, "inodes": 7, "free_inodes": 7},
}  # fmt: skip


def with_mounts(tmp_path):
    folder = copied("container", tmp_path)
    text = (
        mount(19, "/home", "autofs", ("rw", "0:40"))
        + mount(20, "/", "ext4", ("rw,relatime", "8:1"))
        + mount(21, "/data", "btrfs", ("ro", "8:2"))
        + mount(22, "/again", "ext4", ("rw", "8:1"))
    )
    text += mount(23, "/home", "nfs4", ("rw,soft,vers=4.2", "0:50")) + mount(
        24, "/proc", "proc", ("rw", "0:5")
    )
    text += mount(25, "/var/lib/kubelet/pods/1/volumes/x", "nfs4", ("rw", "0:51"))
    write(folder, "/proc/self/mountinfo", text)
    write(folder, "/.unhang/space.json", json.dumps(SPACE))
    return folder


def test_file_systems_are_told_once_each_and_a_network_one_is_not_asked(tmp_path):
    folder = with_mounts(tmp_path)
    root, data, home = sorted(facts(folder, "limits")["filesystems"], key=lambda row: row["path"])
    assert root == {
        "path": "/", "type": "ext4", "size_bytes": 100, "free_bytes": 40,
        "inodes_free_percent": 1.0, "read_only": False, "soft": False,
        "locks": True, "access_times": True, "source": None, "on_demand": False,
    }  # fmt: skip
    assert (data["path"], data["read_only"], data["inodes_free_percent"]) == ("/data", True, None)
    unknown = dict.fromkeys(("size_bytes", "free_bytes", "inodes_free_percent"))
    assert home == root | unknown | {
        "path": "/home",
        "type": "nfs4",
        "soft": True,
        "source": "0:50",
        "on_demand": True,
    }
    assert unread(folder, "limits")["filesystems[/home].free_bytes"]["status"] == "absent"


@pytest.mark.parametrize(
    ("options", "locks", "access_times"),
    [
        ("rw,lazystatfs", False, True),
        ("rw,noatime,flock,lazystatfs", True, False),
        ("rw,relatime,localflock", True, True),
        ("rw,noflock", False, True),
    ],
)
def test_lustre_says_whether_programs_can_lock_files(tmp_path, options, locks, access_times):
    folder = copied("container", tmp_path)
    write(
        folder,
        "/proc/self/mountinfo",
        f"20 1 0:60 / /fsx {options} - lustre 10.0.0.9@tcp:/fsx {options}\n",
    )
    row = next(row for row in facts(folder, "limits")["filesystems"] if row["path"] == "/fsx")
    assert (row["locks"], row["access_times"]) == (locks, access_times)


def test_what_is_read_of_them_fits_the_schema(tmp_path):
    folder = with_mounts(tmp_path)
    write(folder, "/etc/docker/daemon.json", json.dumps(DAEMON))
    write(folder, "/etc/containerd/config.toml", CONTAINERD)
    for section in ("node", "kernel", "limits", "network"):
        fragment, rows = read(folder, (section,))[section]
        assert complaints(section, fragment, rows.values()) == []
