"""File systems that jobs and daemons need: free space, inodes, and mount options. Part of section
`limits`."""

from __future__ import annotations

from ...base.parse.mounts import is_network, parse_fstab
from ...base.root import INODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

LOCAL = frozenset(["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs"])
OF_CONTAINERS = (
    "/var/lib/kubelet/", "/var/lib/docker/", "/var/lib/containerd/", "/run/", "/snap/",
    "/var/lib/containers/", "/var/snap/microk8s/", "/var/lib/k0s/",
)  # fmt: skip
ROWS = 32


def read_filesystems(
    root: Root, unread: Unread, mounts: list[Mount] | None
) -> list[dict[str, Any]] | None:
    """One row for each mounted local or network file system, "/" first; a network file system is
    not queried, because its server may not answer."""
    if mounts is None:
        return None
    rows, seen = [], set()
    on_demand = tuple(mount.point for mount in mounts if mount.fs_type == "autofs")
    for mount in sorted(mounts, key=lambda mount: mount.point):
        if mount.fs_type not in LOCAL and not (is_network(mount) and mount.fs_type != "autofs"):
            continue
        if mount.device in seen or mount.point.startswith(OF_CONTAINERS):
            continue
        seen.add(mount.device)
        row = read_filesystem(root, unread, mount)
        row["on_demand"] = f"{mount.point}/".startswith(tuple(f"{one}/" for one in on_demand))
        rows.append(row)
    return rows[:ROWS]


def read_filesystem(root: Root, unread: Unread, mount: Mount) -> dict[str, Any]:
    """{path, type, size_bytes, free_bytes, inodes_free_percent, read_only, soft, locks,
    access_times, source} of one mount."""
    row: dict[str, Any] = {
        "path": mount.point[:1024],
        "type": mount.fs_type[:64],
        "size_bytes": None,
        "free_bytes": None,
        "inodes_free_percent": None,
        "read_only": "ro" in mount.options,
        "soft": bool({"soft", "softerr"} & set(mount.options)),
        "locks": mount.fs_type != "lustre" or bool({"flock", "localflock"} & set(mount.options)),
        "access_times": "noatime" not in mount.options,
        "source": mount.device[:1024] if is_network(mount) else None,
    }
    field = f"filesystems[{mount.point}]"
    if is_network(mount):
        for name in ("size_bytes", "free_bytes", "inodes_free_percent"):
            unread.add(
                f"{field}.{name}",
                "absent",
                f"lies on {mount.fs_type}: not asked, its server may not answer",
            )
        return row
    space = unread.attempt(field + ".free_bytes", root.space, mount.point)
    if space:
        row["size_bytes"], row["free_bytes"] = space
    inodes = unread.attempt(field + ".inodes_free_percent", root.space, mount.point, INODES)
    if inodes and inodes[0] > 0:
        row["inodes_free_percent"] = round(inodes[1] * 100.0 / inodes[0], 1)
    elif inodes:
        unread.add(
            field + ".inodes_free_percent",
            "absent",
            f"{mount.fs_type} makes inodes as it needs them",
        )
    return row


def read_not_mounted(root: Root, mounts: list[Mount]) -> list[str]:
    """Paths that /etc/fstab has mounted at boot and that are not mounted; [] without the file.
    Raises OSError."""
    mounted = {mount.point for mount in mounts}
    try:
        wanted = parse_fstab(root.text("/etc/fstab", 1 << 18))
    except FileNotFoundError:
        return []
    return [point for point in wanted if point not in mounted]
