"""The sections of a healthy node's facts: each function gives one section, or a part of one, from
its row in healthy_sections.yml."""

from __future__ import annotations

import copy
from pathlib import Path
from string import Template

import yaml
from healthy_slurm import NO_SLURM, slurm_of

DRIVER = "580.178.04"
NCCL = "2.30.7"
KERNEL = "6.8.0-149-generic"
ROWS = yaml.safe_load(
    Template(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8")).substitute(
        DRIVER=DRIVER, NCCL=NCCL, KERNEL=KERNEL
    )
)
SYSCTLS = ROWS["sysctls"]


def made(name, /, **changes):
    """A copy of a row with these fields changed; those of a mapping inside it one by one."""
    row = copy.deepcopy(ROWS[name])
    for key, value in changes.items():
        old = row[key]
        row[key] = {**old, **value} if old and isinstance(value, dict) else value
    return row


def absent(*fields):
    """unread rows of values that a node of this kind does not have."""
    return [
        {"field": field, "status": "absent", "reason": "this board has none"} for field in fields
    ]


def probe(*unread):
    return {"status": "ok", "duration_ms": 1.0, "error": None, "unread": list(unread)}


def nothing_there(why):
    return {"probe": {"status": "absent", "duration_ms": 0.1, "error": why, "unread": []}}


def gpu(index, model, architecture, capability, memory_mib, generation, power_w, fabric=None):
    return made(
        "gpu",
        index=index,
        uuid=f"GPU-{index:08d}-0000-4000-8000-000000000000",
        minor=index,
        pci_address=f"0000:{index + 16:02x}:00.0",
        model=model,
        architecture=architecture,
        compute_capability=capability,
        vbios=ROWS["vbios"].get(model, "96.00.89.00.01"),
        numa_node=index // 4,
        cpus="0-63" if index < 4 else "64-127",
        pcie=dict.fromkeys(("generation_now", "generation_max", "generation_card"), generation),
        bar1_total_mib=ROWS["bar1_mib"].get(model, 131072.0),
        memory_total_mib=memory_mib,
        **{f"power_limit_{name}": power_w for name in ("w", "default_w", "max_w")},
        fabric=fabric,
    )


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
        made("link", gpu=one["index"], link=link, version=version, speed_mb_s=speed_mb_s)
        for one in devices
        for link in range(nvlinks)
    ]
    pairs = [
        made("pair", a=a, b=b, read=read, topology=topology, nvlinks=nvlinks)
        for a in range(count)
        for b in range(a + 1, count)
    ]
    bridges = [
        {"pci_address": f"0000:{one['index'] + 8:02x}:00.0", "capable": True, "enabled": False,
        "control": "0x0000"}
        for one in ([] if vm else devices)
    ]  # fmt: skip
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
    return made(
        "interface",
        name=name,
        kind="loopback" if name == "lo" else "physical",
        speed_mbps=speed,
        addresses=[address],
        driver=driver,
        default_route=default,
    )


def rdma_device(number, layer, rate):
    gid = {
        "index": 3, "gid": "0000:0000:0000:0000:0000:ffff:c000:0201",
        "type": "roce_v2" if layer == "ethernet" else "ib", "interface": f"rail{number}",
    }  # fmt: skip
    return made(
        "rdma_device",
        name=f"mlx5_{number}",
        board="MT_0000000223" if rate == 200.0 else "MT_0000000838",
        pci_address=f"0000:{number + 32:02x}:00.0",
        numa_node=number // 4,
        ports=[
            made(
                "port",
                link_layer=layer,
                rate_gbps=rate,
                sm_lid=int(layer != "ethernet"),
                gids=[gid],
            )
        ],
    )


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
    return made("scope", scope=name)


def limits_section():
    return made(
        "limits",
        probe=probe(),
        scopes=[scope(name) for name in ("collector", "sshd", "slurmd")],
        sysctls=dict(SYSCTLS),
    )


