"""NVIDIA's devices on the PCI bus, whether or not a driver is there."""

from __future__ import annotations

import re

from .reading import line_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...base.root import Root

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
DISPLAY_CLASS, BRIDGE_CLASS = "0x03", "0x0680"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def find_nvidia(root: Root) -> dict[str, list[str]]:
    """{"gpus": [address], "switches": [address]} of NVIDIA's display controllers (no virtual
    functions) and NVSwitches. Raises OSError."""
    gpus, switches = [], []
    for address in root.names(DEVICES):
        folder = DEVICES + "/" + address
        if not ADDRESS.fullmatch(address) or line_if_there(root, folder + "/vendor") != NVIDIA:
            continue
        kind = line_if_there(root, folder + "/class") or ""
        if kind.startswith(DISPLAY_CLASS) and not there(root, folder + "/physfn"):
            gpus.append(address)
        elif kind.startswith(BRIDGE_CLASS):
            switches.append(address)
    return {"gpus": gpus, "switches": switches}
