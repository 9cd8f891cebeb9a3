"""Processes that hold a GPU, what they have mapped, and the few environment variables that may
leave the node."""

from __future__ import annotations

import os

import pytest
from fakes.node_tree import Link, context, make_fifo, merged, nccl_library, plant

from unhang_node.base.parse.process_files import (
    container_of,
    held_devices,
    mapped_libraries,
    parse_environ,
    site_packages_of,
)
from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.sections.processes import read_holders
from unhang_node.facts.sources import processes

LIB = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5"
SITE = "/opt/venv/lib/python3.11/site-packages"
MAPS = """7f00-7f10 r-xp 00000000 08:01 77 {}
7f10-7f20 r-xp 00000000 08:01 77 {}
7f20-7f30 r--p 00000000 08:01 78 /lib/libc.so.6
7f30-7f40 rw-p 00000000 00:00 0 [heap]
"""
DOCKER = "0::/system.slice/docker-" + "0123456789ab" + "c" * 52 + ".scope\n"
PASSWD = f"root:x:0:0::/root:/bin/sh\nalice:x:{os.getuid() or 1000}:1000::/home/alice:/bin/sh\n"


def process(
    pid,
    devices=("/dev/nvidiactl", "/dev/nvidia0"),
    uid=1000,
    maps="",
    environ=b"",
    cgroup="0::/user.slice\n",
    comm="python3",
):
    files = {f"/proc/{pid}/fd/{number}": Link(device) for number, device in enumerate(devices)}
    files[f"/proc/{pid}/comm"] = comm + "\n"
    files[f"/proc/{pid}/status"] = f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    files[f"/proc/{pid}/maps"] = maps
    files[f"/proc/{pid}/environ"] = environ
    files[f"/proc/{pid}/cgroup"] = cgroup
    return files


def read(tmp_path, section, *parts):
    files = {"/etc/passwd": PASSWD}
    for part in parts:
        files.update(part)
    return merged(
        processes.read(context(plant(tmp_path, files), ["gpus", "nccl", "torch"])), section
    )


