"""SELinux: whether it enforces, and whether it lets containers use devices. Part of section
`node`."""

from __future__ import annotations

from .reading import integer_if_there, line_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

FOLDER = "/sys/fs/selinux"


def read_selinux(root: Root) -> dict[str, Any]:
    """{mode, container_use_devices}: enforcing, permissive or disabled; the boolean of
    container-selinux, None without it. Raises OSError, ValueError."""
    if not there(root, FOLDER):
        root.stat("/sys")
        return {"mode": "disabled", "container_use_devices": None}
    if not there(root, FOLDER + "/enforce"):
        # the folder is there, and nothing is mounted on it
        return {"mode": "disabled", "container_use_devices": None}
    enforce = integer_if_there(root, FOLDER + "/enforce")
    if enforce not in (0, 1):
        raise ValueError(f"{FOLDER}/enforce must be 0 or 1, and is {enforce}")
    now = (line_if_there(root, FOLDER + "/booleans/container_use_devices") or "").split()[:1]
    return {
        "mode": "enforcing" if enforce else "permissive",
        "container_use_devices": now == ["1"] if now else None,
    }
