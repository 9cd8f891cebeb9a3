"""CDI specifications, through which containers get GPUs: the driver version of the libraries in
them. Part of section `node`.

A specification names files of one release of the driver. After an upgrade it must be generated
again, or containers that use it do not start: NVIDIA Container Toolkit, "Support for Container
Device Interface".
"""

from __future__ import annotations

import re

from .reading import names_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

FOLDERS = ("/etc/cdi", "/var/run/cdi")
FILES = 16
BYTES = 4 << 20
LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}(?:\.\d{1,4}){1,2})\b")


KIND = re.compile(r"""^[\s"']*kind["']?\s*:\s*["']?([\w./-]{1,128})""", re.MULTILINE)
HOST_DEVICE = re.compile(r"""hostPath["']?\s*:\s*["']?(/[^\s"',]{0,200}/?dev/[^\s"',]{1,128})""")
DEVICE = re.compile(r"""[\s{"'-]path["']?\s*:\s*["']?(/dev/[^\s"',]{1,128})""")
DEVICES = 256


def read_cdi(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """[{path, driver, kind, devices_missing}] of the specifications that name a driver's libraries;
    [] where there are none. Raises OSError."""
    found = []
    paths = [
        folder + "/" + name
        for folder in FOLDERS
        for name in names_if_there(root, folder)
        if name.endswith((".yaml", ".yml", ".json"))
    ]
    for path in paths[:FILES]:
        text = unread.attempt("cdi[*].driver", root.text, path, BYTES) or ""
        match = LIBRARY.search(text)
        if match:
            kind = KIND.search(text)
            missing = [device for device in device_paths(text) if not there(root, device)]
            found.append(
                {
                    "path": path,
                    "driver": match.group(1),
                    "kind": kind.group(1) if kind else "",
                    "devices_missing": missing,
                }
            )
    return found


def device_paths(text: str) -> list[str]:
    """Paths on the host of a specification's device nodes, each once. Where they differ from those
    inside the container, hostPath names them."""
    return sorted(set(HOST_DEVICE.findall(text) or DEVICE.findall(text)))[:DEVICES]
