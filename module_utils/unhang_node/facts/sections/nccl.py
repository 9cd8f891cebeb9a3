"""Section nccl: every libnccl that a job on this node could load, its plugins, and every setting
that changes its behaviour."""

from __future__ import annotations

from ...base.untrusted_files import read_mounts_or_none, resolve_or_none
from ..parse.launch_paths import judge_effective
from . import settings_files
from .driver_origin import owner_of
from .loader import find_in_loader, read_loader, taken_for
from .nccl_libraries import (
    PLUGIN_STEMS,
    STEM,
    is_plugin,
    libraries_below,
    read_library,
    read_plugin,
    site_libraries,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread
    from .loader import Loader
    from .settings_files import SettingsReader

SONAME = "libnccl.so.2"
DPKG_NAMES = ("libnccl2", "libnccl-dev", "libnccl3")
MAX_LIBRARIES = 256
MAX_SETTINGS = 1024
# Folders that cloud images add to LD_LIBRARY_PATH rather than to ld.so.conf.
PLUGIN_FOLDERS: tuple[str, ...] = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
)
PLUGIN_FOLDERS += ("/usr/local/gib/lib64", "/usr/local/tcpx/lib64", "/usr/local/nvidia/lib64")


def read_local_nccl(
    root: Root, unread: Unread, sites: Iterable[str], sha256: bool
) -> dict[str, Any]:
    """Section nccl without the paths that a policy names: the loader's paths, the NCCL beside the
    torch of `sites` (site-packages folders), plugins, settings."""
    mounts = read_mounts_or_none(root)
    loader = read_loader(root, unread, "libraries", mounts, (STEM, *PLUGIN_STEMS))
    default = _resolved(root, unread, mounts, taken_for(root, loader, SONAME))
    paths = [_resolved(root, unread, mounts, path) for path in find_in_loader(loader, STEM)]
    libraries = read_libraries(root, unread, paths, (), "loader", sha256)
    for folder in sites:
        paths = [
            _resolved(root, unread, mounts, path)
            for path in unread.attempt("libraries", site_libraries, root, folder) or []
        ]
        libraries.extend(read_libraries(root, unread, paths, libraries, "site_packages", sha256))
    for row in libraries:
        row["is_loader_default"] = row["path"] == default
    reader = read_system_settings(root, unread, mounts)
    return {
        "libraries": libraries,
        "net_plugins": _plugins(root, unread, mounts, loader),
        "settings": [setting.row() for setting in reader.settings if setting.value is not None][
            :MAX_SETTINGS
        ],
        "effective": judge_effective(reader.settings),
    }


def read_libraries(
    root: Root,
    unread: Unread,
    paths: Iterable[str | None],
    known: Iterable[dict[str, Any]],
    origin: str,
    sha256: bool,
) -> list[dict[str, Any]]:
    """A row for each of `paths` that is not None; each real file once, without those that `known`
    rows have."""
    seen, rows = {row["path"] for row in known}, []
    for path in paths:
        real = unread.attempt(f"libraries[{path}]", root.resolve, path) if path else None
        if real and real not in seen and len(seen) < MAX_LIBRARIES:
            seen.add(real)
            row = read_library(root, unread, real, origin, sha256=sha256)
            row["package"] = _package_of(root, unread, real)
            rows.append(row)
    return rows


def read_named_nccl(
    root: Root, unread: Unread, folder: str, known: Iterable[dict[str, Any]], sha256: bool
) -> dict[str, Any]:
    """{libraries: rows} for one folder that the policy names, on any file system; without the files
    that `known` rows have."""
    paths = unread.attempt(f"libraries[{folder}]", libraries_below, root, folder.rstrip("/"))
    if paths == []:
        unread.add(f"libraries[{folder}]", "absent", f"no {STEM} there")
    return {"libraries": read_libraries(root, unread, paths or [], known, "policy", sha256)}


def read_system_settings(root: Root, unread: Unread, mounts: list[Mount]) -> SettingsReader:
    """A SettingsReader that has read all system files, in the order in which they take effect, and
    root's own ~/.nccl.conf."""
    reader = settings_files.SettingsReader(root, unread, mounts)
    settings_files.read_pam(reader)
    settings_files.read_sshd(reader)
    settings_files.read_shells(reader)
    settings_files.read_systemd(reader)
    settings_files.read_slurm(reader)
    settings_files.read_containers(reader)
    settings_files.read_named_conf(reader)
    settings_files.read_user_conf(reader, "/root", 0)
    settings_files.read_nccl_conf(reader)
    return reader


def _plugins(
    root: Root, unread: Unread, mounts: list[Mount], loader: Loader
) -> list[dict[str, Any]]:
    paths = [path for stem in PLUGIN_STEMS for path in find_in_loader(loader, stem)]
    reader = settings_files.SettingsReader(root, unread, mounts)
    for folder in PLUGIN_FOLDERS:
        paths.extend(folder + "/" + name for name in reader.names(folder))
    rows: list[dict[str, Any]] = []
    for path in paths:
        real = _resolved(root, unread, mounts, path) if is_plugin(path) else None
        if real and not any(row["path"] == real for row in rows):
            rows.append(read_plugin(root, unread, real))
    return rows[:64]


def _package_of(root: Root, unread: Unread, path: str) -> str | None:
    """The package of a library: dpkg's for one in the system's folders, the wheel's name for one in
    site-packages."""
    if "/site-packages/nvidia/nccl/" in path or "/dist-packages/nvidia/nccl/" in path:
        folder = path[: path.index("/nvidia/nccl/")]
        names = unread.attempt(f"libraries[{path}].package", root.names, folder) or []
        return next(
            (
                name.split("-")[0].replace("_", "-")
                for name in names
                if name.startswith("nvidia_nccl_") and name.endswith(".dist-info")
            ),
            None,
        )
    if not path.startswith(("/usr/", "/lib")):
        return None
    return unread.attempt(f"libraries[{path}].package", owner_of, root, [path], DPKG_NAMES)


def _resolved(root: Root, unread: Unread, mounts: list[Mount], path: str | None) -> str | None:
    return (
        None if path is None else resolve_or_none(root, unread, f"libraries[{path}]", mounts, path)
    )
