"""Section driver: the driver that the running kernel has loaded, the libraries that programs would
load, and whether they match.

cuda_version, nvml_version and the GSP firmware come from NVML (source nvml); everything here from
files.
"""

from __future__ import annotations

import os
import re
import stat

from ...base.parse.nvidia_driver import (
    branch_of,
    driver_version_of_file,
    parse_loaded,
    parse_params,
    upstream_version,
)
from ...base.section import Absent
from ...base.untrusted_files import read_text, resolve_local
from .daemons import is_running
from .driver_origin import read_install_method
from .installed_kernels import find_nvidia_module, read_dkms, read_nvidia_version
from .loader import find_in_loader
from .nvidia_devices import find_nvidia
from .package_database import driver_packages
from .reading import there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.parse.dpkg import Database, Package
    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread
    from .loader import Loader

PROC = "/proc/driver/nvidia"
MODULE = "/sys/module/nvidia"
NOUVEAU = ("nouveau", "nova_core", "nova_drm", "nova")
USERSPACE = (("libnvidia_ml", "libnvidia-ml.so.1"), ("libcuda", "libcuda.so.1"))
NOT_THE_DRIVERS = ("/compat/", "/stubs/", "/cuda-compat")
MAX_PARAMETERS = 128
DEVICE_NODE = re.compile(r"nvidia(?:\d{1,3}|ctl|-uvm|-uvm-tools|-modeset)$")
MAX_DEVICE_NODES = 256
FOR_ALL = stat.S_IROTH | stat.S_IWOTH


def read_driver(
    root: Root, unread: Unread, loader: Loader, mounts: list[Mount], database: Database | None
) -> dict[str, Any]:
    """Section driver. loader: of loader.read_loader for USERSPACE; database: of package_database,
    or None. Raises Absent when there is no driver, and no GPU on the PCI bus that needs one."""
    loaded = read_loaded(root, unread)
    userspace = {
        field: read_userspace(root, unread, loader, mounts, field, soname)
        for field, soname in USERSPACE
    }
    on_disk = unread.attempt("on_disk", read_on_disk, root, unread)
    packages = None if database is None else driver_packages(database)
    if packages is None:
        unread.add("packages", "error", "the package database could not be read")
    nouveau = any(there(root, "/sys/module/" + name) for name in NOUVEAU)
    if not (
        loaded["is_loaded"] or any(userspace.values()) or on_disk or packages or nouveau
    ) and not has_gpus(root):
        raise Absent("no nvidia module, no driver library, no driver package, no NVIDIA GPU")
    version = (
        loaded["version"]
        or _userspace_version(userspace)
        or (on_disk or {}).get("version")
        or _package_version(packages)
    )
    mismatch, text = judge_mismatch(loaded, userspace)
    if mismatch is None:
        note_no_comparison(unread, loaded, userspace)
    return {
        "loaded": loaded,
        "branch": branch_of(version),
        "userspace": userspace,
        "on_disk": on_disk,
        "packages": None if packages is None else [package.row() for package in packages][:512],
        "install_method": read_install_method(
            root, unread, userspace, packages, bool(loaded["is_loaded"] or on_disk)
        ),
        "persistence_daemon": is_running(
            root,
            "nvidia-persistenced",
            "nvidia-persistenced.service",
            (
                "/run/nvidia-persistenced/nvidia-persistenced.pid",
                "/var/run/nvidia-persistenced/nvidia-persistenced.pid",
            ),
            "/run/nvidia-persistenced/socket",
        ),
        "device_nodes": unread.attempt("device_nodes", read_device_nodes, root),
        "parameters": read_parameters(root, unread) if loaded["is_loaded"] else {},
        "nouveau_loaded": nouveau,
        "mismatch": mismatch,
        "mismatch_text": text,
    }


def has_gpus(root: Root) -> bool:
    """Whether the PCI bus shows an NVIDIA GPU; False where it cannot be listed."""
    try:
        return bool(find_nvidia(root)["gpus"])
    except OSError:
        return False


def read_running(root: Root, unread: Unread) -> dict[str, Any] | None:
    """The fields of section driver that the kernel alone provides; they are valid without the other
    fields. None if no driver is loaded."""
    loaded = read_loaded(root, unread)
    return (
        {"loaded": loaded, "branch": branch_of(loaded["version"])} if loaded["is_loaded"] else None
    )


def read_loaded(root: Root, unread: Unread) -> dict[str, Any]:
    """The loaded driver from /proc/driver/nvidia/version; where that is hidden (some containers),
    from /sys/module/nvidia."""
    try:
        line, version, flavour = parse_loaded(root.text(PROC + "/version", 65536))
    except FileNotFoundError:
        line, version, flavour = None, None, None
    except OSError as problem:
        unread.of_error("loaded", problem)
        line, version, flavour = None, None, None
    if line:
        if version is None:
            unread.add("loaded.version", "error", "unknown form: " + line[:200])
        return {"is_loaded": True, "version": version, "flavour": flavour, "line": line}
    if not there(root, MODULE):
        return {"is_loaded": False, "version": None, "flavour": None, "line": None}
    unread.add("loaded.flavour", "absent", f"no {PROC}/version")
    return {
        "is_loaded": True,
        "version": unread.attempt("loaded.version", root.line, MODULE + "/version"),
        "flavour": None,
        "line": None,
    }


