"""The driver's device files in /dev, through which programs and containers reach the GPUs. Part of section `driver`; none is opened."""

from __future__ import annotations

import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..root import Root

NODE = re.compile(r"nvidia(?:\d{1,3}|ctl|-uvm|-uvm-tools|-modeset)$")
NODES = 256
FOR_ALL = stat.S_IROTH | stat.S_IWOTH


def read_device_nodes(root: Root) -> list[dict[str, Any]]:
    """[{path, open_to_all}] of the character devices /dev/nvidia0, nvidiactl, nvidia-uvm and so on. Raises OSError.

    In a recorded tree they are plain files, which count too.
    """
    rows: list[dict[str, Any]] = []
    for name in root.names("/dev"):
        if NODE.match(name) and len(rows) < NODES:
            mode = root.stat("/dev/" + name).st_mode
            if stat.S_ISCHR(mode) or not root.is_live:
                rows.append({"path": "/dev/" + name, "open_to_all": mode & FOR_ALL == FOR_ALL})
    return rows
