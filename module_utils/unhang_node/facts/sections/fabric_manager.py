"""Section fabric_manager: NVSwitches, the daemon that programs them, and IMEX."""

from __future__ import annotations

import stat

from ...base.parse.nvidia_driver import upstream_version
from ...base.parse.values import clean
from ...base.untrusted_files import names_or_none, read_tail
from .daemons import find_comm, is_running, started_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.parse.dpkg import Database, Package
    from ...base.root import Root
    from ...base.section import Unread

BRIDGE_CLASS = "bc06sc80"  # PCI class "bridge, other", which NVSwitches have
NVIDIA_VENDOR = "pci:v000010DE"
BINARY = "/usr/bin/nv-fabricmanager"
LOG = "/var/log/fabricmanager.log"
LOG_TAIL_BYTES = 256 * 1024
UNIT = "nvidia-fabricmanager.service"
WANTED_BY = (
    "/etc/systemd/system/multi-user.target.wants",
    "/etc/systemd/system/graphical.target.wants",
)
PACKAGES = ("nvidia-fabricmanager", "nvidia-fabric-manager", "cuda-drivers-fabricmanager")
IMEX_BINARY = "/usr/bin/nvidia-imex"
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"
PID_FILE = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"


def read_fabric_manager(root: Root, unread: Unread, database: Database | None) -> dict[str, Any]:
    """Section fabric_manager. database: of package_database, or None."""
    switches = unread.attempt("nvswitch_count", count_switches, root)
    if switches is None:
        unread.add("nvswitch_present", "error", "the PCI devices could not be listed")
    package = _package(database, PACKAGES)
    installed = _installed(root, unread, "installed", BINARY, package)
    version = upstream_version(package.version) if package else None
    if installed and version is None:
        unread.add(
            "version", "absent", f"{BINARY} is not from a package that the package database knows"
        )
    running = _is_running(root, "nv-fabricmanager", UNIT, installed or switches, PID_FILE)
    # the GPU operator runs it in a container, where systemd has no unit of it
    if switches and running is False:
        running = bool(find_comm(root, "nv-fabricmanager"))
    return {
        "nvswitch_present": None if switches is None else switches > 0,
        "nvswitch_count": switches,
        "installed": installed,
        "version": version,
        "package": package.name if package else None,
        "running": running,
        "started_s": _started(root, unread) if running else None,
        "enabled": any(_is_link(root, folder + "/" + UNIT) for folder in WANTED_BY),
        "last_error": read_last_error(root, unread) if installed else None,
        "imex": read_imex(root, unread, database),
    }


def count_switches(root: Root) -> int:
    """Number of NVSwitches on the PCI bus or in the list of their driver, whichever is larger.
    Raises OSError."""
    addresses = nvidia_addresses(root)
    on_bus = 0
    for address in addresses:
        alias = root.line(f"/sys/bus/pci/devices/{address}/modalias")
        on_bus += alias.startswith(NVIDIA_VENDOR) and BRIDGE_CLASS in alias
    return max(on_bus, len(names_or_none(root, "/proc/driver/nvidia-nvswitch/devices")))


def nvidia_addresses(root: Root) -> list[str]:
    """PCI addresses of devices that may be NVIDIA's: /proc/bus/pci/devices has the vendors in one
    read; without it, all."""
    names = names_or_none(root, "/sys/bus/pci/devices")
    try:
        listing = root.text("/proc/bus/pci/devices")
    except OSError:
        return names
    slots = set()
    for line in listing.splitlines():
        fields = line.split("\t")
        if len(fields) > 1 and fields[1].lower().startswith("10de"):
            slots.add(fields[0].lower())
    # That file has no PCI domain, and an address of another domain may have the same bus and slot:
    # so this only narrows the search.
    return [name for name in names if _slot(name) in slots]


def _slot(address: str) -> str:
    """Bus and device-function of 0000:3b:00.0 as /proc/bus/pci/devices writes them: 3b00."""
    try:
        _domain, bus, rest = address.split(":")
        device, function = rest.split(".")
        return f"{bus.lower()}{(int(device, 16) << 3) | int(function, 16):02x}"
    except ValueError:
        return ""


def read_last_error(root: Root, unread: Unread) -> str | None:
    """The last line of the daemon's log that reports an error, or None."""
    try:
        content = read_tail(root, LOG, LOG_TAIL_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        unread.add("last_error", "absent", "no " + LOG)
        return None
    except (OSError, ValueError) as problem:
        unread.of_error("last_error", problem)
        return None
    return last_error_of(content)


def last_error_of(text: str) -> str | None:
    """The last line marked [ERROR], [CRITICAL] or [FATAL] in a fabric manager's log, or None."""
    for line in reversed(text.splitlines()):
        if any(mark in line for mark in ("[ERROR]", "[CRITICAL]", "[FATAL]")):
            return clean(line, 1024)
    return None


def read_imex(root: Root, unread: Unread, database: Database | None) -> dict[str, Any]:
    """{installed, version, running} of the daemon that shares memory between nodes of one NVLink
    domain."""
    package = _package(database, ("nvidia-imex",))
    installed = _installed(root, unread, "imex.installed", IMEX_BINARY, package)
    return {
        "installed": installed,
        "version": upstream_version(package.version) if package else None,
        "running": _is_running(
            root,
            "nvidia-imex",
            "nvidia-imex.service",
            installed,
            "/run/nvidia-imex/nvidia-imex.pid",
        ),
        "channels": unread.attempt("imex.channels", read_channels, root),
    }


def read_channels(root: Root) -> list[dict[str, Any]]:
    """[{path, mode, open_to_all}] of the channels by which jobs share memory between nodes; []
    without any. Raises OSError."""
    rows = []
    for name in names_or_none(root, IMEX_CHANNELS)[:64]:
        mode = root.stat(IMEX_CHANNELS + "/" + name).st_mode
        rows.append(
            {
                "path": IMEX_CHANNELS + "/" + name,
                "mode": f"{stat.S_IMODE(mode):04o}",
                "open_to_all": bool(mode & stat.S_IWOTH),
            }
        )
    return rows


def _started(root: Root, unread: Unread) -> int | None:
    """started_s, with the reason when it cannot be found."""
    seconds = unread.attempt(
        "started_s", started_s, root, "nv-fabricmanager", UNIT, (PID_FILE, "/var" + PID_FILE)
    )
    if seconds is None:
        unread.add("started_s", "absent", "the process of the running daemon was not found")
    return seconds


def _is_running(root: Root, comm: str, unit: str, expected: object, pid_file: str) -> bool | None:
    """False, without a search, if no such program is installed: searching all processes is the most
    expensive step."""
    return is_running(root, comm, unit, (pid_file, "/var" + pid_file)) if expected else False


def _installed(
    root: Root, unread: Unread, field: str, binary: str, package: Package | None
) -> bool | None:
    if package:
        return True
    return unread.attempt(field, root.exists, binary)


def _package(database: Database | None, prefixes: tuple[str, ...]) -> Package | None:
    """The package that contains the daemon: not its headers, and no meta package if the daemon's
    own package is installed."""
    found = [
        package
        for package in (database.named(prefixes) if database else [])
        if not package.name.endswith(("-dev", "-devel"))
    ]
    found.sort(
        key=lambda package: next(
            index for index, prefix in enumerate(prefixes) if package.name.startswith(prefix)
        )
    )
    return found[0] if found else None


def _is_link(root: Root, path: str) -> bool:
    try:
        root.link(path)
    except OSError:
        return False
    return True
