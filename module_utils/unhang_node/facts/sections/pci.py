"""The PCI bus, read without a driver: number of GPUs, place of each GPU, ACS above it, and the
IOMMU."""

from __future__ import annotations

from ...base.parse.values import clean, clean_or_none, integer_or_none
from ..parse.pci_config import is_redirecting, parse_acs
from .nvidia_devices import ADDRESS, DEVICES
from .reading import integer_if_there, line_if_there, names_if_there, text_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

GENERATIONS = {
    "2.5": 1,
    "5": 2,
    "5.0": 2,
    "8": 3,
    "8.0": 3,
    "16": 4,
    "16.0": 4,
    "32": 5,
    "32.0": 5,
    "64": 6,
    "64.0": 6,
}
CONFIG_BYTES = 4096
GROUP_TYPES = {"identity": "passthrough", "DMA": "translated", "DMA-FQ": "translated"}


def read_pci_device(root: Root, pci_address: str) -> dict[str, Any]:
    """The place of one PCI device in sysfs: {numa_node, cpus} and the fields of read_pci_link. None
    for a value that sysfs does not have (numa_node -1 means that too). generation_max and width_max
    are the lower one of the card's and the port's above it. For a missing device all values are
    None."""
    folder = DEVICES + "/" + pci_address
    node = integer_if_there(root, folder + "/numa_node")
    return {
        "numa_node": node if node is not None and node >= 0 else None,
        "cpus": line_if_there(root, folder + "/local_cpulist"),
        **read_pci_link(root, pci_address),
    }


def read_pci_link(root: Root, pci_address: str) -> dict[str, int | None]:
    """{generation_now, generation_max, generation_card, width_now, width_max, errors_fatal,
    errors_nonfatal} of a device's link; None as in read_pci_device."""
    folder = DEVICES + "/" + pci_address
    card_generation, card_width = (
        generation_of(line_if_there(root, folder + "/max_link_speed")),
        width_of(root, folder + "/max_link_width"),
    )
    above = bridges_above(root, pci_address)
    port = DEVICES + "/" + above[-1] if above else None
    port_generation = generation_of(line_if_there(root, port + "/max_link_speed")) if port else None
    port_width = width_of(root, port + "/max_link_width") if port else None
    return {
        "generation_now": generation_of(line_if_there(root, folder + "/current_link_speed")),
        "generation_max": least(card_generation, port_generation),
        "generation_card": card_generation,
        "width_now": width_of(root, folder + "/current_link_width"),
        "width_max": least(card_width, port_width),
        "errors_fatal": read_aer(root, folder + "/aer_dev_fatal"),
        "errors_nonfatal": read_aer(root, folder + "/aer_dev_nonfatal"),
    }


def read_aer(root: Root, path: str) -> int | None:
    """The sum of a device's uncorrected PCIe errors of one severity since boot, or None where the
    kernel does not count them (a virtual machine, no AER)."""
    line = next(
        (line for line in text_if_there(root, path).splitlines() if line.startswith("TOTAL_ERR_")),
        "",
    )
    return integer_or_none(line.rpartition(" ")[2])


def least(first: int | None, second: int | None) -> int | None:
    """The smaller of two numbers, either of which may be None."""
    known = [value for value in (first, second) if value is not None]
    return min(known) if known else None


def generation_of(speed: str | None) -> int | None:
    """5 from "32.0 GT/s PCIe", None from "Unknown"."""
    return GENERATIONS.get((speed or "").partition(" GT/s")[0])


def width_of(root: Root, path: str) -> int | None:
    """Number of lanes, or None: sysfs has 0 or 255 for an unknown width."""
    width = integer_if_there(root, path)
    return width if width is not None and 0 < width < 64 else None


def bridges_above(root: Root, pci_address: str) -> list[str]:
    """[address] of the bridges between the root complex and a device, from the top; [] if it is on
    the root complex itself or does not exist."""
    try:
        path = root.resolve(DEVICES + "/" + pci_address)
    except (OSError, ValueError):
        return []
    return [part for part in path.split("/")[:-1] if ADDRESS.fullmatch(part)]


def pci_address_of(root: Root, path: str) -> str | None:
    """The PCI address that a device's link points to (for virtio one level above it), or None: a
    software device has none."""
    try:
        parts = root.resolve(path).split("/")
    except (OSError, ValueError):
        return None
    return next((part for part in reversed(parts) if ADDRESS.fullmatch(part)), None)


