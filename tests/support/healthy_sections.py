"""The sections of a healthy node's facts: each function gives one section, or a part of one."""

from __future__ import annotations

from healthy_slurm import NO_SLURM, slurm_of

DRIVER = "580.178.04"
NCCL = "2.30.7"
KERNEL = "6.8.0-149-generic"


SYSCTLS = {
    "fs.aio-max-nr": "65536", "fs.file-max": "9223372036854775807",
    "fs.inotify.max_user_instances": "8192", "fs.inotify.max_user_watches": "1048576",
    "fs.nr_open": "1048576", "kernel.apparmor_restrict_unprivileged_userns": "1",
    "kernel.hung_task_panic": "0", "kernel.hung_task_timeout_secs": "120",
    "kernel.panic": "0", "kernel.panic_on_oops": "0", "kernel.pid_max": "4194304",
    "kernel.shmall": "18446744073692774399", "kernel.shmmax": "18446744073692774399",
    "kernel.shmmni": "4096", "kernel.softlockup_panic": "0",
    "kernel.threads-max": "16513754", "kernel.unprivileged_userns_clone": "1",
    "kernel.yama.ptrace_scope": "1", "net.core.rmem_max": "212992", "net.core.somaxconn": "4096",
    "net.core.wmem_max": "212992", "net.ipv4.conf.all.arp_announce": "0",
    "net.ipv4.conf.all.arp_ignore": "0", "net.ipv4.conf.all.rp_filter": "2",
    "net.ipv4.ip_forward": "1", "net.ipv4.ip_local_port_range": "32768 60999",
    "net.ipv4.neigh.default.gc_thresh1": "128", "net.ipv4.neigh.default.gc_thresh2": "512",
    "net.ipv4.neigh.default.gc_thresh3": "1024",
    "net.ipv4.tcp_max_syn_backlog": "65536", "net.ipv4.tcp_mtu_probing": "0",
    "net.ipv4.tcp_retries2": "15", "net.ipv4.tcp_syn_retries": "6",
    "net.ipv6.conf.all.disable_ipv6": "0", "user.max_user_namespaces": "8256876",
    "vm.compaction_proactiveness": "20",
    "vm.dirty_ratio": "20", "vm.max_map_count": "1048576",
    "vm.min_free_kbytes": "90112", "vm.panic_on_oom": "0", "vm.swappiness": "60",
    "vm.zone_reclaim_mode": "0",
}  # fmt: skip
"""What Ubuntu 24.04 sets of the settings that the collector reads."""


def absent(*fields):
    """unread rows of values that a node of this kind does not have."""
    return [
        {"field": field, "status": "absent", "reason": "this board has none"} for field in fields
    ]


def probe(*unread):
    return {"status": "ok", "duration_ms": 1.0, "error": None, "unread": list(unread)}


def nothing_there(why):
    return {"probe": {"status": "absent", "duration_ms": 0.1, "error": why, "unread": []}}


VBIOS = {
    "NVIDIA A100-SXM4-80GB": "92.00.36.00.02", "NVIDIA L40S": "95.02.66.00.15",
    "NVIDIA GeForce RTX 4090": "95.02.3C.00.8C", "Tesla T4": "90.04.84.00.06",
    "NVIDIA B200": "97.00.FA.00.09", "NVIDIA GB200": "97.00.B9.00.69",
}  # fmt: skip
BAR1_MIB = {
    "NVIDIA L40S": 65536.0,
    "NVIDIA GeForce RTX 4090": 32768.0,
    "Tesla T4": 256.0,
    "NVIDIA B200": 262144.0,
    "NVIDIA GB200": 262144.0,
}


