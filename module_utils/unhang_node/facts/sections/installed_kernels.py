"""Installed kernels, and the nvidia module that each of them would load. Part of section
`kernel`."""

from __future__ import annotations

import errno
import os
import re

from ...base.parse.values import clean, clean_or_none, release_key
from ...base.untrusted_files import open_regular
from ..parse.elf import find_modinfo, read_sections
from .reading import names_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

MODULES = "/lib/modules"
DKMS = "/var/lib/dkms"
KERNELS = 64  # the schema's limit
DETAILED = 12  # kernels whose modules.dep is read: each file has about 1 MB
DEP_LIMIT_BYTES = 8 * 1024 * 1024
# File names of the module: Debian adds the branch to the name and links to it by alternatives;
# Ubuntu and RHEL do not.
NAMES = (
    "nvidia",
    "nvidia-current",
    "nvidia-current-open",
    "nvidia-tesla",
    "nvidia-tesla-470",
    "nvidia-tesla-535",
    "nvidia-tesla-535-open",
)
DKMS_NAMES = (*NAMES, "nvidia-open", "nvidia-open-kernel")
MODPROBE = "/etc/modprobe.d"
_INSTALLS = re.compile(
    r"^install nvidia\s.*?modprobe\s+(?:-i|--ignore-install)\s+(nvidia[\w-]*)", re.M
)


def read_installed(
    root: Root, unread: Unread, running: str | None, dkms: list[dict[str, Any]] | None
) -> list[dict[str, Any]]:
    """[{release, image, headers, nvidia_module}], newest first. running: the running release or
    None; dkms: rows of read_dkms. Raises OSError."""
    folders = [name for name in names_if_there(root, MODULES) if name[:1].isdigit()]
    images = _read_images(root, folders)
    if not folders and not images:
        if not root.exists("/lib") and not root.exists("/usr"):
            raise FileNotFoundError(2, "no such folder", MODULES)
        return []
    releases = sorted(set(folders) | set(images), key=release_key, reverse=True)[:KERNELS]
    detailed = set(releases[:DETAILED]) | {running}
    rows = []
    for release in releases:
        field = f"installed[{release}].nvidia_module"
        if release in detailed:
            module = unread.attempt(field, read_nvidia_version, root, release, dkms or [])
        else:
            module = None
            unread.add(
                field,
                "absent",
                f"only the newest {DETAILED} kernels and the running one are looked into",
            )
        rows.append(
            {
                "release": clean(release, 256),
                "image": clean_or_none(images.get(release, ""), 1024),
                "headers": there(root, f"{MODULES}/{release}/build"),
                "nvidia_module": module,
            }
        )
    return rows


def _read_images(root: Root, folders: list[str]) -> dict[str, str]:
    """{release: path of its image}: in /boot, or in its folder of modules. folders: the releases
    that have such a folder."""
    images = {}
    for name in names_if_there(root, "/boot"):
        if name.startswith("vmlinuz-") and "rescue" not in name:
            images[name[len("vmlinuz-") :]] = "/boot/" + name
    for release in folders:
        if release not in images and there(root, f"{MODULES}/{release}/vmlinuz"):
            images[release] = f"{MODULES}/{release}/vmlinuz"
    return images


def read_nvidia_version(root: Root, release: str, dkms: list[dict[str, Any]]) -> str:
    """Version of the nvidia module that modprobe would load into `release`, "" if there is none.
    Raises OSError and ValueError if it cannot be determined."""
    path = find_nvidia_module(root, release)
    if path is None:
        return ""
    if path.endswith(".ko"):
        return version_of_file(root, path)
    # Decompressing a module of 50 MB costs a second; DKMS has the version in the name of a folder.
    built = sorted(
        {
            row["version"]
            for row in dkms
            if row["module"] in DKMS_NAMES
            and row["kernel"] == release
            and row["state"] == "installed"
        }
    )
    if len(built) == 1 and ("/updates/" in path or "/extra/" in path):
        return str(built[0])
    raise FileNotFoundError(
        errno.ENOENT, "the module is compressed, and no DKMS folder names its version", path
    )