def read_pci_count(
    _root: Root, unread: Unread, nvidia: Callable[[], dict[str, list[str]]]
) -> dict[str, Any]:
    """The field of section `gpus` that is read from the bus: {pci_count}. nvidia: a function that
    returns the result of find_nvidia."""
    found = unread.attempt("pci_count", nvidia)
    return {"pci_count": None if found is None else len(found["gpus"])}


def read_acs_and_iommu(
    root: Root, unread: Unread, nvidia: Callable[[], dict[str, list[str]]]
) -> dict[str, Any]:
    """The fields of section `interconnect` that are read from the bus: {acs, acs_enabled, iommu}.
    nvidia: as in read_pci_count."""
    found = unread.attempt("acs", nvidia)
    if found is None:
        return {
            "acs": None,
            "acs_enabled": None,
            "iommu": unread.attempt("iommu", read_iommu, root, []),
        }
    bridges = sorted({bridge for gpu in found["gpus"] for bridge in bridges_above(root, gpu)})
    rows = [read_acs_row(root, unread, bridge) for bridge in bridges][:512]
    return {
        "acs": rows,
        "acs_enabled": any_enabled([row["enabled"] for row in rows]),
        "iommu": unread.attempt("iommu", read_iommu, root, found["gpus"]),
    }


def any_enabled(flags: Iterable[bool | None]) -> bool | None:
    """True if one flag is true, False if all are false, else None (some are unknown)."""
    if True in flags:
        return True
    return None if None in flags else False


def read_acs_row(root: Root, unread: Unread, bridge: str) -> dict[str, Any]:
    """The row of one bridge in interconnect.acs."""
    found = unread.attempt(f"acs[{bridge}].control", read_acs, root, bridge)
    if found is None:
        return {"pci_address": bridge, "capable": None, "enabled": None, "control": None}
    capable, control = found
    return {
        "pci_address": bridge,
        "capable": capable,
        "enabled": control is not None and is_redirecting(control),
        "control": None if control is None else f"0x{control:04x}",
    }


def read_acs(root: Root, bridge: str) -> tuple[bool, int | None]:
    """(capable, control word or None). Raises OSError."""
    return parse_acs(root.data(DEVICES + "/" + bridge + "/config", CONFIG_BYTES))


def read_iommu(root: Root, gpus: list[str]) -> dict[str, Any]:
    """{mode, groups, evidence} of the IOMMU between the GPUs (without GPUs: any device) and memory.
    gpus: [address]. Raises OSError."""
    if not there(root, "/sys/kernel"):
        raise FileNotFoundError(2, "no such folder", "/sys/kernel")
    groups = names_if_there(root, "/sys/kernel/iommu_groups")
    if not groups:
        return {"mode": "off", "groups": 0, "evidence": "no groups in /sys/kernel/iommu_groups"}
    places = [(DEVICES + "/" + gpu + "/iommu_group/type", gpu) for gpu in gpus]
    places += (
        []
        if gpus
        else [
            ("/sys/kernel/iommu_groups/" + group + "/type", "group " + group)
            for group in groups[:8]
        ]
    )
    modes: dict[str, str] = {}
    for path, name in places:
        kind = line_if_there(root, path)
        if kind:
            modes.setdefault(GROUP_TYPES.get(kind, "unknown"), f"type {kind} of {name}")
    for mode in ("translated", "unknown", "passthrough"):
        if mode in modes:
            return {"mode": mode, "groups": len(groups), "evidence": clean(modes[mode], 256)}
    if gpus and not any(there(root, DEVICES + "/" + gpu + "/iommu_group") for gpu in gpus):
        return {"mode": "off", "groups": len(groups), "evidence": "no GPU is in an IOMMU group"}
    mode, word = mode_of_cmdline(line_if_there(root, "/proc/cmdline") or "")
    return {"mode": mode, "groups": len(groups), "evidence": word}


def mode_of_cmdline(cmdline: str) -> tuple[str, str | None]:
    """(mode, evidence) from the kernel command line, for kernels before 5.11, whose groups have no
    type."""
    parameters = cmdline.split()
    if "iommu=pt" in parameters or "iommu.passthrough=1" in parameters:
        return "passthrough", "iommu=pt on the kernel command line"
    named = [
        word for word in parameters if word.startswith(("intel_iommu=", "amd_iommu=", "iommu="))
    ]
    if any(
        word.partition("=")[2].split(",")[0] in ("on", "force", "force_enable") for word in named
    ):
        return "translated", clean_or_none(" ".join(named), 256)
    return "unknown", "groups without a type, nothing on the kernel command line"
