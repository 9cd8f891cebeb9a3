"""Services that hold GPUs, the order in which they are stopped and started, and what exchanges the kernel modules. Values in, values out.

The order is the one of NVIDIA's fabric manager guide (https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/): whoever asks the driver is stopped
first, fabric manager last; then all GPUs are reset; then fabric manager comes before everything else. A fabric manager that is started again without a reset
breaks NVLS for every later job (https://github.com/NVIDIA/nccl/issues/1488).
"""

from __future__ import annotations

FABRIC_MANAGER = ("nvidia-fabricmanager.service", "nvidia-fabric-manager.service")
# In the order in which they are stopped.
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
) + FABRIC_MANAGER
DISPLAY = "display-manager.service"
DISPLAY_COMMANDS = ("Xorg", "Xwayland", "X", "gnome-shell", "kwin_wayland", "kwin_x11", "mutter", "sddm", "gdm-x-session", "gdm-wayland-ses")
# What may be unloaded with the driver, and is loaded again where it was loaded.
OWN_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nv_peer_mem", "gdrdrv", "nvidia_fs", "nvidia_vgpu_vfio")
RESET = "nvidia-smi -r"
LOG = "/var/lib/unhang/gpu-reload.log"
STATE = "/var/lib/unhang/gpu_users.json"


def service_of(cgroup, command, active):
    """The known service that a process belongs to, or None. cgroup: /proc/<pid>/cgroup; active: units that run."""
    for line in cgroup.splitlines():
        for part in line.split(":", 2)[-1].split("/"):
            if part in SERVICES:
                return part
    # A display server runs in its session's scope, not in the unit that started it.
    return DISPLAY if command in DISPLAY_COMMANDS and DISPLAY in active else None


def stop_order(units):
    """The known ones among `units` in the order in which they are stopped."""
    return [unit for unit in SERVICES if unit in units]


def start_order(units):
    """The other way round."""
    return stop_order(units)[::-1]


def parse_modules(text):
    """{name: (references, [modules that need it])} of /proc/modules."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4:
            found[fields[0]] = (int(fields[2]) if fields[2].lstrip("-").isdigit() else 0, [name for name in fields[3].split(",") if name not in ("", "-")])
    return found


def unload_order(modules):
    """Names of nvidia and of all modules that need it, each before what it needs; [] when nvidia is not loaded."""
    order = []

    def add(name):
        for above in modules.get(name, (0, []))[1]:
            add(above)
        if name not in order and name in modules:
            order.append(name)

    add("nvidia")
    return order


def modules_held(modules):
    """[{name, holds}] of modules of this driver that more than other modules hold: by a process, or by the kernel itself."""
    rows = [{"name": name, "holds": modules[name][0] - len(modules[name][1])} for name in unload_order(modules)]
    return [row for row in rows if row["holds"] > 0]


def foreign_modules(modules):
    """Modules that need the driver and that nobody here knows how to load again."""
    return [name for name in unload_order(modules) if name not in OWN_MODULES]


def reload_script(services, unload, nvswitch):
    """Lines of a shell script that exchanges the modules. services: active units; unload: of unload_order; nvswitch: GPUs are reset before fabric manager.

    Whatever fails, the modules are loaded and the services started again before the script ends with the number of the failure.
    """
    modules = [name for name in unload if name != "nvidia"][::-1]
    units = stop_order(services)
    fabric = [unit for unit in units if unit in FABRIC_MANAGER]
    lines = ["systemctl stop " + unit for unit in units]
    lines += ["rmmod " + name for name in unload]
    lines += ["modprobe " + name for name in ["nvidia", *modules]]
    if nvswitch:
        lines.append(RESET)
    lines += ["systemctl start " + unit for unit in fabric]
    return lines + ["systemctl start " + unit for unit in start_order(units) if unit not in fabric]


def reset_script(services):
    """Lines of a shell script that resets all GPUs and starts fabric manager, in the documented order. services: active units."""
    units = stop_order(services)
    others = [unit for unit in units if unit not in FABRIC_MANAGER]
    lines = ["systemctl stop " + unit for unit in others] + ["systemctl stop " + FABRIC_MANAGER[0], RESET, "systemctl start " + FABRIC_MANAGER[0]]
    return lines + ["systemctl start " + unit for unit in start_order(others)]


def _rescue(lines):
    """What brings everything up again. A fabric manager that was stopped is started after a reset alone: jobs that fail at once beat jobs that hang."""
    found = []
    for line in lines:
        unit = line.split()[-1]
        if line.startswith("systemctl start ") and unit in FABRIC_MANAGER and RESET in lines:
            found.append("systemctl is-active --quiet {} || {{ {} && {}; }}".format(unit, RESET, line))
        elif line.startswith(("modprobe ", "systemctl start ")):
            found.append(line)
    return found


def script_text(lines, log=LOG, state=STATE):
    """A script for sh of reload_script's lines: each is logged before it runs, and after a failure everything is brought up again as far as it goes."""
    rescue = _rescue(lines)
    head = ["#!/bin/sh", "# Exchanges the GPU driver's modules. Written and removed by unhang.", "exec >{} 2>&1".format(log), "rescue() {"]
    tail = ["}", 'step() { echo "$*"; "$@" || { code=$?; echo "failed with $code: $*"; rescue; exit "$code"; }; }']
    return "\n".join(head + ["  {} || :".format(line) for line in rescue] + tail + ["step " + line for line in lines] + ["rm -f " + state]) + "\n"