def services(*, slurm):
    """Services of a node for training: the driver's daemon, time, interrupts, logins; Slurm where
    it is used."""
    names = ["chrony", "irqbalance", "ssh", "systemd-resolved", "nvidia-persistenced"]
    return [
        {"name": name, "state": "disabled" if name.startswith("nv") else "enabled",
        "running": True, "replaced": False}
        for name in sorted([*names, *(["munge", "slurmd"] if slurm else [])])
    ]  # fmt: skip


def containers():
    return made("containers")


def node_section(*, vm=False, cpu="GenuineIntel", numa=2, slurm=True):
    amd = cpu == "AuthenticAMD"
    configurations = [
        f"containers.{name}" for name in ("docker", "containerd", "toolkit", "kubelet")
    ]
    missing = [
        "container_runtimes[*].version",
        *configurations,
        *(["cpu.frequency", "memory_errors", "cpu_throttled_ms"] if vm else []),
    ]
    frequency = {
        "driver": "acpi-cpufreq" if amd else "intel_pstate", "governors": ["performance"],
        "max_mhz": 3800, "limit_mhz": 3800,
    }  # fmt: skip
    node = made(
        "node",
        probe=probe(*absent(*missing)),
        cpu={
            "vendor": cpu,
            "model": "AMD EPYC 9654" if amd else "Intel(R) Xeon(R) Platinum 8480C",
            "sockets": numa,
            "frequency": None if vm else frequency,
        },
        clock_source="kvm-clock" if vm else "tsc",
        services=services(slurm=slurm),
        cpu_throttled_ms=None if vm else 0,
        cpu_state={"smt": "notimplemented" if vm else "on"},
        memory_errors=None if vm else {"controllers": numa * 8, "corrected": 0, "uncorrected": 0},
        containers=containers(),
        numa_nodes=numa,
        virtualization={"kind": "kvm" if vm else "none", "is_vm": vm, "is_container": False},
        slurm=slurm_of() if slurm else dict(NO_SLURM),
    )
    node["cpu"]["idle"]["driver"] = "haltpoll" if vm else "acpi_idle"
    return node


def module(name):
    return made("module", name=name)


def kernel_section(*, driver=True):
    names = ["nvidia", "nvidia_uvm", "nvidia_peermem"] if driver else []
    return made(
        "kernel",
        probe=probe(*absent("boot.one_shot_entry", "boot.why_not")),
        taints={"value": 4096 if driver else 0, "letters": ["O"] if driver else []},
        modules=[module(name) for name in names],
        out_of_tree=names,
        installed=[made("installed_kernel", nvidia_module=DRIVER if driver else "")],
        dkms=[made("dkms")] if driver else [],
    )


def package(name, version, *, held=False):
    return {
        "name": name, "version": version, "architecture": "amd64", "held": held,
        "state": "installed",
    }  # fmt: skip


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
    return made(
        "driver",
        probe=probe(*absent("mismatch_text")),
        loaded={"flavour": flavour},
        packages=driver_packages(fabric),
        device_nodes=device_nodes(),
    )


def fabric_section(switches=0):
    has = switches > 0
    return made(
        "fabric",
        probe=probe(
            *absent("last_error", "imex.version"),
            *absent(*(() if has else ("version", "package", "started_s"))),
        ),
        nvswitch_count=switches,
        version=DRIVER if has else None,
        package="nvidia-fabricmanager-580" if has else None,
        started_s=24 if has else None,
        **dict.fromkeys(("nvswitch_present", "installed", "running", "enabled"), has),
    )


def cuda_section():
    return made("cuda")


def setting(name, value):
    return made("setting", name=name, value=value)


def nccl_section(settings):
    return {
        "probe": probe(*absent("libraries[*].sha256")),
        "libraries": [made("nccl_library")],
        "net_plugins": [],
        "settings": [setting(name, value) for name, value in settings.items()],
        "effective": {"ssh": dict(settings)},
    }


def torch_section():
    return made("torch")


def packages_section(packages):
    held = [one["name"] for one in packages if one["held"]]
    return {
        "probe": probe(), "manager": "dpkg", "installed": packages, "holds": held, "pins": [],
        "half_configured": [], "unattended_upgrades": made("unattended_upgrades"),
        "pending": [],
    }  # fmt: skip


def faults_section():
    return made("faults")