def gpu(index, model, architecture, capability, memory_mib, generation, power_w, fabric=None):
    return {
        "index": index, "error": None, "uuid": f"GPU-{index:08d}-0000-4000-8000-000000000000",
        "minor": index, "pci_address": f"0000:{index + 16:02x}:00.0",
        "model": model, "architecture": architecture, "compute_capability": capability,
        "board_part_number": "900-0",
        "vbios": VBIOS.get(model, "96.00.89.00.01"), "inforom": "G520.0200.00.05",
        "numa_node": index // 4, "cpus": "0-63" if index < 4 else "64-127",
        "pcie": {"generation_now": generation, "generation_max": generation,
        "generation_card": generation, "width_now": 16, "width_max": 16, "replays": 0,
            "errors_fatal": 0, "errors_nonfatal": 0},
        "bar1_total_mib": BAR1_MIB.get(model, 131072.0), "bar1_used_mib": 1.6,
        "memory_total_mib": memory_mib, "memory_used_mib": 0.0,
        "memory_reserved_mib": 600.0, "utilization_percent": 0,
        "power_limit_w": power_w, "power_limit_default_w": power_w, "power_limit_max_w": power_w,
        "power_draw_w": 70.0,
        "clocks": {"sm_mhz": 345, "sm_max_mhz": 1980, "memory_mhz": 2619, "memory_max_mhz": 2619,
        "throttle_reasons": ["gpu_idle"]},
        "temperature_c": 31, "temperature_slowdown_c": 87, "memory_temperature_c": 35,
        "memory_temperature_max_c": 95, "recovery_action": "none",
        "ecc": {
            "enabled": True, "pending": True, "corrected_volatile": 0, "uncorrected_volatile": 0,
            "corrected_aggregate": 0, "uncorrected_aggregate": 0,
            "sram_threshold_exceeded": False,
        },
        "row_remap": {"corrected": 0, "uncorrected": 0, "pending": False, "failed": False,
        "banks_without_spare": 0},
        "retired_pages": None, "mig": {"enabled": False, "pending": False}, "persistence": True,
        "compute_mode": "default", "gsp_version": DRIVER,
        "fabric": fabric, "processes": [],
    }  # fmt: skip


def gpus_section(devices, *missing):
    return {
        "probe": probe(*absent("devices[*].retired_pages",
        *(f"devices[*].{name}" for name in missing))),
        "count": len(devices), "pci_count": len(devices), "model": devices[0]["model"],
        "first_handle_ms": 2.0, "devices": devices, "holders": [],
    }  # fmt: skip


def interconnect_section(
    devices,
    nvlinks,
    read="ok",
    topology="node",
    speed_mb_s=25000,
    version="3.0",
    *,
    fabric_state="none",
    vm=False,
):
    count = len(devices)
    links = [
        {
            "gpu": one["index"], "link": link, "active": True, "version": version,
            "remote": "switch", "remote_pci_address": None, "speed_mb_s": speed_mb_s,
            "errors": {"replay": 0, "recovery": 0, "crc": 0},
        }
        for one in devices for link in range(nvlinks)
    ]  # fmt: skip
    pairs = [
        {"a": a, "b": b, "read": read, "write": None, "nvlink": None, "atomics": None,
        "topology": topology, "nvlinks": nvlinks}
        for a in range(count) for b in range(a + 1, count)
    ]  # fmt: skip
    bridges = (
        []
        if vm
        else [
            {
                "pci_address": f"0000:{one['index'] + 8:02x}:00.0",
                "capable": True,
                "enabled": False,
                "control": "0x0000",
            }
            for one in devices
        ]
    )
    return {
        "probe": probe(), "links": links, "pairs": pairs, "p2p_ok": read == "ok", "acs": bridges,
        "acs_enabled": False, "fabric_state": fabric_state,
        "by_gpu": [
            {"gpu": one["index"], "uuid": one["uuid"], "nvlinks": nvlinks,
            "nvlinks_active": nvlinks, "remote": "switch" if nvlinks else "none",
                "errors_total": 0}
            for one in devices
        ],
        "iommu": {"mode": "off" if vm else "passthrough", "groups": 0 if vm else 60,
        "evidence": "iommu=pt on the kernel command line"},
    }  # fmt: skip


def interface(name, address, driver="mlx5_core", speed=100000, *, default=False):
    return {
        "name": name, "kind": "loopback" if name == "lo" else "physical", "state": "up",
        "speed_mbps": speed, "mtu": 1500, "addresses": [address],
        "numa_node": 0,
        "driver": driver, "pci_address": "0000:01:00.0", "carrier_changes": 2,
        "frames_received": 1 << 40, "frames_damaged": 0, "default_route": default,
    }  # fmt: skip


def rdma_device(number, layer, rate):
    port = {
        "port": 1, "state": "active", "physical_state": "linkup", "link_layer": layer,
        "rate_gbps": rate, "lid": 1, "sm_lid": 1 if layer == "infiniband" else 0,
        "counters": {"link_downed": 0},
        "gids": [{"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:c000:0201",
        "type": "roce_v2" if layer == "ethernet" else "ib",
            "interface": f"rail{number}"}],
    }  # fmt: skip
    return {
        "name": f"mlx5_{number}", "driver": "mlx5_core", "firmware": "28.43.2026",
        "board": "MT_0000000223" if rate == 200.0 else "MT_0000000838",
        "pci_address": f"0000:{number + 32:02x}:00.0",
        "pcie": {"generation_now": 5, "generation_max": 5, "generation_card": 5, "width_now": 16,
        "width_max": 16, "errors_fatal": 0, "errors_nonfatal": 0},
        "numa_node": number // 4, "ats_enabled": None, "programs": "open", "ports": [port],
    }  # fmt: skip


