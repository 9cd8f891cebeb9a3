"""Which ansible-playbook controls a rollout or holds a lock, and whether that process has ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MACHINE_ID, BOOT_ID = "/etc/machine-id", "/proc/sys/kernel/random/boot_id"


def is_over(holder: Mapping[str, object] | None) -> bool | None:
    """True if a lock's process belonged to this machine, boot and PID namespace and has ended;
    False if it lives or that is unknown; None if it cannot be seen from here."""
    known = (holder or {}).get("controller")
    here = machine()
    if not isinstance(known, Mapping) or any(
        known.get(name) != value for name, value in here.items()
    ):
        return None
    if (
        not (here["boot"] and here["pid_namespace"])
        or not isinstance(known.get("pid"), int)
        or not isinstance(known.get("born"), int)
        or not Path("/proc/self/stat").exists()
    ):
        return False
    return born(known["pid"]) != known["born"]


def machine() -> dict[str, str | None]:
    """{machine, boot, pid_namespace} of this process; None where it is not known."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = None
    return {"machine": _line(MACHINE_ID), "boot": _line(BOOT_ID), "pid_namespace": namespace}


def _line(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def born(pid: int) -> int | None:
    """Start time of a process in the kernel's ticks since the boot; None if there is no such
    process, or it is a zombie: proc(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])
