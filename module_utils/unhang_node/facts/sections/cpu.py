"""CPUs, packages and NUMA nodes, with few reads: /proc/cpuinfo of 256 CPUs has half a megabyte, and
its first block is enough."""

from __future__ import annotations

from ...base.parse.values import clean_or_none, parse_cpu_list
from .host_state import numbered, read_frequency, read_idle
from .reading import integer_if_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

CPUINFO_BYTES = 16384  # one block is 1 to 3 kB
VENDOR_KEYS = ("vendor_id", "CPU implementer")
MODEL_KEYS = ("model name", "Model", "cpu model", "cpu")


def read_cpuinfo(root: Root) -> str:
    """The beginning of /proc/cpuinfo, at least its first block. Raises OSError."""
    return root.text("/proc/cpuinfo", CPUINFO_BYTES)


def read_cpu(root: Root, unread: Unread, cpuinfo: str | None) -> dict[str, Any]:
    """{vendor, model, sockets, logical_cpus, frequency, idle}. cpuinfo: the first block of
    /proc/cpuinfo or None."""
    values = parse_cpuinfo_block(cpuinfo or "")
    online = unread.attempt("cpu.logical_cpus", read_online_cpus, root)
    return {
        "vendor": first_value(values, VENDOR_KEYS),
        "model": first_value(values, MODEL_KEYS),
        "sockets": unread.attempt("cpu.sockets", count_sockets, root, online) if online else None,
        "logical_cpus": len(online) if online else None,
        "frequency": unread.attempt("cpu.frequency", read_frequency, root),
        "idle": unread.attempt("cpu.idle", read_idle, root),
    }


def parse_cpuinfo_block(text: str) -> dict[str, str]:
    """{key: value} of the first block of /proc/cpuinfo."""
    values: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), value.strip())
    return values


def first_value(values: dict[str, str], keys: Iterable[str]) -> str | None:
    """The first of these keys that has a value, or None."""
    for key in keys:
        if values.get(key):
            return clean_or_none(values[key], 256)
    return None


def read_online_cpus(root: Root) -> list[int]:
    """[CPU number] that are on line. Raises OSError and ValueError."""
    return parse_cpu_list(root.text("/sys/devices/system/cpu/online", 65536))


def count_sockets(root: Root, cpus: list[int]) -> int:
    """Number of CPU packages. cpus: [CPU number] that are on line. Reads one list per package, not
    one file per CPU. Raises OSError and ValueError."""
    remaining, packages = set(cpus), set()
    while remaining:
        cpu = min(remaining)
        folder = f"/sys/devices/system/cpu/cpu{cpu}"
        package = integer_if_there(root, folder + "/topology/physical_package_id")
        if package is None:
            raise FileNotFoundError(
                2, "the CPU does not name its package", folder + "/topology/physical_package_id"
            )
        packages.add(package)
        members = read_members(root, folder + "/topology/package_cpus_list") or read_members(
            root, folder + "/topology/core_siblings_list"
        )
        remaining -= members or {cpu}
        remaining.discard(cpu)
    return len(packages)


def read_members(root: Root, path: str) -> set[int] | None:
    """Set of the CPUs that a sysfs list names, or None."""
    try:
        return set(parse_cpu_list(root.text(path, 65536)))
    except (OSError, ValueError):
        return None


def count_numa_nodes(root: Root) -> int:
    """Number of NUMA nodes. Raises OSError."""
    return len(numbered(root.names("/sys/devices/system/node"), "node"))
