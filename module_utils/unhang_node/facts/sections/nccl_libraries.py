"""The facts of one libnccl, and the folders to search for it. Never walks a tree."""

from __future__ import annotations

import os

from ...base.untrusted_files import names_or_none, open_regular
from ..parse.elf import find_banner, find_build_id, find_net_interfaces, read_sections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

STEM = "libnccl.so"
NET_STEM = "libnccl-net"
PLUGIN_STEMS = (NET_STEM, "libnccl-tuner", "libnccl-profiler", "libnccl-env", "libnccl-ep")
# Below a folder that a policy names: itself, an installation's lib folders, a site-packages' wheel.
BELOW_ROOT = (
    "",
    "/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/build/lib",
    "/nvidia/nccl/lib",
)


def read_library(
    root: Root,
    unread: Unread,
    path: str,
    origin: str,
    where: str = "host",
    sha256: bool = False,
    field: str | None = None,
) -> dict[str, Any]:
    """A row of nccl.libraries. path: real path. A fact that cannot be read is null, with the reason
    noted under `field` (libraries[<path>])."""
    row: dict[str, Any] = {
        "path": path,
        "version": None,
        "cuda": None,
        "build_id": None,
        "size_bytes": None,
        "sha256": None,
        "origin": origin,
        "where": where,
        "container": None,
        "package": None,
        "is_loader_default": False,
        "mapped_by": [],
    }
    field = field or f"libraries[{path}]"
    try:
        descriptor = open_regular(root, path)
    except (OSError, ValueError) as problem:
        unread.of_error(field, problem)
        return row
    try:
        _read_open_library(descriptor, row, unread, field, sha256)
    finally:
        os.close(descriptor)
    return row


def _read_open_library(
    descriptor: int, row: dict[str, Any], unread: Unread, field: str, sha256: bool
) -> None:
    row["size_bytes"] = os.fstat(descriptor).st_size
    try:
        sections = read_sections(descriptor)
        banner = find_banner(descriptor, sections)
        row["build_id"] = find_build_id(descriptor, sections)
    except (OSError, ValueError) as problem:
        unread.of_error(field, problem)
        return
    if banner:
        row["version"], row["cuda"] = banner
    else:
        unread.add(field + ".version", "absent", "no NCCL banner in its read-only data")
    if sha256:
        row["sha256"] = _digest(descriptor)


def _digest(descriptor: int) -> str:
    import hashlib

    digest, position = hashlib.sha256(), 0
    while True:
        piece = os.pread(descriptor, 1 << 20, position)
        if not piece:
            return digest.hexdigest()
        digest.update(piece)
        position += len(piece)


def libraries_below(root: Root, folder: str) -> list[str]:
    """Paths of libnccl.so* in a named folder and its usual library folders, or the folder itself
    when it is such a file. Raises OSError."""
    if os.path.basename(folder).startswith(STEM):
        return [folder]
    paths: list[str] = []
    for below in BELOW_ROOT:
        paths.extend(
            folder + below + "/" + name
            for name in names_or_none(root, folder + below)
            if name.startswith(STEM)
        )
    return paths


def site_libraries(root: Root, folder: str) -> list[str]:
    """Paths of libnccl.so* that a torch in this site-packages folder would load: its wheel's, and
    those of a conda prefix around it. Raises OSError."""
    folders = [folder + "/nvidia/nccl/lib"]
    prefix, _, below = folder.partition("/lib/python3")
    if below and prefix not in ("", "/usr", "/usr/local"):
        folders.append(prefix + "/lib")
    return [
        each + "/" + name
        for each in folders
        for name in names_or_none(root, each)
        if name.startswith(STEM)
    ]


def plugin_name(path: str) -> str:
    """nccl-net-ofi from /opt/amazon/…/libnccl-net-ofi.so.0."""
    return os.path.basename(path)[3:].split(".so")[0]


def read_plugin(root: Root, unread: Unread, path: str) -> dict[str, Any]:
    """A row of nccl.net_plugins. path: real path. interfaces: null if it is no network plugin, or
    if the file could not be read (noted)."""
    row: dict[str, Any] = {
        "path": path,
        "name": plugin_name(path),
        "where": "host",
        "interfaces": None,
    }
    if os.path.basename(path).startswith(NET_STEM):
        row["interfaces"] = unread.attempt(
            f"net_plugins[{path}].interfaces", _net_interfaces, root, path
        )
    return row


def _net_interfaces(root: Root, path: str) -> list[int]:
    descriptor = open_regular(root, path)
    try:
        return find_net_interfaces(descriptor, read_sections(descriptor))
    finally:
        os.close(descriptor)


def is_plugin(path: str) -> bool:
    """True for a network, tuner or profiler plugin's file."""
    name = os.path.basename(path)
    return name.startswith(PLUGIN_STEMS) and ".so" in name