def find_nvidia_module(root: Root, release: str) -> str | None:
    """Path of the nvidia module that modules.dep names for `release`, or None. Raises OSError when
    that file cannot be read."""
    folder = f"{MODULES}/{release}"
    try:
        listing = root.data(folder + "/modules.dep", DEP_LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    for name in module_names(root):
        line = line_of(listing, f"/{name}.ko".encode("ascii"))
        if line:
            path = line.decode("utf-8", "replace")
            return path if path.startswith("/") else folder + "/" + path
    return None


def module_names(root: Root) -> tuple[str, ...]:
    """File names under which `modprobe nvidia` may find its module. Debian installs several side by
    side, and its alternative selects one."""
    for name in names_if_there(root, MODPROBE):
        if name.startswith("nvidia") and name.endswith(".conf"):
            try:
                found = _INSTALLS.search(root.text(MODPROBE + "/" + name, 65536))
            except OSError:
                continue  # a broken link of an alternative
            if found:
                return (found.group(1),)
    return NAMES


def module_needs(root: Root, release: str, module: str, other: str) -> bool | None:
    """True when modules.dep says that a module (nvidia-peermem) needs another (ib_core); None when
    the release has no such module. Raises OSError."""
    listing = root.data(f"{MODULES}/{release}/modules.dep", DEP_LIMIT_BYTES)
    path = line_of(listing, f"/{module}.ko".encode("ascii"))
    if path is None:
        return None
    start = listing.find(path + b":")
    return f"/{other}.ko".encode("ascii") in listing[start:].split(b"\n", 1)[0]


def line_of(listing: bytes, stem: bytes, most: int = 64) -> bytes | None:
    """The module (before the colon) whose path contains `stem`, or None; other lines may list it as
    a dependency."""
    at = listing.find(stem)
    for _ in range(most):
        if at < 0:
            return None
        start = listing.rfind(b"\n", max(0, at - 4096), at) + 1
        end = listing.find(b":", start, at + 256)
        if end >= at + len(stem):
            return listing[start:end]
        at = listing.find(stem, at + len(stem))
    return None


def version_of_file(root: Root, path: str) -> str:
    """The version= of an uncompressed module's .modinfo. Raises OSError, ValueError."""
    descriptor = open_regular(root, path)
    try:
        version = find_modinfo(descriptor, read_sections(descriptor)).get("version")
    finally:
        os.close(descriptor)
    if not version:
        raise ValueError(f"{path}: its .modinfo has no version")
    return clean(version, 64)


def read_dkms(root: Root) -> list[dict[str, Any]]:
    """[{module, version, kernel, state}] of /var/lib/dkms, read from its folders as `dkms status`
    does. Raises OSError, but not for a missing folder."""
    rows: list[dict[str, Any]] = []
    if not there(root, DKMS):
        return rows
    for module in root.names(DKMS)[:64]:
        top = f"{DKMS}/{module}"
        names = names_if_there(root, top)
        for version in names[:64]:
            if version.startswith(("kernel-", "original_module")) or not there(
                root, f"{top}/{version}/source"
            ):
                continue
            rows.extend(dkms_rows(root, module, version, names))
    return rows[:128]


def dkms_rows(root: Root, module: str, version: str, names: list[str]) -> list[dict[str, Any]]:
    """Rows of one version of a module: one for each kernel that it was built for; without any, one
    row with state added."""
    top = f"{DKMS}/{module}/{version}"
    rows = []
    for kernel in names_if_there(root, top):
        if kernel in ("source", "build") or not kernel[:1].isdigit():
            continue
        for arch in names_if_there(root, top + "/" + kernel)[:8]:
            if there(root, f"{top}/{kernel}/{arch}/module"):
                installed = f"kernel-{kernel}-{arch}" in names and is_link_to(
                    root, module, kernel, arch, version
                )
                rows.append(
                    dkms_row(module, version, kernel, "installed" if installed else "built")
                )
    return rows or [dkms_row(module, version, None, "added")]


def is_link_to(root: Root, module: str, kernel: str, arch: str, version: str) -> bool:
    """True when DKMS' link for this kernel points to this version."""
    try:
        target = root.link(f"{DKMS}/{module}/kernel-{kernel}-{arch}")
    except (OSError, ValueError):
        return False
    return target.strip("/").split("/")[-3:-2] == [version]


def dkms_row(module: str, version: str, kernel: str | None, state: str) -> dict[str, Any]:
    """One row of the facts."""
    return {
        "module": clean(module, 256),
        "version": clean(version, 256),
        "kernel": clean(kernel, 256) if kernel else None,
        "state": state,
    }