def network_section(interfaces, usable, rdma=()):
    rdma = list(rdma)
    return {
        "probe": probe(*absent("efa", "rdma[*].ats_enabled", *(() if rdma else ("peermem.linked",
        )))),
        "interfaces": [interface("lo", "127.0.0.1/8", None, None), *interfaces],
        "usable_interfaces": usable, "shared_subnets": [], "firewalls": [],
        "has_rdma": bool(rdma),
        "has_infiniband": any(port["link_layer"] == "infiniband" for one in rdma for port in one["ports"]), "rdma": rdma,
        "peermem": {"loaded": bool(rdma), "module": "nvidia_peermem" if rdma else None,
        "registered": bool(rdma), "linked": True if rdma else None},
        "efa": None, "dmabuf": {"possible": True, "why_not": None},
    }  # fmt: skip


def scope(name):
    return {
        "scope": name, "evidence": "/proc/811/limits", "memlock_soft_bytes": -1,
        "memlock_hard_bytes": -1, "nofile_soft": 131072, "nofile_hard": 1048576,
        "stack_soft_bytes": 8388608, "stack_hard_bytes": -1, "nproc_soft": 8257536,
        "nproc_hard": 8257536,
    }  # fmt: skip


def limits_section():
    temp = [
        {"path": path, "size_bytes": 1 << 40, "free_bytes": 1 << 39, "noexec": False}
        for path in ("/tmp", "/var/tmp")
    ]
    return {
        "probe": probe(), "scopes": [scope("collector"), scope("sshd"), scope("slurmd")],
        "shm": {"size_bytes": 1 << 39, "used_bytes": 4096},
        "not_mounted": [],
        "in_use": {"tasks": 2500, "tasks_max": 4194304, "files": 5000,
        "files_max": 9223372036854775807, "connections": 300,
            "connections_max": 262144, "load_15": 4.0},
        "hugepages_total": 0, "numa_balancing": False, "swap_total_bytes": 0, "swap_free_bytes": 0,
        "memory_available_bytes": 1 << 40, "temp": temp,
        "filesystems": [
            {
                "path": "/", "type": "ext4", "size_bytes": 1 << 40, "free_bytes": 1 << 39,
                "inodes_free_percent": 97.0, "read_only": False, "soft": False,
                "locks": True, "access_times": True,
            },
        ],
        "remove_ipc": False, "overcommit_memory": 0,
        "transparent_hugepages": {"enabled": "madvise", "defrag": "madvise"},
        "sysctls": dict(SYSCTLS),
    }  # fmt: skip


def services(*, slurm):
    """Services of a node for training: the driver's daemon, time, interrupts, logins; Slurm where
    it is used."""
    names = [
        "chrony",
        "irqbalance",
        "ssh",
        "systemd-resolved",
        *(["munge", "slurmd"] if slurm else []),
    ]
    rows = [
        {"name": name, "state": "enabled", "running": True, "replaced": False} for name in names
    ]
    return sorted(
        [
            *rows,
            {
                "name": "nvidia-persistenced",
                "state": "disabled",
                "running": True,
                "replaced": False,
            },
        ],
        key=lambda row: row["name"],
    )


def containers():
    return {
        "docker": None,
        "containerd": None,
        "toolkit": None,
        "kubelet": None,
        "device_links": False,
    }