def read_userspace(
    root: Root, unread: Unread, loader: Loader, mounts: list[Mount], field: str, soname: str
) -> dict[str, Any] | None:
    """{path, version} of the library that a program would get, the version from the real file's
    name; None when there is none."""
    stem = soname[: soname.index(".so")] + ".so"
    for path in find_in_loader(loader, stem):
        if any(part in path for part in NOT_THE_DRIVERS) or not (
            path.endswith((soname, stem)) or driver_version_of_file(path)
        ):
            continue
        try:
            real = resolve_local(root, mounts, path)
        except FileNotFoundError:
            continue
        except OSError as problem:
            unread.of_error("userspace." + field, problem)
            continue
        version = driver_version_of_file(os.path.basename(real))
        if version is None:
            unread.add(f"userspace.{field}.version", "absent", f"{real} does not name its version")
        return {"path": real, "version": version}
    return None


def read_on_disk(root: Root, unread: Unread) -> dict[str, Any] | None:
    """{path, kernel, version} of the module that modprobe would load into the running kernel, or
    None when there is none. Raises OSError."""
    release = root.line("/proc/sys/kernel/osrelease")
    path = find_nvidia_module(root, release)
    if path is None:
        unread.add("on_disk", "absent", f"no nvidia module among those of {release}")
        return None
    version = unread.attempt("on_disk.version", read_nvidia_version, root, release, read_dkms(root))
    return {"path": path, "kernel": release, "version": version or None}


def read_parameters(root: Root, unread: Unread) -> dict[str, str] | None:
    """The loaded module's registry parameters (NVreg_*, without that prefix)."""
    text = unread.attempt("parameters", read_text, root, PROC + "/params")
    if text is None:
        return None
    pairs = list(parse_params(text).items())
    return {name: value[:1024] for name, value in pairs[:MAX_PARAMETERS]}


def read_device_nodes(root: Root) -> list[dict[str, Any]]:
    """[{path, open_to_all}] of the character devices /dev/nvidia0, nvidiactl, nvidia-uvm and so on;
    none is opened. Raises OSError.

    In a recorded tree they are plain files, which count too.
    """
    rows: list[dict[str, Any]] = []
    for name in root.names("/dev"):
        if DEVICE_NODE.match(name) and len(rows) < MAX_DEVICE_NODES:
            mode = root.stat("/dev/" + name).st_mode
            if stat.S_ISCHR(mode) or not root.is_live:
                rows.append({"path": "/dev/" + name, "open_to_all": mode & FOR_ALL == FOR_ALL})
    return rows


def note_no_comparison(unread: Unread, loaded: dict[str, Any], userspace: dict[str, Any]) -> None:
    """Why `mismatch` is unknown."""
    if not loaded["is_loaded"]:
        unread.add("mismatch", "absent", "no module is loaded")
    elif not loaded["version"]:
        unread.add("mismatch", "error", "the loaded module's version is not known")
    elif not any(userspace.values()):
        unread.add("mismatch", "absent", "no library of the driver in the loader's paths")
    else:
        unread.add("mismatch", "error", "no library of the driver names its version")


def judge_mismatch(
    loaded: dict[str, Any], userspace: dict[str, Any]
) -> tuple[bool | None, str | None]:
    """(mismatch, text): True when the loaded module and a driver library differ, None when one of
    the versions is unknown."""
    library = next((each for each in userspace.values() if each and each["version"]), None)
    if not loaded["version"] or library is None:
        return None, None
    different = [
        each
        for each in userspace.values()
        if each and each["version"] and each["version"] != loaded["version"]
    ]
    if not different:
        return False, None
    return (
        True,
        (
            f"kernel module {loaded['version']} is loaded, {different[0]['path']} is"
            f" {different[0]['version']}"
        ),
    )


def _userspace_version(userspace: dict[str, Any]) -> str | None:
    return next((each["version"] for each in userspace.values() if each and each["version"]), None)


def _package_version(packages: Iterable[Package] | None) -> str | None:
    """Version of the package that contains libnvidia-ml or the module, not of helper packages,
    which have other versions."""
    for package in packages or ():
        if package.name.startswith(
            (
                "libnvidia-compute",
                "libnvidia-ml",
                "nvidia-driver",
                "nvidia-kernel",
                "nvidia-dkms",
                "nvidia-utils",
            )
        ):
            return upstream_version(package.version)
    return None
