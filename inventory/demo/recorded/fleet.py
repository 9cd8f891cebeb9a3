"""The demo fleet: which layers there are, and what sets single nodes apart. The story of each node
is in ../README.md."""

from __future__ import annotations

import hashlib
from typing import Any

from boards import Slot, bus, infiniband, interface, machine, meminfo, network
from drivers import (
    ALLOWED,
    CHIPSET,
    HOST_BRIDGE,
    OTHER_NODE,
    SAME_SWITCH,
    h200,
    model,
    processes,
    system_calls,
)
from drivers import machine as recorded_machine
from trees import (
    GIB,
    Tree,
    compilers,
    driver,
    nccl_library,
    packages,
    space,
    system,
    toolkit,
    torch_environment,
)

NOBLE, JAMMY, FOCAL = "6.8.0-85-generic", "5.15.0-139-generic", "5.4.0-216-generic"
H200 = [f"0000:00:{device:02x}.0" for device in range(6, 14)]
A100 = [f"0000:{device}:00.0" for device in ("07", "0f", "47", "4e", "87", "90", "b7", "bd")]
A6000 = ["0000:41:00.0", "0000:42:00.0", "0000:61:00.0"]
RTX3090 = ["0000:01:00.0", "0000:02:00.0"]
T4 = ["0000:00:04.0", "0000:00:05.0"]
SITE = "opt/train/lib/python3.12/site-packages"
UPGRADES = {
    "etc/apt/apt.conf.d/20auto-upgrades": (
        'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
    ),
    "etc/apt/apt.conf.d/50unattended-upgrades": (
        'Unattended-Upgrade::Package-Blacklist {\n  "nvidia-";\n  "libnvidia-";\n  "linux-";\n '
        ' "libnccl";\n};\n'
    ),
}


def server_packages(
    version: str, nccl: str, held: bool = True, fabric_manager: bool = False
) -> str:
    """dpkg's list of a GPU server on Ubuntu 24.04."""
    wanted, deb = ("hold" if held else "install"), f"{version}-0ubuntu0.24.04.1"
    rows = [
        (f"{name}-580-server{ending}", deb, wanted)
        for name, ending in (
            ("nvidia-driver", "-open"),
            ("nvidia-dkms", "-open"),
            ("libnvidia-compute", ""),
        )
    ]
    rows += [("nvidia-fabricmanager-580", f"{version}-1", wanted)] if fabric_manager else []
    rows += [
        ("libnccl2", f"{nccl}-1+cuda12.9", wanted),
        ("libnccl-dev", f"{nccl}-1+cuda12.9", wanted),
    ]
    rows += [
        (f"linux-image-{NOBLE}", "6.8.0-85.85", "hold"),
        ("unattended-upgrades", "2.9.1+nmu4ubuntu1", "install"),
    ]
    return packages(rows)


def h200_node() -> Tree:
    """The captured machine: a virtual machine to which all eight GPUs are passed through."""
    slots = [Slot(address, "0x2335", cpus="0-127") for address in H200]
    board = machine(
        "QEMU",
        "Standard PC (Q35 + ICH9, 2009)",
        "Intel(R) Xeon(R) Platinum 8480+",
        128,
        1,
        1536,
        is_vm=True,
    )
    return board | bus(slots) | infiniband(4)


def a100_node() -> Tree:
    """Eight A100 behind PCIe switches, six NVSwitches, bare metal, ACS off."""
    slots = [
        Slot(
            address,
            "0x20b2",
            node=place // 2,
            lanes=(16, 16),
            speeds=("16.0", "16.0"),
            above=f"0000:{place // 2:02x}:01.1",
            acs=0,
        )
        for place, address in enumerate(A100)
    ]
    slots += [
        Slot(f"0000:{bus_:02x}:00.0", "0x1af1", "0x068000", lanes=(2, 2), speeds=("5.0", "5.0"))
        for bus_ in range(0xC4, 0xCA)
    ]
    return (
        machine(
            "NVIDIA", "DGXA100 920-23687-2530-000", "AMD EPYC 7742 64-Core Processor", 256, 8, 1024
        )
        | bus(slots)
        | infiniband(2, "200 Gb/sec (4X HDR)")
    )