def test_holder_is_reported_for_each_gpu_that_it_has_open(tmp_path):
    uid = os.getuid() or 1000
    section, unread = read(
        tmp_path,
        "gpus",
        process(
            20,
            ("/dev/nvidia1", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia0", "/dev/null"),
            uid=uid,
        ),
        process(30, ("/dev/nvidia-uvm", "/dev/nvidiactl"), uid=4242, comm="nvidia-persiste"),
        process(40, ("/dev/null",)),
    )
    row = {"pid": 20, "user": "alice", "command": "python3", "where": "host"}
    assert section["holders"] == [
        {"device": "/dev/nvidia0", **row},
        {"device": "/dev/nvidia1", **row},
        {
            "device": "/dev/nvidia-uvm",
            "pid": 30,
            "user": "4242",
            "command": "nvidia-persiste",
            "where": "host",
        },
    ]
    assert unread == []


def test_the_collector_itself_is_no_holder_of_a_gpu(tmp_path):
    files = {**process(20), **process(30), **process(40)}
    for pid, parent in ((20, 7), (30, 1), (40, 20)):
        files[f"/proc/{pid}/status"] += f"PPid:\t{parent}\n"
    holders = read_holders(plant(tmp_path, files), Unread(), {}, collector=7)
    assert [holder.pid for holder in holders] == ["30", "40"]


def test_process_in_a_container_is_marked(tmp_path):
    section, _unread = read(tmp_path, "gpus", process(20, cgroup=DOCKER))
    assert section["holders"][0]["where"] == "container"


def test_name_of_a_process_is_cleaned(tmp_path):
    section, _unread = read(tmp_path, "gpus", process(20, comm="\x1b[31mevil\x07"))
    assert "\x1b" not in section["holders"][0]["command"]


def test_mapped_library_is_reported_with_those_who_map_it(tmp_path):
    maps = MAPS.format(LIB, LIB)
    section, unread = read(
        tmp_path,
        "nccl",
        process(20, maps=maps),
        process(21, maps=maps),
        {LIB: nccl_library("2.21.5", "12.4")},
    )
    row = section["libraries"][0]
    assert (
        len(section["libraries"]),
        row["path"],
        row["version"],
        row["cuda"],
        row["origin"],
        row["where"],
    ) == (1, LIB, "2.21.5", "12.4", "mapped", "host")
    assert [owner["pid"] for owner in row["mapped_by"]] == [20, 21]
    assert unread == []


def test_library_that_was_replaced_under_a_running_job_has_no_version(tmp_path):
    section, unread = read(
        tmp_path,
        "nccl",
        process(20, maps=MAPS.format(LIB + " (deleted)", LIB + " (deleted)")),
        {LIB: nccl_library("2.27.3")},
    )
    assert (section["libraries"][0]["path"], section["libraries"][0]["version"]) == (LIB, None)
    assert "replaced" in unread[0]["reason"]


def test_library_in_a_container_is_read_inside_of_it_and_links_do_not_lead_out(tmp_path):
    inside = "/proc/20/root"
    files = {
        inside + "/usr/lib": Link("/opt/lib"),
        inside + "/opt/lib/libnccl.so.2": nccl_library("2.19.3", "12.2"),
        "/opt/lib/libnccl.so.2": nccl_library("2.27.3"),
    }
    section, _unread = read(
        tmp_path,
        "nccl",
        process(
            20, maps=MAPS.format("/usr/lib/libnccl.so.2", "/usr/lib/libnccl.so.2"), cgroup=DOCKER
        ),
        files,
    )
    row = section["libraries"][0]
    assert (row["version"], row["where"], row["container"]) == (
        "2.19.3",
        "container",
        "docker:0123456789ab",
    )


def test_same_path_in_two_containers_is_two_libraries(tmp_path):
    maps, other = MAPS.format(LIB, LIB), DOCKER.replace("0123", "9999")
    files = {
        "/proc/20/root" + LIB: nccl_library("2.19.3"),
        "/proc/21/root" + LIB: nccl_library("2.21.5"),
    }
    section, _unread = read(
        tmp_path,
        "nccl",
        process(20, maps=maps, cgroup=DOCKER),
        process(21, maps=maps, cgroup=other),
        files,
    )
    assert sorted((row["container"], row["version"]) for row in section["libraries"]) == [
        ("docker:0123456789ab", "2.19.3"),
        ("docker:9999456789ab", "2.21.5"),
    ]


def test_fifo_that_a_container_planted_is_not_waited_for(tmp_path):
    make_fifo(tmp_path, "/proc/20/root" + LIB)
    section, unread = read(tmp_path, "nccl", process(20, maps=MAPS.format(LIB, LIB), cgroup=DOCKER))
    assert section["libraries"][0]["version"] is None
    assert "not a regular file" in unread[0]["reason"]


def test_mapped_torch_tells_its_environment(tmp_path):
    maps = MAPS.format(SITE + "/torch/lib/libtorch_cuda.so", SITE + "/torch/lib/libtorch_cpu.so")
    files = {SITE + "/torch/version.py": "__version__ = '2.4.0+cu121'\ncuda = '12.1'\n"}
    section, _unread = read(tmp_path, "torch", process(20, maps=maps), files)
    assert [
        (row["path"], row["origin"], row["torch"], row["where"]) for row in section["environments"]
    ] == [(SITE, "mapped", "2.4.0+cu121", "host")]


def test_of_an_environment_only_named_variables_are_reported(tmp_path):
    environ = b"HOME=/home/alice\0NCCL_DEBUG=INFO\0WANDB_API_KEY=hunter2\0CUDA_VISIBLE_DEVICES=0\0"
    section, _unread = read(
        tmp_path,
        "nccl",
        process(20, environ=environ),
        process(21, environ=environ.replace(b"VISIBLE_DEVICES=0", b"VISIBLE_DEVICES=1")),
    )
    assert [
        (row["name"], row["value"], row["file"], row["source"]) for row in section["settings"]
    ] == [
        ("NCCL_DEBUG", "INFO", "/proc/20/environ", "process"),
        ("CUDA_VISIBLE_DEVICES", "0", "/proc/20/environ", "process"),
        ("CUDA_VISIBLE_DEVICES", "1", "/proc/21/environ", "process"),
    ]
    assert "hunter2" not in str(section)


def test_configuration_and_cache_of_a_jobs_user_are_read(tmp_path):
    uid = os.getuid() or 1000
    files = {
        "/etc/passwd": PASSWD,
        "/home/alice/.nccl.conf": "NCCL_P2P_DISABLE=1\n",
        "/home/alice/.cache/torch_extensions/py311/x/lock": "",
    }
    root = plant(tmp_path, {**process(20, uid=uid), **files})
    for path in ("/home/alice/.nccl.conf", "/home/alice/.cache/torch_extensions"):
        os.chown(str(tmp_path) + path, uid, -1)
    pieces = list(processes.read(context(root, ["nccl", "torch"])))
    assert [(row["name"], row["source"]) for row in merged(pieces, "nccl")[0]["settings"]] == [
        ("NCCL_P2P_DISABLE", "user_nccl_conf")
    ]
    assert [row["user"] for row in merged(pieces, "torch")[0]["extension_caches"]] == ["alice"]


def test_home_on_a_network_file_system_is_left_alone(tmp_path):
    mounts = "9 1 0:1 / / rw - ext4 x rw\n8 9 0:2 / /home rw - nfs4 s:/ rw\n"
    files = {
        "/etc/passwd": "alice:x:1000:1000::/home/alice:/bin/sh\n",
        "/home/alice/.nccl.conf": "NCCL_P2P_DISABLE=1\n",
        "/proc/self/mountinfo": mounts,
    }
    section, unread = read(tmp_path, "nccl", process(20), files)
    assert section["settings"] == []
    assert "nfs4 at /home" in unread[0]["reason"]


def test_processes_that_may_not_be_looked_into_are_counted():
    unread = Unread()
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        read_holders(Root(), unread, {})
    finally:
        os.seteuid(before)
    assert [(row["field"], row["status"]) for row in unread.rows] == [("holders", "denied")]


@pytest.mark.parametrize(
    ("targets", "devices"),
    [
        (["/dev/nvidia10", "/dev/nvidia2", "/dev/nvidiactl"], ["/dev/nvidia2", "/dev/nvidia10"]),
        (["/dev/nvidiactl", "/dev/nvidia-uvm"], ["/dev/nvidia-uvm"]),
        (["/dev/null", "socket:[1]"], []),
    ],
)
def test_numbered_devices_go_before_the_others(targets, devices):
    assert held_devices(targets) == devices


def test_maps_tell_the_libraries_of_interest():
    maps = MAPS.format("/a b/libnccl.so.2", SITE + "/torch/lib/libtorch_cuda.so").encode()
    assert mapped_libraries(maps) == {
        "/a b/libnccl.so.2": False,
        SITE + "/torch/lib/libtorch_cuda.so": False,
    }


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (DOCKER, "docker:0123456789ab"),
        (
            "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + "ab" * 32 + ".scope\n",
            "containerd:abababababab",
        ),
        ("0::/machine.slice/libpod-" + "cd" * 32 + ".scope\n", "podman:cdcdcdcdcdcd"),
        ("5:memory:/kubepods/besteffort/pod1/" + "ef" * 32 + "\n", "kubernetes:efefefefefef"),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0\n", None),
        ("", None),
    ],
)
def test_container_is_named_by_the_control_group(cgroup, container):
    assert container_of(cgroup) == container


