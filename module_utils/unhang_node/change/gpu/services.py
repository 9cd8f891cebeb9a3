"""Services that hold GPUs, the order in which they stop and start, and the kernel modules that need
the driver. Values in, values out.

The order follows NVIDIA's fabric manager guide
(https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/): services that query the
driver stop first, fabric manager stops last.
"""

from __future__ import annotations

import re
from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Tuple

Modules = Mapping[str, Tuple[int, List[str]]]
"""{kernel module: (references, [modules that need it])}."""
FABRIC_MANAGER = ("nvidia-fabricmanager.service", "nvidia-fabric-manager.service")
# In the order in which they stop.
SERVICES = (
    "nvidia-dcgm-exporter.service",
    "dcgm-exporter.service",
    "nvidia_gpu_exporter.service",
    "nvidia-gpu-exporter.service",
    "nvsm.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "nvidia-mps.service",
    "nvidia-cuda-mps.service",
    "nvidia-cuda-mps-control.service",
    "display-manager.service",
    "nvidia-powerd.service",
    "nvidia-persistenced.service",
    "nvidia-imex.service",
    *FABRIC_MANAGER,
)
_SYSTEM_UNIT = re.compile(
    r"^(?:0:|\d+:name=systemd):.*/system\.slice/(?:[^/\n]+\.slice/)*([^/\n]+\.service)", re.M
)
DISPLAY = "display-manager.service"
DISPLAY_COMMANDS = (
    "Xorg",
    "Xwayland",
    "X",
    "gnome-shell",
    "kwin_wayland",
    "kwin_x11",
    "mutter",
    "sddm",
    "gdm-x-session",
    "gdm-wayland-ses",
)
# Modules that may be unloaded with the driver; those that were loaded are loaded again.
OWN_MODULES = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_modeset",
    "nvidia_drm",
    "nvidia_peermem",
    "nv_peer_mem",
    "gdrdrv",
    "nvidia_fs",
    "nvidia_vgpu_vfio",
)


def unit_of(cgroup: str) -> Optional[str]:
    """The system's service that a process belongs to. cgroup: /proc/<pid>/cgroup."""
    found = _SYSTEM_UNIT.search(cgroup)
    return found and found[1]


def service_of(unit: Optional[str], command: str, active: Collection[str]) -> Optional[str]:
    """The known service of a process. unit: of unit_of; active: units that run."""
    if unit in SERVICES:
        return unit
    # A display server runs in its session's scope, not in the unit that started it.
    return DISPLAY if command in DISPLAY_COMMANDS and DISPLAY in active else None


def stop_order(units: Collection[str]) -> List[str]:
    """The known ones among `units` in the order in which they stop."""
    return [unit for unit in SERVICES if unit in units]


def start_order(units: Collection[str]) -> List[str]:
    """The known ones among `units` in the order in which they start: the reverse of stop_order."""
    return stop_order(units)[::-1]


def parse_services(output: str) -> List[Dict[str, Any]]:
    """[{unit, active, enabled}] from `systemctl show` of SERVICES, which prints one stanza for
    each, in this order; a unit with an alias is listed once."""
    rows, seen = [], set()
    for number, stanza in enumerate(output.split("\n\n")[: len(SERVICES)]):
        values = dict(line.split("=", 1) for line in stanza.splitlines() if "=" in line)
        if values.get("LoadState") != "loaded" or values.get("Id") in seen:
            continue
        seen.add(values.get("Id"))
        active = values.get("ActiveState") in ("active", "activating", "reloading")
        rows.append(
            {
                "unit": SERVICES[number],
                "active": active,
                "enabled": values.get("UnitFileState", "").startswith("enabled"),
            }
        )
    return rows


def parse_modules(text: str) -> Dict[str, Tuple[int, List[str]]]:
    """{name: (references, [modules that need it])} from /proc/modules."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4:
            references = int(fields[2]) if fields[2].lstrip("-").isdigit() else 0
            found[fields[0]] = (
                references,
                [name for name in fields[3].split(",") if name not in ("", "-")],
            )
    return found


def unload_order(modules: Modules) -> List[str]:
    """nvidia and all modules that depend on it, each before the modules that it depends on; [] if
    nvidia is not loaded."""
    order: List[str] = []

    def add(name: str) -> None:
        for above in modules[name][1] if name in modules else ():
            add(above)
        if name not in order and name in modules:
            order.append(name)

    add("nvidia")
    return order


def modules_held(modules: Modules) -> List[Dict[str, Any]]:
    """[{name, holds}] of the driver's modules with references that no module explains: a process or
    the kernel itself holds them."""
    rows: Iterable[Dict[str, Any]] = (
        {"name": name, "holds": modules[name][0] - len(modules[name][1])}
        for name in unload_order(modules)
    )
    return [row for row in rows if row["holds"] > 0]


def foreign_modules(modules: Modules) -> List[str]:
    """Modules that depend on the driver and that unhang cannot load again."""
    return [name for name in unload_order(modules) if name not in OWN_MODULES]
