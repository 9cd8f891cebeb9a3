"""/etc/fstab: what is to be mounted at boot. Text in, paths out (fstab(5), systemd.mount(5))."""

from __future__ import annotations

from .mounts import unescape

LATER = frozenset(["noauto", "x-systemd.automount", "bind", "rbind"])
NO_MOUNT = frozenset(["swap", "none", "ignore", "autofs"])
PATHS = 256


def parse_fstab(text: str) -> list[str]:
    """Mount points that the boot mounts, in the order of the file; without swap, noauto and automounts."""
    points: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or words[0].startswith("#"):
            continue
        point = unescape(words[1]).rstrip("/") or "/"
        options = set((words[3] if len(words) > 3 else "defaults").split(","))
        if point.startswith("/") and words[2] not in NO_MOUNT and not options & LATER and point not in points:
            points.append(point[:1024])
    return points[:PATHS]
