"""Specifications by which containers get GPUs (CDI): of which driver the libraries are that they name. Part of section `node`.

A specification names files of one release of the driver. After an upgrade it is written anew, or containers that go by it do not start:
NVIDIA Container Toolkit, "Support for Container Device Interface".
"""

from __future__ import annotations

import re

from .reading import names_if_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..root import Root
    from ..section import Unread

FOLDERS = ("/etc/cdi", "/var/run/cdi")
FILES = 16
BYTES = 4 << 20
LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}(?:\.\d{1,4}){1,2})\b")


def read_cdi(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """[{path, driver}] of the specifications that name a driver's libraries; [] where there are none. Raises OSError."""
    found = []
    paths = [folder + "/" + name for folder in FOLDERS for name in names_if_there(root, folder) if name.endswith((".yaml", ".yml", ".json"))]
    for path in paths[:FILES]:
        text = unread.attempt("cdi[*].driver", root.text, path, BYTES)
        match = LIBRARY.search(text or "")
        if match:
            found.append({"path": path, "driver": match.group(1)})
    return found
