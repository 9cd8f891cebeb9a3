"""Processors and memory that differ from the hardware as built: CPUs offline or isolated, NUMA
nodes without memory, memory errors."""

from __future__ import annotations

from ...base.parse.values import parse_cpu_list
from .host_state import numbered
from .reading import integer_if_there, line_if_there, names_if_there, read_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

CPU = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
CONTROLLERS = "/sys/devices/system/edac/mc"
THROTTLED_CPUS = 8  # a sample of hundreds of CPUs, evenly spread, so that each socket has one


def read_cpu_state(root: Root) -> dict[str, Any]:
    """{offline, isolated, smt}: CPUs that are offline, CPUs that the scheduler does not use, and
    hyper-threading. Raises OSError and ValueError."""
    present = set(parse_cpu_list(read_line(root, CPU + "/present")))
    online = set(parse_cpu_list(read_line(root, CPU + "/online")))
    return {
        "offline": len(present - online),
        "isolated": len(parse_cpu_list(line_if_there(root, CPU + "/isolated") or "")),
        "smt": line_if_there(root, CPU + "/smt/control") or "notimplemented",
    }


def read_numa_without_memory(root: Root) -> list[str]:
    """["node1"]: NUMA nodes that have CPUs and no memory. Raises OSError and ValueError."""
    with_cpu = parse_cpu_list(read_line(root, NODES + "/has_cpu"))
    with_memory = set(parse_cpu_list(read_line(root, NODES + "/has_memory")))
    return [f"node{number}" for number in with_cpu if number not in with_memory]


def read_throttled_ms(root: Root) -> int:
    """Milliseconds since boot for which the most throttled processor was slowed down by its
    temperature. Raises OSError where the kernel does not count it."""
    cpus = numbered(root.names(CPU), "cpu")
    spread = cpus[:: max(1, len(cpus) // THROTTLED_CPUS)]
    times = [
        integer_if_there(root, f"{CPU}/{name}/thermal_throttle/package_throttle_total_time_ms")
        for name in spread
    ]
    known = [value for value in times if value is not None]
    if not known:
        raise FileNotFoundError(
            2,
            "the kernel does not count how long it slows processors down",
            f"{CPU}/cpu0/thermal_throttle",
        )
    return max(known)


def read_memory_errors(root: Root) -> dict[str, int]:
    """{controllers, corrected, uncorrected}: errors of the host's memory since boot, as EDAC counts
    them. Raises OSError where no driver of EDAC is loaded."""
    folders = [
        f"{CONTROLLERS}/{name}" for name in numbered(names_if_there(root, CONTROLLERS), "mc")
    ]
    if not folders:
        raise FileNotFoundError(2, "no memory controller reports errors", CONTROLLERS)
    corrected, uncorrected = (
        sum(integer_if_there(root, f"{folder}/{name}") or 0 for folder in folders)
        for name in ("ce_count", "ue_count")
    )
    return {"controllers": len(folders), "corrected": corrected, "uncorrected": uncorrected}
