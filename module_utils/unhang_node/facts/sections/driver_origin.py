"""How the driver was installed: by packages, by NVIDIA's .run installer, from outside this
container, by the GPU Operator."""

from __future__ import annotations

import os

from ...base.untrusted_files import names_or_none, read_file, read_mounts_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.parse.dpkg import Package
    from ...base.root import Root
    from ...base.section import Unread

INFO = "/var/lib/dpkg/info"
OPERATOR = (
    "/run/nvidia/driver/usr/bin/nvidia-smi",
    "/run/nvidia/driver/usr/bin",
    "/run/nvidia/driver/lib/modules",
)
RUNFILE = ("/usr/bin/nvidia-uninstall", "/var/log/nvidia-installer.log", "/var/lib/nvidia/log")
MAX_LISTS = 200
LIST_LIMIT_BYTES = 4 << 20


def read_install_method(
    root: Root,
    unread: Unread,
    userspace: dict[str, Any],
    packages: list[Package] | None,
    has_module: bool,
) -> str | None:
    """packages, runfile, container, gpu_operator, unknown or none; None, with the reason noted, if
    it could not be determined."""
    try:
        return _method(root, userspace, packages, has_module)
    except (OSError, ValueError) as problem:
        unread.of_error("install_method", problem)
        return None


def _method(
    root: Root, userspace: dict[str, Any], packages: list[Package] | None, has_module: bool
) -> str:
    paths = [library["path"] for library in userspace.values() if library]
    if any(path.startswith("/run/nvidia/driver/") for path in paths) or any(
        root.exists(path) for path in OPERATOR
    ):
        return "gpu_operator"
    if any(is_mounted_in(root, path) for path in paths):
        return "container"
    if paths and packages and owner_of(root, paths, [package.name for package in packages]):
        return "packages"
    if any(root.exists(path) for path in RUNFILE[:2]):
        return "runfile"
    if packages:
        return "packages"
    return "unknown" if paths or has_module else "none"


def is_mounted_in(root: Root, path: str) -> bool:
    """True if this file is a mount of its own, or is on a mount that holds only the driver
    (/usr/local/nvidia): both come from outside."""
    points = [mount.point for mount in read_mounts_or_none(root)]
    return path in points or any(
        "nvidia" in os.path.basename(point) and path.startswith(point + "/") for point in points
    )


def owner_of(root: Root, paths: Iterable[str], packages: Iterable[str]) -> str | None:
    """The first of `packages` (names) whose dpkg file list holds one of `paths`, or None. /lib and
    /usr/lib count as one."""
    wanted: set[bytes] = set()
    for path in paths:
        bare = path[4:] if path.startswith("/usr/") else path
        wanted.update(
            (b"\n" + bare.encode("utf-8") + b"\n", b"\n/usr" + bare.encode("utf-8") + b"\n")
        )
    names = frozenset(packages)
    read = 0
    for entry in names_or_none(root, INFO):
        if (
            not entry.endswith(".list")
            or os.path.splitext(entry)[0].split(":")[0] not in names
            or read >= MAX_LISTS
        ):
            continue
        read += 1
        content = b"\n" + read_file(root, INFO + "/" + entry, LIST_LIMIT_BYTES) + b"\n"
        if any(line in content for line in wanted):
            return os.path.splitext(entry)[0].split(":")[0]
    return None
