"""Systemd services that a GPU node needs or that disturb jobs: installed, enabled, running, older
than their own file. Part of section `node`. Reads only folders and links; sections/units.py queries
systemd. No file keeps a service's output or its number of restarts."""

from __future__ import annotations

from .daemons import CGROUPS
from .reading import line_if_there, link_name, names_if_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

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
UNIT_FOLDERS = (
    ETC,
    RUN,
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
LINK_FOLDERS = (ETC, RUN, "/run/systemd/generator.late")
SUFFIX = ".service"
STARTERS = (".socket", ".timer")
DELETED = " (deleted)"


def read_services(root: Root) -> list[dict[str, Any]]:
    """[{name, state, running, replaced}] of the services in UNITS that are installed or running,
    sorted by name. Raises OSError where no running service can be seen."""
    running = running_units(root)
    files = {folder: known(names_if_there(root, folder)) for folder in unit_folders(root)}
    masked = {
        name
        for folder in (ETC, RUN)
        for name in files[folder]
        if leads_nowhere(root, folder + "/" + name + SUFFIX)
    }
    installed = {name for names in files.values() for name in names}
    links = [name for folder in LINK_FOLDERS for name in linked_units(root, folder)]
    linked, waiting = (
        set(known(links)),
        {name for suffix in STARTERS for name in known(links, suffix)},
    )
    rows = []
    for name in sorted(installed | set(running)):
        rows.append(
            {
                "name": name,
                "state": "masked"
                if name in masked
                else "enabled"
                if name in linked
                else "on_demand"
                if name in waiting
                else "disabled",
                "running": name in running,
                "replaced": name in running
                and runs_a_deleted_file(root, running[name] + "/" + name + SUFFIX),
            }
        )
    return rows


def unit_folders(root: Root) -> tuple[str, ...]:
    """Folders of unit files; /lib is a second one where it is no link to /usr/lib."""
    return UNIT_FOLDERS if link_name(root, "/lib") else (*UNIT_FOLDERS, "/lib/systemd/system")


def running_units(root: Root) -> dict[str, str]:
    """{name: folder of its control group}: systemd removes the group when the service ends. Raises
    OSError."""
    found, seen = {}, False
    for folder in CGROUPS:
        names = names_if_there(root, folder)
        seen = seen or bool(names)
        found.update(dict.fromkeys(known(names), folder))
    if not seen:
        raise FileNotFoundError(
            2, "the control groups of systemd's services cannot be seen", CGROUPS[0]
        )
    return found


def known(names: list[str], suffix: str = SUFFIX) -> list[str]:
    """Names of UNITS among names of unit files or control groups, without their suffix."""
    return [
        name[: -len(suffix)]
        for name in names
        if name.endswith(suffix) and name[: -len(suffix)] in UNITS
    ]


def linked_units(root: Root, folder: str) -> list[str]:
    """File names of the units that targets start: the links in *.wants and *.requires."""
    starters = [
        name for name in names_if_there(root, folder) if name.endswith((".wants", ".requires"))
    ]
    return [unit for name in starters for unit in names_if_there(root, folder + "/" + name)]


def leads_nowhere(root: Root, path: str) -> bool:
    """True when a unit's file is a link to /dev/null, which is how systemd masks it."""
    try:
        return root.link(path) == "/dev/null"
    except (OSError, ValueError):
        return False


def runs_a_deleted_file(root: Root, group: str) -> bool:
    """True when the first process of a control group was started from a file that was replaced or
    removed since."""
    pid = (line_if_there(root, group + "/cgroup.procs") or "").split(" ")[0]
    if not pid.isdigit():
        return False
    try:
        return root.link(f"/proc/{pid}/exe").endswith(DELETED)
    except (OSError, ValueError):
        return False
