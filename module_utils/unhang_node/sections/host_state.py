"""How the host itself is set: CPU frequency and idle states, clock source, time daemon, control groups, its own name, huge pages. Files alone, few of them."""

from __future__ import annotations

from ..parse.host_state import parse_choice, parse_host_addresses
from .daemons import CGROUPS
from .reading import integer_if_there, line_if_there, names_if_there, read_line, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..root import Root

CPU = "/sys/devices/system/cpu"
POLICIES = 16  # of hundreds, spread evenly over all CPUs: a file each
CLOCK = "/sys/devices/system/clocksource/clocksource0"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"
TIME_DAEMONS = (
    ("chronyd", ("chrony.service", "chronyd.service")),
    ("systemd-timesyncd", ("systemd-timesyncd.service",)),
    ("ntpd", ("ntp.service", "ntpd.service", "ntpsec.service", "openntpd.service")),
    ("ptp4l", ("ptp4l.service", "phc2sys.service")),
)
SYNCHRONIZED = "/run/systemd/timesync/synchronized"


def read_frequency(root: Root) -> dict[str, Any]:
    """{driver, governors}: how CPU frequencies are chosen; governors of up to 16 CPUs over the whole node, each once. Raises OSError."""
    policies = sorted((name for name in root.names(CPU + "/cpufreq") if name[:6] == "policy" and name[6:].isdigit()), key=lambda name: int(name[6:]))
    if not policies:
        raise FileNotFoundError(2, "the kernel scales no frequencies here", CPU + "/cpufreq")
    spread = policies[:: -(-len(policies) // POLICIES)]
    governors = (line_if_there(root, f"{CPU}/cpufreq/{name}/scaling_governor") for name in spread)
    return {
        "driver": line_if_there(root, f"{CPU}/cpufreq/{policies[0]}/scaling_driver"),
        "governors": sorted({name for name in governors if name}),
    }


def read_idle(root: Root) -> dict[str, Any]:
    """{driver, governor, deepest_state, deepest_latency_us}: the first CPU's deepest state that is not switched off. Raises OSError."""
    driver = read_line(root, CPU + "/cpuidle/current_driver", 64)
    states = sorted(
        (name for name in names_if_there(root, CPU + "/cpu0/cpuidle") if name[:5] == "state" and name[5:].isdigit()), key=lambda name: int(name[5:])
    )
    folder = next((f"{CPU}/cpu0/cpuidle/{name}" for name in reversed(states) if integer_if_there(root, f"{CPU}/cpu0/cpuidle/{name}/disable") == 0), None)
    return {
        "driver": driver,
        "governor": line_if_there(root, CPU + "/cpuidle/current_governor_ro") or line_if_there(root, CPU + "/cpuidle/current_governor"),
        "deepest_state": line_if_there(root, folder + "/name") if folder else None,
        "deepest_latency_us": integer_if_there(root, folder + "/latency") if folder else None,
    }


def read_clock_source(root: Root) -> str:
    """tsc, hpet, kvm-clock …: what the kernel takes the time from. Raises OSError."""
    return read_line(root, CLOCK + "/current_clocksource", 64)


def read_time(root: Root) -> dict[str, Any]:
    """{daemon, synchronized}: what keeps the node's clock right, "none" where nothing does. Raises OSError where systemd's services cannot be seen."""
    slices = services(root)
    daemon = next((name for name, units in TIME_DAEMONS for unit in units for folder in slices if there(root, folder + "/" + unit)), "none")
    return {"daemon": daemon, "synchronized": root.exists(SYNCHRONIZED) if daemon == "systemd-timesyncd" else None}


def read_irqbalance(root: Root) -> bool:
    """True when irqbalance runs. Raises OSError where systemd's services cannot be seen."""
    return any(there(root, folder + "/irqbalance.service") for folder in services(root))


def services(root: Root) -> list[str]:
    """Folders of control groups that hold systemd's services; a running one has a folder of its own in them. Raises OSError."""
    folders = [folder for folder in CGROUPS if there(root, folder)]
    if not folders:
        raise FileNotFoundError(2, "the control groups of systemd's services cannot be seen", CGROUPS[0])
    return folders


def read_cgroup(root: Root) -> str:
    """v1, v2 or hybrid: which control groups the node has. Raises OSError."""
    if there(root, "/sys/fs/cgroup/cgroup.controllers"):
        return "v2"
    if not there(root, "/sys/fs/cgroup/memory") and not there(root, "/sys/fs/cgroup/systemd"):
        raise FileNotFoundError(2, "no control groups", "/sys/fs/cgroup")
    return "hybrid" if there(root, "/sys/fs/cgroup/unified") else "v1"


def read_name_addresses(root: Root, hostname: str | None) -> list[str]:
    """Addresses of the node's own name in /etc/hosts; a name server is not asked. Raises OSError and ValueError."""
    if not hostname:
        raise ValueError("the node's name was not read")
    return parse_host_addresses(root.text("/etc/hosts", 1 << 18), hostname)


def read_huge_pages(root: Root) -> dict[str, Any]:
    """{enabled, defrag} of transparent huge pages: always, madvise, never …. Raises OSError."""
    return {"enabled": parse_choice(root.text(HUGE_PAGES + "/enabled", 256)), "defrag": parse_choice(root.text(HUGE_PAGES + "/defrag", 256))}