def a6000_workstation() -> Tree:
    """Three cards, one of them in a slot with eight lanes; ACS and the IOMMU as the board came."""
    lanes = ((16, 16), (8, 16), (16, 16))
    slots = [
        Slot(
            address,
            "0x2230",
            lanes=lanes[place],
            speeds=("2.5", "16.0"),
            above=f"0000:{4 + place:02x}:01.1",
            acs=0x1D,
        )
        for place, address in enumerate(A6000)
    ]
    board = machine(
        "ASUSTeK COMPUTER INC.",
        "Pro WS WRX80E-SAGE SE WIFI",
        "AMD Ryzen Threadripper PRO 3975WX 32-Cores",
        64,
        1,
        256,
    )
    groups: Tree = {f"sys/kernel/iommu_groups/{group}/devices/.keep": "" for group in range(3)}
    groups |= {
        f"sys/devices/pci0000:00/0000:{4 + place:02x}:01.1/{address}/iommu_group/name": ""
        for place, address in enumerate(A6000)
    }
    net = network(
        [
            interface("eno1", "10.1.0.31", "10.1.0.0", 1000, True),
            interface("enp65s0f0", "192.168.50.31", "192.168.50.0", 10000),
        ]
    )
    return board | bus(slots) | groups | net


def rtx3090_workstation() -> Tree:
    """Two cards."""
    slots = [Slot(address, "0x2204", lanes=(16, 16), speeds=("2.5", "16.0")) for address in RTX3090]
    return machine(
        "Gigabyte Technology Co., Ltd.",
        "TRX40 AORUS MASTER",
        "AMD Ryzen Threadripper 3960X 24-Core Processor",
        48,
        1,
        128,
    ) | bus(slots)


def t4_machine() -> Tree:
    """A cloud's virtual machine with two T4."""
    board = machine(
        "Google", "Google Compute Engine", "Intel(R) Xeon(R) CPU @ 2.30GHz", 16, 1, 60, is_vm=True
    )
    return (
        board
        | bus([Slot(address, "0x1eb8", cpus="0-15") for address in T4])
        | network([interface("ens4", "10.4.0.2", "10.4.0.0", 10000, True)])
    )


def plain_machine() -> Tree:
    """A login node without GPU."""
    board = machine("Dell Inc.", "PowerEdge R650", "Intel(R) Xeon(R) Gold 6338", 64, 2, 256)
    return (
        board
        | bus([Slot("0000:03:00.0", "0x1533", "0x020000", "0x8086")])
        | network([interface("eno1", "10.0.0.5", "10.0.0.0", 25000, True)])
    )


def server(
    version: str, nccl: str, torch: tuple[str, str, str], fabric_manager: bool = False
) -> Tree:
    """What is installed on a GPU server. torch: its version, CUDA and NCCL."""
    files: Tree = {
        "var/lib/dpkg/status": server_packages(version, nccl, fabric_manager=fabric_manager)
    }
    return files | UPGRADES | nccl_library(nccl, "12.9") | torch_environment(SITE, *torch)


def workstation(version: str, release: str, fresh: bool) -> Tree:
    """What is installed on a workstation; not fresh: nothing is held."""
    branch, suite = version.split(".")[0], "20.04" if release == FOCAL else "22.04"
    deb, wanted = f"{version}-0ubuntu0.{suite}.1", "hold" if fresh else "install"
    rows = [
        (f"nvidia-driver-{branch}", deb, wanted),
        (f"nvidia-dkms-{branch}", deb, wanted),
        (f"libnvidia-compute-{branch}", deb, wanted),
    ]
    return {
        "var/lib/dpkg/status": packages(
            [*rows, (f"linux-image-{release}", release.removesuffix("-generic") + ".1", "install")]
        )
    }


