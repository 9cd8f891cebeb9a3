"""Section driver: the versions that are loaded, on the disk and in user space, and whether they
match."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.node_tree import Link, context, dpkg_status, kernel_module, ld_cache, merged, plant

from unhang_node.base.parse.nvidia_driver import (
    driver_version_of_file,
    parse_loaded,
    parse_params,
    upstream_version,
)
from unhang_node.base.section import Absent
from unhang_node.facts.sources import software

CAPTURE = Path(__file__).parents[4] / "fixtures" / "h200x8" / "proc-nvidia.txt"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build "
    " (nixbld@)\nGCC version:  gcc version 15.3.0 (GCC)\n"
)
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC"
    " version:  gcc version 12.3.0\n"
)
RELEASE = "5.15.0-100-generic"
LIB = "/usr/lib/x86_64-linux-gnu/"


def userspace(version, folder=LIB):
    return {
        folder + "libnvidia-ml.so." + version: "x",
        folder + "libnvidia-ml.so.1": Link("libnvidia-ml.so." + version),
        folder + "libcuda.so." + version: "x",
        folder + "libcuda.so.1": Link("libcuda.so." + version),
        folder + "libcuda.so": Link("libcuda.so.1"),
    }


def read(tmp_path, *parts):
    files = {"/proc/sys/kernel/osrelease": RELEASE + "\n"}
    for part in parts:
        files.update(part)
    return merged(software.read(context(plant(tmp_path, files), ["driver"])), "driver")


def loaded(text):
    return {
        "/proc/driver/nvidia/version": text,
        "/proc/driver/nvidia/params": 'ResmanDebugLevel: 1\nRegistryDwords: "a=1"\nEmpty: ""\n',
    }


def captured(name):
    """One file of the recorded node, out of the listing that holds them all."""
    text = CAPTURE.read_text(encoding="utf-8").split("== " + name + "\n")[1]
    return text.split("\n== ")[0] + "\n"


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        (OPEN, "580.159.04", "open"),
        (PROPRIETARY, "535.104.05", "proprietary"),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2\n",
            "470.256.02",
            "proprietary",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  560.35  Release\n",
            "560.35",
            "open",
        ),
        ("NVRM version: something new\n", None, None),
        ("", None, None),
    ],
)
def test_loaded_line_tells_version_and_flavour(text, version, flavour):
    assert parse_loaded(text)[1:] == (version, flavour)


def test_recorded_8xh200_node_is_read(tmp_path):
    files = {
        "/proc/driver/nvidia/" + name: captured("/proc/driver/nvidia/" + name)
        for name in ("version", "params")
    }
    section, _unread = read(tmp_path, files, userspace("580.159.04"))
    assert section["loaded"]["version"] == "580.159.04"
    assert section["loaded"]["flavour"] == "open"
    assert section["branch"] == "580"
    assert section["parameters"]["EnableGpuFirmware"] == "18"
    assert section["parameters"]["RegistryDwords"] == ""
    assert section["mismatch"] is False


def test_upgrade_without_a_reboot_is_a_mismatch_that_names_both_versions(tmp_path):
    section, _unread = read(tmp_path, loaded(PROPRIETARY), userspace("535.183.01"))
    assert section["mismatch"] is True
    assert "535.104.05 is loaded" in section["mismatch_text"]
    assert "libnvidia-ml.so.535.183.01 is 535.183.01" in section["mismatch_text"]


def test_libraries_are_found_through_the_linkers_cache(tmp_path):
    cache = {
        "/etc/ld.so.cache": ld_cache(
            [
                ("libnvidia-ml.so.1", "/opt/n/libnvidia-ml.so.1"),
                ("libcuda.so.1", "/opt/n/libcuda.so.1"),
            ]
        )
    }
    section, _unread = read(
        tmp_path, cache, userspace("535.104.05", "/opt/n/"), loaded(PROPRIETARY)
    )
    assert section["userspace"] == {
        "libnvidia_ml": {"path": "/opt/n/libnvidia-ml.so.535.104.05", "version": "535.104.05"},
        "libcuda": {"path": "/opt/n/libcuda.so.535.104.05", "version": "535.104.05"},
    }


def test_forward_compatible_libcuda_is_not_the_drivers_own(tmp_path):
    compat = userspace("550.54.15", "/usr/local/cuda-12.4/compat/")
    cache = [
        ("libcuda.so.1", "/usr/local/cuda-12.4/compat/libcuda.so.1"),
        ("libcuda.so.1", LIB + "libcuda.so.1"),
        ("libnvidia-ml.so.1", LIB + "libnvidia-ml.so.1"),
    ]
    section, _unread = read(
        tmp_path,
        compat,
        userspace("535.104.05"),
        {"/etc/ld.so.cache": ld_cache(cache)},
        loaded(PROPRIETARY),
    )
    assert section["userspace"]["libcuda"]["version"] == "535.104.05"
    assert section["mismatch"] is False


def test_library_that_does_not_name_its_version_is_null_with_a_reason(tmp_path):
    section, unread = read(tmp_path, {LIB + "libnvidia-ml.so.1": "x"}, loaded(PROPRIETARY))
    assert section["userspace"]["libnvidia_ml"] == {
        "path": LIB + "libnvidia-ml.so.1",
        "version": None,
    }
    assert section["mismatch"] is None
    assert {row["field"] for row in unread} == {
        "userspace.libnvidia_ml.version",
        "mismatch",
        "on_disk",
        "device_nodes",
    }


def test_module_on_the_disk_is_the_one_that_modprobe_would_load(tmp_path):
    folder = "/lib/modules/" + RELEASE
    files = {
        folder + "/modules.dep": (
            "updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\nupdates/dkms/nvidia.ko:\n"
        )
    }
    section, _unread = read(
        tmp_path,
        files,
        {folder + "/updates/dkms/nvidia.ko": kernel_module("535.183.01")},
        loaded(PROPRIETARY),
    )
    assert section["on_disk"] == {
        "path": folder + "/updates/dkms/nvidia.ko",
        "kernel": RELEASE,
        "version": "535.183.01",
    }


def test_sysfs_speaks_where_a_container_hides_procfs(tmp_path):
    section, unread = read(tmp_path, {"/sys/module/nvidia/version": "535.104.05\n"})
    assert section["loaded"] == {
        "is_loaded": True,
        "version": "535.104.05",
        "flavour": None,
        "line": None,
    }
    assert unread[0]["field"] == "loaded.flavour"


def test_node_without_a_driver_is_absent(tmp_path):
    with pytest.raises(Absent):
        read(tmp_path, {"/var/lib/dpkg/status": dpkg_status({"bash": "5"})})


def test_a_driver_that_gpus_on_the_bus_lack_is_not_absent(tmp_path):
    gpu = "/sys/bus/pci/devices/0000:17:00.0/"
    section, _unread = read(tmp_path, {gpu + "vendor": "0x10de\n", gpu + "class": "0x030200\n"})
    assert section["loaded"]["is_loaded"] is False
    assert section["install_method"] == "none"


def test_nouveau_alone_is_not_absent(tmp_path):
    section, _unread = read(tmp_path, {"/sys/module/nouveau/": ""})
    assert section["nouveau_loaded"] is True
    assert section["loaded"]["is_loaded"] is False
    assert section["install_method"] == "none"


PACKAGES = {
    "/var/lib/dpkg/status": dpkg_status(
        {
            "libnvidia-compute-535": "535.104.05-0ubuntu1",
            "nvidia-container-toolkit": "1.17",
            "cuda-compat-13-0": "580.95.05",
            "nvidia-cuda-toolkit": "12",
        }
    )
}
MOUNTED = {
    "/proc/self/mountinfo": (
        "9 1 8:1 / / rw - ext4 /dev/sda1 rw\n8 9 8:2 / /usr/local/nvidia ro - squashfs /dev/vdb"
        " ro\n"
    )
}
CACHED = {"/etc/ld.so.cache": ld_cache([("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1")])}
OWNED = {
    "/var/lib/dpkg/info/libnvidia-compute-535:amd64.list": (
        f"/.\n/usr/lib\n{LIB}libcuda.so.535.104.05\n"
    )
}


@pytest.mark.parametrize(
    ("parts", "method"),
    [
        ([PACKAGES, OWNED, userspace("535.104.05")], "packages"),
        ([PACKAGES, {"/usr/bin/nvidia-uninstall": "x"}, userspace("535.104.05")], "runfile"),
        ([{"/var/log/nvidia-installer.log": "x"}, userspace("535.104.05")], "runfile"),
        ([{"/run/nvidia/driver/usr/bin/nvidia-smi": "x"}, loaded(PROPRIETARY)], "gpu_operator"),
        ([userspace("535.104.05")], "unknown"),
        ([PACKAGES], "packages"),
        (
            [
                userspace("535.104.05"),
                {
                    "/proc/self/mountinfo": (
                        f"9 1 8:1 /x {LIB}libcuda.so.535.104.05 ro - ext4 /dev/sda1 rw\n"
                    )
                },
            ],
            "container",
        ),
        ([userspace("535.104.05", "/usr/local/nvidia/lib64/"), MOUNTED, CACHED], "container"),
        ([userspace("535.104.05", "/usr/local/nvidia/lib64/"), CACHED], "unknown"),
    ],
)
def test_way_of_installation_is_told_from_who_owns_the_files(tmp_path, parts, method):
    assert read(tmp_path, *parts)[0]["install_method"] == method


def test_toolkits_are_no_driver_packages(tmp_path):
    assert [row["name"] for row in read(tmp_path, PACKAGES)[0]["packages"]] == [
        "libnvidia-compute-535"
    ]


@pytest.mark.parametrize(
    ("files", "running"),
    [
        (
            {
                "/run/nvidia-persistenced/nvidia-persistenced.pid": "77\n",
                "/proc/77/comm": "nvidia-persiste\n",
            },
            True,
        ),
        (
            {
                "/run/nvidia-persistenced/nvidia-persistenced.pid": "77\n",
                "/proc/77/comm": "bash\n",
                "/proc/net/unix": "Num\n",
            },
            False,
        ),
        ({"/sys/fs/cgroup/system.slice/nvidia-persistenced.service/cgroup.procs": "77\n"}, True),
        ({"/sys/fs/cgroup/system.slice/other.service/cgroup.procs": "1\n"}, False),
        (
            {
                "/proc/net/unix": (
                    "Num RefCount\n00: 00000002 00000000 00010000 0001 01 1234"
                    " /var/run/nvidia-persistenced/socket\n"
                )
            },
            True,
        ),
        ({"/proc/31/comm": "nvidia-persiste\n"}, True),
    ],
)
def test_persistence_daemon_is_seen_without_asking_it(tmp_path, files, running):
    assert read(tmp_path, loaded(PROPRIETARY), files)[0]["persistence_daemon"] is running


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("libcuda.so.535.104.05", "535.104.05"),
        ("libcuda.so.560.35", "560.35"),
        ("libcuda.so.1", None),
        ("libcuda.so", None),
    ],
)
def test_version_is_read_off_a_librarys_name(name, version):
    assert driver_version_of_file(name) == version


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("535.161.08-0ubuntu3", "535.161.08"),
        ("3:580.65.06-1.el9", "580.65.06"),
        ("590.48.01-1", "590.48.01"),
        ("x", None),
        (None, None),
    ],
)
def test_upstream_version_is_cut_out_of_a_packages(version, upstream):
    assert upstream_version(version) == upstream


def test_parameters_keep_their_words():
    assert parse_params('A: 1\nB: "x y"\nno colon\nC:\n') == {"A": "1", "B": "x y", "C": ""}
