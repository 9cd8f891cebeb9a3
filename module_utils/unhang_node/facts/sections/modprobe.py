"""modprobe's configuration for modules of GPUs and networks, and the kernel's restrictions on
modules. Part of section `kernel`."""

from __future__ import annotations

from ..parse.host_state import parse_choice
from ..parse.modprobe import parse_modprobe
from .reading import drop_ins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

FOLDERS = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
FILES = 128
ROWS = 128
LOCKDOWN = "/sys/kernel/security/lockdown"


def read_modprobe(root: Root, unread: Unread) -> dict[str, Any]:
    """{forbidden: [module], options: [{module, parameter, value, path}]} in the order in which
    modprobe reads them."""
    forbidden: set[str] = set()
    options: list[dict[str, str]] = []
    for path in drop_ins(root, FOLDERS)[:FILES]:
        text = unread.attempt("modprobe.options", root.text, path, 1 << 18)
        names, rows = parse_modprobe(text or "")
        forbidden.update(names)
        options += [
            {"module": module, "parameter": parameter, "value": value, "path": path}
            for module, parameter, value in rows
        ]
    return {"forbidden": sorted(forbidden)[:ROWS], "options": options[:ROWS]}


def read_lockdown(root: Root) -> str | None:
    """none, integrity or confidentiality; "none" for a kernel without it. Raises OSError."""
    if not root.exists("/sys/kernel/security"):
        raise FileNotFoundError(2, "securityfs is not mounted here", "/sys/kernel/security")
    try:
        return parse_choice(root.text(LOCKDOWN, 256))
    except FileNotFoundError:
        return "none"