def test_environment_is_split_at_zero_bytes():
    assert [(row.name, row.value) for row in parse_environ(b"A=1\0B=x=y\0odd\0=z\0\xff=1\0")] == [
        ("A", "1"),
        ("B", "x=y"),
        ("\ufffd", "1"),
    ]


def test_site_packages_are_told_from_torchs_library():
    assert site_packages_of(SITE + "/torch/lib/libtorch_cpu.so") == SITE
    assert site_packages_of("/usr/lib/libtorch_cpu.so") is None


def children(flags, *pids):
    """Process 2 with these flags and children."""
    return {
        "/proc/2/stat": f"2 (kthread (d) S 0 0 0 0 -1 {flags} 0 0 0 0 0 3 0\n",
        "/proc/2/task/2/children": " ".join(map(str, pids)) + " ",
    }


@pytest.mark.parametrize(
    ("flags", "looked_at"),
    [(2129984, [30]), (4194304, [20, 30]), ("", [20, 30])],
    ids=["kernel", "container", "unread"],
)
def test_threads_of_the_kernel_are_passed_over_and_the_children_of_another_process_2_are_not(
    tmp_path, flags, looked_at
):
    section, _ = read(
        tmp_path,
        "gpus",
        process(20, ("/dev/nvidia0",)),
        process(30, ("/dev/nvidia0",)),
        children(flags, 20, 21),
    )
    assert [row["pid"] for row in section["holders"]] == looked_at