def node_section(*, vm=False, cpu="GenuineIntel", numa=2, slurm=True):
    kind = {"kind": "kvm" if vm else "none", "is_vm": vm, "is_container": False}
    configurations = [
        f"containers.{name}" for name in ("docker", "containerd", "toolkit", "kubelet")
    ]
    missing = [
        "container_runtimes[*].version",
        *configurations,
        *(["cpu.frequency", "memory_errors", "cpu_throttled_ms"] if vm else []),
    ]
    return {
        "probe": probe(*absent(*missing)), "hostname": "node1", "machine_id": "a" * 32,
        "boot_id": "b" * 36, "uptime_s": 432000.0,
        "architecture": "x86_64",
        "os": {"id": "ubuntu", "version_id": "24.04", "codename": "noble", "family": "debian",
        "pretty_name": "Ubuntu 24.04.3 LTS"},
        "cpu": {"vendor": cpu,
        "model": "AMD EPYC 9654" if cpu == "AuthenticAMD" else "Intel(R) Xeon(R) Platinum 8480C",
        "sockets": numa, "logical_cpus": 128,
            "frequency": None if vm else {"driver": "acpi-cpufreq" if cpu == "AuthenticAMD" else "intel_pstate", "governors": ["performance"],
                "max_mhz": 3800, "limit_mhz": 3800},
            "idle": {"driver": "haltpoll" if vm else "acpi_idle", "governor": "menu",
            "deepest_state": "C1", "deepest_latency_us": 1}},
        "name_addresses": [], "clock_source": "kvm-clock" if vm else "tsc",
        "time": {"daemon": "chronyd", "synchronized": None, "kernel_in_step": True,
        "max_error_ms": 12}, "irqbalance": True,
        "cgroup": "v2", "selinux": {"mode": "disabled", "container_use_devices": None},
        "services": services(slurm=slurm), "troubled_units": [],
        "tuned_profile": "", "name_service": {"hosts": ["files", "dns"], "servers": ["127.0.0.53"]},
        "cpu_throttled_ms": None if vm else 0,
        "disks": [{"name": "nvme0", "model": "a disk", "state": "live"}], "arrays": [],
        "crashes": [],
        "cpu_state": {"offline": 0, "isolated": 0, "smt": "notimplemented" if vm else "on"},
        "numa_without_memory": [],
        "memory_errors": None if vm else {"controllers": numa * 8, "corrected": 0,
        "uncorrected": 0}, "containers": containers(),
        "memory_total_bytes": 2 << 40, "numa_nodes": numa, "virtualization": kind,
        "container_runtimes": [], "cdi": [],
        "kubernetes": {"kubelet": False, "gpu_operator": False,
            **dict.fromkeys(("resources", "gpus_offered", "cpu_manager_kept", "memory_manager_kept",
            "pods"))},
        "slurm": slurm_of() if slurm else dict(NO_SLURM),
        "python": {"path": "/usr/bin/python3.12", "version": "3.12"},
        "dmi": {"vendor": "Supermicro", "product": "SYS-821GE", "board": "X13",
        "bios_version": "2.1"}, "secure_boot": False,
        "image": {"kind": "installed", "evidence": "root file system ext4"},
        "admission": {"path": "/etc/unhang/admission", "record": None, "private_keys": []},
        "monitors": [],
    }  # fmt: skip


def module(name):
    return {
        "name": name,
        "version": DRIVER,
        "srcversion": "A" * 23,
        "out_of_tree": True,
        "users": 1,
        "parameters": {},
    }


def kernel_section(*, driver=True):
    names = ["nvidia", "nvidia_uvm", "nvidia_peermem"] if driver else []
    installed = [
        {
            "release": KERNEL,
            "image": f"/boot/vmlinuz-{KERNEL}",
            "headers": True,
            "nvidia_module": DRIVER if driver else "",
        }
    ]
    boot = {
        "loader": "grub", "default_entry": "0", "default_release": KERNEL,
        "one_shot_pending": False, "one_shot_entry": None,
        "can_clear_one_shot": True, "why_not": None,
    }  # fmt: skip
    return {
        "probe": probe(*absent("boot.one_shot_entry", "boot.why_not")), "release": KERNEL,
        "version": "#149-Ubuntu SMP", "cmdline": "ro quiet iommu=pt",
        "modprobe": {"forbidden": ["nouveau"], "options": []}, "lockdown": "none",
        "taints": {"value": 4096 if driver else 0, "letters": ["O"] if driver else []},
        "modules": [module(name) for name in names], "out_of_tree": names,
        "installed": installed, "boot": boot, "reboot_required": False, "reboot_reasons": [],
        "dkms": [{"module": "nvidia", "version": DRIVER, "kernel": KERNEL,
        "state": "installed"}] if driver else [],
    }  # fmt: skip


def package(name, version, *, held=False):
    return {
        "name": name,
        "version": version,
        "architecture": "amd64",
        "held": held,
        "state": "installed",
    }


def driver_packages(fabric):
    names = [
        "nvidia-driver-580-server-open",
        "nvidia-dkms-580-server-open",
        "libnvidia-compute-580-server",
        *(["nvidia-fabricmanager-580"] if fabric else []),
    ]
    return [package(name, f"{DRIVER}-0ubuntu0.24.04.1", held=True) for name in names]


def device_nodes(gpus=16):
    """Device files of a node; more device files than GPUs are harmless."""
    names = [*(str(number) for number in range(gpus)), "ctl", "-uvm", "-uvm-tools"]
    return [{"path": f"/dev/nvidia{name}", "open_to_all": True} for name in names]


