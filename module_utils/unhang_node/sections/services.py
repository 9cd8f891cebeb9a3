"""Systemd services that a GPU node depends on, or that disturb jobs: installed, switched on, running, and older than its own file. Part of section `node`.

Folders and links alone: systemd is not asked. What a service printed, how often it was started again and why it failed stand in no file that outlives it.
"""

from __future__ import annotations

from .daemons import CGROUPS
from .reading import line_if_there, names_if_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..root import Root

UNITS = frozenset(
    [
        "nvidia-persistenced",
        "nvidia-fabricmanager",
        "nvidia-imex",
        "nvidia-dcgm",
        "dcgm",
        "nvidia-dcgm-exporter",
        "dcgm-exporter",
        "nvidia-mps",
        "nvidia-powerd",
        "nvidia-gridd",
        "nvidia-vgpud",
        "nvidia-vgpu-mgr",
        "nvidia-cdi-refresh",
        "nv_peer_mem",
        "nvlsm",
        "opensm",
        "opensmd",
        "openibd",
        "rdma-ndd",
        "mst",
        "slurmd",
        "slurmctld",
        "munge",
        "docker",
        "containerd",
        "crio",
        "kubelet",
        "k3s-agent",
        "rke2-agent",
        "chrony",
        "chronyd",
        "systemd-timesyncd",
        "ntp",
        "ntpd",
        "ntpsec",
        "openntpd",
        "ptp4l",
        "phc2sys",
        "irqbalance",
        "tuned",
        "power-profiles-daemon",
        "thermald",
        "auto-cpufreq",
        "systemd-oomd",
        "earlyoom",
        "nohang",
        "oomd",
        "numad",
        "ksm",
        "ksmtuned",
        "firewalld",
        "systemd-resolved",
        "systemd-networkd",
        "NetworkManager",
        "nscd",
        "sssd",
        "nslcd",
        "autofs",
        "gdm",
        "gdm3",
        "lightdm",
        "sddm",
        "beegfs-client",
        "weka-agent",
        "lnet",
        "gpfs",
        "ssh",
        "sshd",
        "unattended-upgrades",
        "packagekit",
        "rasdaemon",
        "mcelog",
        "google-guest-agent",
        "walinuxagent",
    ]
)
ETC, RUN = "/etc/systemd/system", "/run/systemd/system"
UNIT_FOLDERS = (ETC, RUN, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/generator.late")
LINK_FOLDERS = (ETC, RUN, "/run/systemd/generator.late")
SUFFIX = ".service"
DELETED = " (deleted)"


def read_services(root: Root) -> list[dict[str, Any]]:
    """[{name, state, running, replaced}] of the services of UNITS that are installed or run, by name. Raises OSError where no running service can be seen."""
    running = running_units(root)
    installed = {name for folder in UNIT_FOLDERS for name in units_in(root, folder)}
    linked = {name for folder in LINK_FOLDERS for name in linked_units(root, folder)}
    rows = []
    for name in sorted(installed | set(running)):
        rows.append(
            {
                "name": name,
                "state": "masked" if is_masked(root, name) else "enabled" if name in linked else "disabled",
                "running": name in running,
                "replaced": name in running and runs_a_deleted_file(root, running[name] + "/" + name + SUFFIX),
            }
        )
    return rows


def running_units(root: Root) -> dict[str, str]:
    """{name: folder of control groups that holds it}: systemd removes the group of a service that ended. Raises OSError."""
    found, seen = {}, False
    for folder in CGROUPS:
        names = names_if_there(root, folder)
        seen = seen or bool(names)
        found.update(dict.fromkeys(known(names), folder))
    if not seen:
        raise FileNotFoundError(2, "the control groups of systemd's services cannot be seen", CGROUPS[0])
    return found


def known(names: list[str]) -> list[str]:
    """Names of UNITS among names of unit files or control groups, without their suffix."""
    return [name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX) and name[: -len(SUFFIX)] in UNITS]


def units_in(root: Root, folder: str) -> list[str]:
    """Services of UNITS whose files lie in a folder."""
    return known(names_if_there(root, folder))


def linked_units(root: Root, folder: str) -> list[str]:
    """Services of UNITS that a target, a socket or a timer starts: those linked in *.wants and *.requires."""
    starters = [name for name in names_if_there(root, folder) if name.endswith((".wants", ".requires"))]
    return [unit for name in starters for unit in units_in(root, folder + "/" + name)]


def is_masked(root: Root, name: str) -> bool:
    """True when the unit's file is a link to /dev/null."""
    for folder in (ETC, RUN):
        try:
            if root.link(folder + "/" + name + SUFFIX) == "/dev/null":
                return True
        except (OSError, ValueError):
            continue
    return False


def runs_a_deleted_file(root: Root, group: str) -> bool:
    """True when the first process of a control group was started from a file that was replaced or removed since."""
    pid = (line_if_there(root, group + "/cgroup.procs") or "").split(" ")[0]
    if not pid.isdigit():
        return False
    try:
        return root.link(f"/proc/{pid}/exe").endswith(DELETED)
    except (OSError, ValueError):
        return False
