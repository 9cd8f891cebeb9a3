"""Nodes whose GPUs return the values that nvidia-smi printed on public machines; the rest of each
node is that of a healthy one."""

from __future__ import annotations

from pathlib import Path

import yaml
from healthy_nodes import gpu_node
from healthy_platforms import FABRIC, arm_node, on_kernel, with_nvlsm
from healthy_sections import gpu, interconnect_section, interface, network_section, node_section

MACHINES = yaml.safe_load(
    (
        Path(__file__).resolve().parents[1] / "fixtures" / "incidents" / "public_machines.yml"
    ).read_text()
)["machines"]
NO_FABRIC = {
    "state": "not_supported",
    "status": "success",
    "clique": None,
    "cluster": None,
    "health_mask": None,
}
PROCESS = {
    "pid": 811,
    "user": "anna",
    "command": "python3",
    "where": "host",
    "memory_mib": 900.0,
    "use": "compute",
}


def of_gpu(value, index):
    return value[index] if isinstance(value, list) else value


def device(row, index):
    """One GPU of a machine."""
    switched = row.get("nvlinks") and row["architecture"] in ("hopper", "blackwell")
    fabric = dict(FABRIC) if switched else dict(NO_FABRIC) if row.get("nvlinks") else None
    one = gpu(
        index,
        row["model"],
        row["architecture"],
        row["compute"],
        row["memory"],
        row["pcie"][1],
        row["power"],
        fabric,
    )
    now, card, width, wide = row["pcie"]
    one["pcie"].update(
        generation_now=now,
        generation_max=card,
        generation_card=card,
        width_now=width,
        width_max=wide,
    )
    one["pcie"]["replays"] = of_gpu(row.get("replays", 0), index)
    sm, sm_max, memory, memory_max = row["clocks"]
    busy = row.get("utilization", 0)
    one["clocks"] = {
        "sm_mhz": sm,
        "sm_max_mhz": sm_max,
        "sm_default_mhz": row.get("clock_default", sm_max),
        "memory_mhz": memory,
        "memory_max_mhz": memory_max,
        "throttle_reasons": [] if busy else ["gpu_idle"],
    }
    one.update(
        vbios=row["vbios"], bar1_total_mib=row["bar1"], memory_used_mib=row.get("used", 0.0),
        power_draw_w=of_gpu(row["draw"], index),
        temperature_c=of_gpu(row["temperature"], index), utilization_percent=busy,
        persistence=row.get("persistence", True),
        processes=[dict(PROCESS)] if row.get("processes") else [],
    )  # fmt: skip
    if row.get("ecc") is False:
        one["ecc"] = dict.fromkeys(one["ecc"])
        one["row_remap"] = None
    return one


def public_node(name):
    """The facts of a public machine."""
    row = MACHINES[name]
    devices = [device(row, index) for index in range(row["count"])]
    vm = row.get("passed_through", False)
    links = row.get("nvlinks", 0)
    state = "completed" if links else "none"
    pairs = "ok" if links else row.get("pairs", "chipset_not_supported")
    interconnect = interconnect_section(devices, links, read=pairs, topology="node" if links else "hostbridge", speed_mb_s=row.get("link_mb_s", 0),
        version="5.0", fabric_state=state, vm=vm)  # fmt: skip
    network = network_section(
        [interface("ens4", "10.0.0.2/24", "ena" if vm else "igc", None, default=True)], ["ens4"]
    )
    arm = row["model"] == "NVIDIA GB200"
    node = arm_node() if arm else node_section(vm=vm, numa=1, slurm=False)
    node["virtualization"] = {"kind": "kvm" if vm else "none", "is_vm": vm, "is_container": False}
    nothing = (
        ["fabric"]
        if not links
        else (
            ["fabric.health_mask", "fabric.clique", "fabric.cluster"]
            if row["architecture"] == "ampere"
            else []
        )
    )
    missing = [*nothing, *(["row_remap", "ecc"] if row.get("ecc") is False else [])]
    document = gpu_node(
        devices,
        interconnect,
        network,
        node=node,
        settings={},
        switches=4 if links == 18 and row["architecture"] == "hopper" else 0,
        missing=missing,
    )
    if row["model"] == "NVIDIA B200":
        bars = [one["bar1_total_mib"] for one in devices]
        with_nvlsm(document)
        for one, bar in zip(devices, bars, strict=True):
            one["bar1_total_mib"] = bar
    if arm:
        document = on_kernel(document, "6.8.0-1044-nvidia-64k")
        document["sections"]["driver"]["parameters"]["GrdmaPciTopoCheckOverride"] = "1"
        manager = document["sections"]["fabric_manager"]
        channel = {
            "path": "/dev/nvidia-caps-imex-channels/channel0",
            "mode": "0666",
            "open_to_all": True,
        }
        manager["imex"] = {
            "installed": True,
            "version": "580.178.04",
            "running": True,
            "channels": [channel],
        }
        manager["probe"]["unread"] = [
            one for one in manager["probe"]["unread"] if one["field"] != "imex.version"
        ]
    return document