TORCH = ("2.9.1", "12.8", "2.27.5")
LAYERS: dict[str, Tree] = {
    "ubuntu-24.04": system("Ubuntu 24.04.3 LTS", "24.04", "noble", NOBLE, "python3.12"),
    "ubuntu-22.04": system("Ubuntu 22.04.5 LTS", "22.04", "jammy", JAMMY, "python3.10"),
    "ubuntu-20.04": system("Ubuntu 20.04.6 LTS", "20.04", "focal", FOCAL, "python3.8"),
    "h200-node": h200_node(),
    "a100-node": a100_node(),
    "a6000-workstation": a6000_workstation(),
    "rtx3090-workstation": rtx3090_workstation(),
    "t4-machine": t4_machine(),
    "plain-machine": (
        plain_machine()
        | {"var/lib/dpkg/status": packages([(f"linux-image-{NOBLE}", "6.8.0-85.85", "install")])}
    ),
    "production": driver("580.159.04", "open", NOBLE) | server("580.159.04", "2.27.5", TORCH),
    "development": driver("580.95.05", "open", NOBLE) | server("580.95.05", "2.27.5", TORCH),
    "nvswitch-server": (
        driver("580.159.04", "open", NOBLE, True) | server("580.159.04", "2.27.5", TORCH, True)
    ),
    "cloud-server": (
        driver("580.159.04", "open", NOBLE)
        | server("580.159.04", "2.27.5", TORCH)
        | {"etc/environment": "NCCL_NET=Socket\n"}
    ),
    "driver-535.154.05": (
        driver("535.154.05", "proprietary", FOCAL) | workstation("535.154.05", FOCAL, True)
    ),
    "driver-545.23.08": (
        driver("545.23.08", "proprietary", JAMMY) | workstation("545.23.08", JAMMY, False)
    ),
}


def identity(host: str, uptime_s: int = 864000) -> Tree:
    """What every node has of its own."""
    digest = hashlib.sha256(host.encode()).hexdigest()
    boot = f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    own = {
        "proc/sys/kernel/hostname": host,
        "etc/machine-id": digest[:32],
        "proc/sys/kernel/random/boot_id": boot,
    }
    own["proc/uptime"] = f"{uptime_s}.50 {uptime_s * 9}.00"
    return {path: text + "\n" for path, text in own.items()}


def process(pid: int, command: str, user: str) -> Tree:
    """A process that holds a GPU. Users: see passwd()."""
    uid = USERS[user]
    status = f"Name:\t{command}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    return {
        f"proc/{pid}/comm": command + "\n",
        f"proc/{pid}/status": status,
        f"proc/{pid}/cgroup": "0::/system.slice/slurmstepd.scope\n",
    }


USERS = {"anna": 2001, "bert": 2002}
PASSWD = "root:x:0:0:root:/root:/bin/bash\n" + "".join(
    f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n" for name, uid in USERS.items()
)


def hosts() -> dict[str, Tree]:
    """host -> what lies over its layers."""
    trees = {
        f"gpu{number:03}": identity(f"gpu{number:03}") | ethernet(f"10.1.0.{100 + number}", "eth0")
        for number in range(1, 9)
    }
    trees |= {
        f"dev{number:02}": identity(f"dev{number:02}") | ethernet(f"10.2.0.{10 + number}", "eth0")
        for number in (1, 2)
    }
    servers = ("a100-01", "fsdp01", "fsdp02", "fsdp03", "mega01", "llmc01")
    trees |= {
        name: identity(name) | ethernet(f"10.3.0.{20 + place}", "enp225s0f0")
        for place, name in enumerate(servers)
    }
    trees |= {
        f"ws-3090-{number}": (
            identity(f"ws-3090-{number}") | ethernet(f"10.5.0.{10 + number}", "enp5s0")
        )
        for number in (1, 2)
    }
    trees |= {name: identity(name) for name in ("ws-a6000", "t4-01", "login01")}
    for name, tree in differences().items():
        trees[name] |= tree
    return trees


def ethernet(address: str, name: str) -> Tree:
    """One interface in a /24 network."""
    return network([interface(name, address, address.rsplit(".", 1)[0] + ".0", 25000, True)])


