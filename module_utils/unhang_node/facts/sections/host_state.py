"""Settings of the host: CPU frequency and idle states, clock source, time daemon, control groups,
its own name, huge pages. Reads few files."""

from __future__ import annotations

from ..parse.host_state import parse_choice, parse_host_addresses, parse_timex
from .daemons import CGROUPS
from .reading import (
    integer_if_there,
    line_if_there,
    names_if_there,
    read_line,
    there,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

CPU = "/sys/devices/system/cpu"
POLICIES = 16  # a sample of hundreds of CPUs, evenly spread, because each costs one file
CLOCK = "/sys/devices/system/clocksource/clocksource0"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"
TIME_DAEMONS = (
    ("chronyd", ("chrony.service", "chronyd.service")),
    ("systemd-timesyncd", ("systemd-timesyncd.service",)),
    ("ntpd", ("ntp.service", "ntpd.service", "ntpsec.service", "openntpd.service")),
    ("ptp4l", ("ptp4l.service", "phc2sys.service")),
)
TIMEX_BYTES = 512  # struct timex has 208
SYNCHRONIZED = "/run/systemd/timesync/synchronized"


def numbered(names: Iterable[str], word: str) -> list[str]:
    """The names that are the word and a number, in the order of their numbers."""
    size = len(word)
    found = (name for name in names if name[:size] == word and name[size:].isdigit())
    return sorted(found, key=lambda name: int(name[size:]))


def read_frequency(root: Root) -> dict[str, Any]:
    """{driver, governors, max_mhz, limit_mhz}: how CPU frequencies are chosen, over up to 16 CPUs
    of the whole node. Raises OSError.

    max_mhz: what the hardware can do; limit_mhz: the lowest limit that software set on one of them.
    """
    policies = numbered(root.names(CPU + "/cpufreq"), "policy")
    if not policies:
        raise FileNotFoundError(2, "the kernel scales no frequencies here", CPU + "/cpufreq")
    spread = policies[:: -(-len(policies) // POLICIES)]
    governors = (line_if_there(root, f"{CPU}/cpufreq/{name}/scaling_governor") for name in spread)
    limits = [
        (
            integer_if_there(root, f"{CPU}/cpufreq/{name}/cpuinfo_max_freq"),
            integer_if_there(root, f"{CPU}/cpufreq/{name}/scaling_max_freq"),
        )
        for name in spread
    ]
    most_khz, limit_khz = min(
        ((most, limit) for most, limit in limits if most and limit),
        key=lambda pair: pair[1] / pair[0],
        default=(None, None),
    )
    return {
        "driver": line_if_there(root, f"{CPU}/cpufreq/{policies[0]}/scaling_driver"),
        "governors": sorted({name for name in governors if name}),
        "max_mhz": most_khz and most_khz // 1000,
        "limit_mhz": limit_khz and limit_khz // 1000,
    }


def read_idle(root: Root) -> dict[str, Any]:
    """{driver, governor, deepest_state, deepest_latency_us}: the first CPU's deepest enabled idle
    state. Raises OSError."""
    driver = read_line(root, CPU + "/cpuidle/current_driver", 64)
    states = numbered(names_if_there(root, CPU + "/cpu0/cpuidle"), "state")
    folder = next(
        (
            f"{CPU}/cpu0/cpuidle/{name}"
            for name in reversed(states)
            if integer_if_there(root, f"{CPU}/cpu0/cpuidle/{name}/disable") == 0
        ),
        None,
    )
    return {
        "driver": driver,
        "governor": line_if_there(root, CPU + "/cpuidle/current_governor_ro")
        or line_if_there(root, CPU + "/cpuidle/current_governor"),
        "deepest_state": line_if_there(root, folder + "/name") if folder else None,
        "deepest_latency_us": integer_if_there(root, folder + "/latency") if folder else None,
    }


def read_clock_source(root: Root) -> str:
    """The kernel's clock source: tsc, hpet, kvm-clock …. Raises OSError."""
    return read_line(root, CLOCK + "/current_clocksource", 64)


def read_time(root: Root, unread: Unread) -> dict[str, Any]:
    """{daemon, synchronized, kernel_in_step, max_error_ms}: the daemon that synchronizes the node's
    clock ("none" without one), and the kernel's state of the clock. Raises OSError where systemd's
    services cannot be seen."""
    slices = service_folders(root)
    daemon = next(
        (
            name
            for name, units in TIME_DAEMONS
            for unit in units
            for folder in slices
            if there(root, folder + "/" + unit)
        ),
        "none",
    )
    clock = unread.attempt("time.kernel_in_step", ask_clock, root) or {
        "kernel_in_step": None,
        "max_error_ms": None,
    }
    return {
        "daemon": daemon,
        "synchronized": root.exists(SYNCHRONIZED) if daemon == "systemd-timesyncd" else None,
        **clock,
    }


def ask_clock(root: Root) -> dict[str, Any]:
    """{kernel_in_step, max_error_ms}: whether a daemon has synchronized the kernel's clock
    recently. Raises Absent for a recorded tree, OSError.

    One call of adjtimex that changes nothing (modes 0). The kernel itself clears the flag if no
    daemon has synchronized the clock for so long that it may be 16 s wrong.
    """
    if not root.is_live or root.mounts:
        raise FileNotFoundError(2, "only the running kernel says it", "adjtimex")
    import ctypes  # the import takes 1.3 ms, and no other function of this source needs it

    answer = ctypes.create_string_buffer(TIMEX_BYTES)
    library = ctypes.CDLL(None, use_errno=True)
    if library.adjtimex(answer) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex failed")
    return parse_timex(answer.raw)


def read_irqbalance(root: Root) -> bool:
    """True when irqbalance runs. Raises OSError where systemd's services cannot be seen."""
    return any(there(root, folder + "/irqbalance.service") for folder in service_folders(root))


def service_folders(root: Root) -> list[str]:
    """Control group folders of systemd's services; each running service has a folder of its own in
    them. Raises OSError."""
    folders = [folder for folder in CGROUPS if there(root, folder)]
    if not folders:
        raise FileNotFoundError(
            2, "the control groups of systemd's services cannot be seen", CGROUPS[0]
        )
    return folders


def read_cgroup(root: Root) -> str:
    """Version of the node's control groups: v1, v2 or hybrid. Raises OSError."""
    if there(root, "/sys/fs/cgroup/cgroup.controllers"):
        return "v2"
    if not there(root, "/sys/fs/cgroup/memory") and not there(root, "/sys/fs/cgroup/systemd"):
        raise FileNotFoundError(2, "no control groups", "/sys/fs/cgroup")
    return "hybrid" if there(root, "/sys/fs/cgroup/unified") else "v1"


def read_name_addresses(root: Root, hostname: str | None) -> list[str]:
    """Addresses of the node's own name in /etc/hosts; no name server is queried. Raises OSError and
    ValueError."""
    if not hostname:
        raise ValueError("the node's name was not read")
    return parse_host_addresses(root.text("/etc/hosts", 1 << 18), hostname)


def read_huge_pages(root: Root) -> dict[str, Any]:
    """{enabled, defrag} of transparent huge pages: always, madvise, never …. Raises OSError."""
    return {
        "enabled": parse_choice(root.text(HUGE_PAGES + "/enabled", 256)),
        "defrag": parse_choice(root.text(HUGE_PAGES + "/defrag", 256)),
    }