def driver_section(flavour="open", *, fabric=False):
    library = {"path": f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{DRIVER}", "version": DRIVER}
    return {
        "probe": probe(*absent("mismatch_text")),
        "loaded": {"is_loaded": True, "version": DRIVER, "flavour": flavour,
        "line": f"NVRM version: {DRIVER}"},
        "branch": "580", "cuda_version": "13.0", "nvml_version": f"13.{DRIVER}",
        "userspace": {"libnvidia_ml": library, "libcuda": dict(library)},
        "on_disk": {"path": f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko", "kernel": KERNEL,
        "version": DRIVER}, "packages": driver_packages(fabric),
        "install_method": "packages", "gsp_firmware": {"enabled": True, "version": DRIVER},
        "persistence_daemon": True,
        "parameters": {"OpenRmEnableUnsupportedGpus": "1"}, "device_nodes": device_nodes(),
        "nouveau_loaded": False, "mismatch": False, "mismatch_text": None,
    }  # fmt: skip


def fabric_section(switches=0):
    has = switches > 0
    return {
        "probe": probe(*absent("last_error", "imex.version", *(() if has else ("version", "package",
        "started_s")))), "nvswitch_present": has,
        "nvswitch_count": switches, "installed": has, "version": DRIVER if has else None,
        "package": "nvidia-fabricmanager-580" if has else None,
        "running": has, "started_s": 24 if has else None, "enabled": has, "last_error": None,
        "imex": {"installed": False, "version": None, "running": False, "channels": []},
    }  # fmt: skip


def cuda_section():
    tool = {"path": "/usr/local/cuda-13.0/bin/nvcc", "version": "13.0"}
    file = {"path": "/usr/bin/gcc", "version": "13.3.0"}
    tools = {
        "nvcc": tool, "gcc": file, "gxx": dict(file), "ninja": dict(file), "make": dict(file),
        "python_headers": True, "has_compiler": True, "has_ninja": True,
        "has_nvcc": True,
    }  # fmt: skip
    return {
        "probe": probe(*absent("forward_compat")),
        "toolkits": [{"path": "/usr/local/cuda-13.0", "version": "13.0.2", "is_default": True,
        "nvcc": True}],
        "default": {"path": "/usr/local/cuda-13.0", "version": "13.0.2"}, "forward_compat": None,
        "cudnn": [{"path": "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.13.0", "version": "9.13.0"}],
        "build_tools": tools,
    }  # fmt: skip


def setting(name, value):
    return {
        "name": name,
        "value": value,
        "file": "/etc/nccl.conf",
        "line": 1,
        "source": "nccl_conf",
        "launch_paths": ["any"],
        "certain": True,
    }


def nccl_section(settings):
    library = {
        "path": "/opt/train/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
        "version": NCCL, "cuda": "13.0", "build_id": "ab" * 20,
        "size_bytes": 400_000_000,
        "sha256": None, "origin": "site_packages", "where": "host", "container": None,
        "package": None, "is_loader_default": False, "mapped_by": [],
    }  # fmt: skip
    rows = [setting(name, value) for name, value in settings.items()]
    return {
        "probe": probe(*absent("libraries[*].sha256")),
        "libraries": [library],
        "net_plugins": [],
        "settings": rows,
        "effective": {"ssh": dict(settings)},
    }


def torch_section():
    environment = {
        "path": "/opt/train/lib/python3.12/site-packages", "origin": "policy", "where": "host",
        "container": None, "python": "3.12",
        "torch": "2.11.0", "cuda": "13.0",
        "has_cuda": True, "nccl": NCCL, "cudnn": "9.13.0", "packages": {"accelerate": "1.9.0"},
    }  # fmt: skip
    cache = {
        "path": "/home/train/.cache/torch_extensions",
        "user": "train",
        "builds": ["fused_adam"],
        "locks": [],
    }
    return {"probe": probe(), "environments": [environment], "extension_caches": [cache]}


def packages_section(packages):
    upgrades = {
        "installed": True, "enabled": True,
        "blacklist": ["nvidia-", "libnvidia-", "linux-modules-nvidia-"],
        "origins": ["origin=Ubuntu"],
        "automatic_reboot": False,
        "covers_driver": False,
    }  # fmt: skip
    held = [one["name"] for one in packages if one["held"]]
    return {
        "probe": probe(), "manager": "dpkg", "installed": packages, "holds": held, "pins": [],
        "half_configured": [], "unattended_upgrades": upgrades,
        "pending": [],
    }  # fmt: skip


def faults_section():
    return {"probe": probe(), "source": "kmsg", "lines_read": 2211, "complete": True, "events": []}