def differences() -> dict[str, Tree]:
    """What is wrong with whom, as far as files show it."""
    folk = "NCCL_TIMEOUT=1200000\nNCCL_SOCKET_TIMEOUT=600\nNCCL_DEBUG=INFO\n"
    other_torch = torch_environment(SITE, "2.6.0", "12.4", "2.21.5")
    build = "opt/Megatron-LM/megatron/fused_kernels/build"
    return {
        "gpu004": {"var/lib/dpkg/status": server_packages("580.159.04",
        "2.21.5")} | nccl_library("2.21.5", "12.4"),
        "ws-a6000": {
            "proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{FOCAL} root=/dev/nvme0n1p2 ro amd_iommu=on\n",  # noqa: E501
            "etc/environment": "NCCL_BLOCKING_WAIT=1\n",
        },
        "ws-3090-2": {"etc/environment": "NCCL_P2P_DISABLE=1\n"},
        "fsdp01": {"etc/environment": folk, "etc/passwd": PASSWD} | process(41001, "python",
        "anna") | process(52001, "python3", "bert"),
        "fsdp02": {"etc/profile.d/nccl.sh": "export NCCL_BLOCKING_WAIT=1\nexport NCCL_ASYNC_ERROR_HANDLING=1\n", "etc/nccl.conf": "NCCL_ALGO=Tree\n"},  # noqa: E501
        "fsdp03": other_torch | {"etc/nccl.conf": "NCCL_IB_DISABLE=1\n"},
        "mega01": {f"{build}/lock": "", f"{build}/build.ninja": ""}
        | {"proc/meminfo": meminfo(1024 << 20, 6 << 20, 0), ".unhang/space.json": space(64 * GIB,
        GIB // 4)}
        | toolkit("11.8")
        | {path: content for path,
        content in compilers("python3.12").items() if "ninja" not in path and "Python.h" not in path},  # noqa: E501
        "llmc01": {"etc/passwd": PASSWD, "etc/profile.d/cuda.sh": "export CUDA_VISIBLE_DEVICES=0\n"}
        | {path: text for pid in range(61001, 61005) for path, text in process(pid, "train_gpt2cu",
        "bert").items()},
    }  # fmt: skip


def recordings() -> dict[str, dict[str, Any]]:
    """File name -> recording."""
    captured = h200()
    a100 = model("NVIDIA A100-SXM4-80GB", 7, (8, 0), 81920, 400, 4, 12, 2, True)
    a6000 = model("NVIDIA RTX A6000", 7, (8, 6), 49140, 300, 4, 4, None, False)
    rtx3090 = model("NVIDIA GeForce RTX 3090", 7, (8, 6), 24576, 350, 4, 4, None, False)
    t4 = model("Tesla T4", 6, (7, 5), 15360, 70, 3, 0, None, True)
    made = {"h200": captured["first"], "h200x8": {"base": "h200.json"} | captured["eight"]}
    for name, count, recording in (
        (
            "a100",
            "a100x8",
            recorded_machine("580.159.04", 13000, a100, A100, "0a10", ALLOWED, HOST_BRIDGE),
        ),
        (
            "a6000",
            "a6000x3",
            recorded_machine("535.154.05", 12020, a6000, A6000, "0a60", ALLOWED, OTHER_NODE),
        ),
        (
            "rtx3090",
            "rtx3090x2",
            recorded_machine("545.23.08", 12030, rtx3090, RTX3090, "3090", CHIPSET, SAME_SWITCH),
        ),
        ("t4", "t4x2", recorded_machine("580.159.04", 13000, t4, T4, "0074", CHIPSET, HOST_BRIDGE)),
    ):
        made |= {name: recording["first"], count: {"base": f"{name}.json"} | recording["all"]}
    return made | broken_recordings()


def broken_recordings() -> dict[str, dict[str, Any]]:
    """What is wrong with whom, as far as the driver reports it."""
    lost = {"nvml_error": 15, "text": "GPU is lost"}
    return {
        "h200x8-580.95.05": {
            "base": "h200x8.json",
            "system": system_calls("580.95.05", 13000),
            "all_devices": {"nvmlDeviceGetGspFirmwareVersion": "580.95.05"},
        },
        "gpu006": {"base": "h200x8.json", "devices": {"3": {"nvlink": {"7": {"state": 0}}}}},
        "gpu007": {"base": "h200x8.json", "devices": {"5": {"handle": lost}}},
        "ws-a6000": {
            "base": "a6000x3.json",
            "all_devices": {"nvmlDeviceGetPersistenceMode": 0},
            "devices": {"1": {"nvmlDeviceGetCurrPcieLinkWidth": 8}},
            "pairs": {"0-2": {"p2p:0": CHIPSET}, "1-2": {"p2p:0": CHIPSET}},
        },
        "fsdp01": {"base": "a100x8.json", "devices": {"0": processes([(41001, 20480), (52001,
        30720)]), "1": processes([(41001, 20480)])}},
        "llmc01": {
            "base": "a100x8.json",
            "devices": {"0": processes([(pid, 9216) for pid in range(61001, 61005)]),
            "5": {"nvmlDeviceGetComputeMode": 3}},
        },
    }  # fmt: skip
