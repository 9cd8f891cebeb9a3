"""Section cuda: toolkits, the default one, forward compatibility, cuDNN, and the tools that
extension builds need."""

from __future__ import annotations

import os
import re

from ...base.parse.nvidia_driver import driver_version_of_file, upstream_version, version_of_file
from ...base.untrusted_files import names_or_none, read_text, resolve_or_none
from ..parse.cuda import (
    parse_cuda_header,
    parse_cudnn_header,
    parse_version_json,
    parse_version_txt,
    version_of_distro_package,
    version_of_folder,
)
from .loader import find_in_loader, taken_for
from .reading import there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.parse.dpkg import Database
    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread
    from .loader import Loader

PARENT = "/usr/local"
DEFAULT = "/usr/local/cuda"
DISTRO_NVCC = "/usr/bin/nvcc"
DISTRO_PACKAGE = "nvidia-cuda-toolkit"
HEADER_LIMIT_BYTES = 4 << 20
CUDNN_HEADERS = (
    "/usr/include/cudnn_version.h",
    "/usr/include/x86_64-linux-gnu/cudnn_version_v9.h",
    "/usr/include/x86_64-linux-gnu/cudnn_version.h",
)
# Programs whose file name ends in the version: gcc -> gcc-12 -> x86_64-linux-gnu-gcc-12.
_TOOL_VERSION = re.compile(r"-(\d+(?:\.\d+)*)$")


def read_cuda(
    root: Root, unread: Unread, loader: Loader, mounts: list[Mount], database: Database | None
) -> dict[str, Any]:
    """Section cuda. loader: of loader.read_loader for libcuda and libcudnn; database: of
    package_database, or None."""
    toolkits = read_toolkits(root, unread, mounts, database)
    default = next((toolkit for toolkit in toolkits if toolkit["is_default"]), None)
    return {
        "toolkits": toolkits,
        "default": {"path": default["path"], "version": default["version"]} if default else None,
        "forward_compat": read_forward_compat(root, unread, loader, mounts),
        "cudnn": read_cudnn(root, unread, loader, mounts),
        "build_tools": read_build_tools(root, unread, mounts, database, default),
    }


def read_toolkits(
    root: Root, unread: Unread, mounts: list[Mount], database: Database | None
) -> list[dict[str, Any]]:
    """[{path, version, is_default, nvcc}], each folder once, links followed; the distribution's own
    toolkit counts as one at /usr."""
    chosen = resolve_or_none(root, unread, "toolkits", mounts, DEFAULT)
    names = unread.attempt("toolkits", names_or_none, root, PARENT) or []
    rows: list[dict[str, Any]] = []
    for name in names:
        if not name.startswith("cuda"):
            continue
        path = resolve_or_none(root, unread, "toolkits", mounts, PARENT + "/" + name)
        if (
            path is None
            or any(row["path"] == path for row in rows)
            or not _looks_like_toolkit(root, path)
        ):
            continue
        version = read_toolkit_version(root, path)
        if version is None:
            unread.add(
                f"toolkits[{path}].version",
                "absent",
                "no version.json, version.txt or include/cuda.h names it",
            )
        rows.append(
            {
                "path": path,
                "version": version,
                "is_default": path == chosen,
                "nvcc": there(root, path + "/bin/nvcc"),
            }
        )
    if there(root, DISTRO_NVCC) and resolve_or_none(
        root, unread, "toolkits", mounts, DISTRO_NVCC
    ) in (DISTRO_NVCC, "/usr/lib/nvidia-cuda-toolkit/bin/nvcc"):
        version = version_of_distro_package(database.version(DISTRO_PACKAGE) if database else None)
        rows.append(
            {
                "path": "/usr",
                "version": version,
                "is_default": not any(row["is_default"] for row in rows),
                "nvcc": True,
            }
        )
    return rows[:64]


def _looks_like_toolkit(root: Root, path: str) -> bool:
    return any(
        there(root, path + part)
        for part in (
            "/version.json",
            "/version.txt",
            "/bin/nvcc",
            "/include/cuda.h",
            "/lib64/libcudart.so",
        )
    )


def read_toolkit_version(root: Root, path: str) -> str | None:
    """Version of the toolkit at `path`, from the first of its files that names one; None if no file
    does."""
    for name, parse in (
        ("version.json", lambda text: parse_version_json(text)[0]),
        ("version.txt", parse_version_txt),
        ("include/cuda.h", parse_cuda_header),
    ):
        try:
            version = parse(read_text(root, path + "/" + name, HEADER_LIMIT_BYTES))
        except (OSError, ValueError):
            continue
        if version:
            return version
    return version_of_folder(os.path.basename(path))


def read_forward_compat(
    root: Root, unread: Unread, loader: Loader, mounts: list[Mount]
) -> dict[str, Any] | None:
    """The libcuda of a cuda-compat package if the loader would load it instead of the driver's own,
    else None."""
    taken = taken_for(root, loader, "libcuda.so.1")
    if taken is None:
        unread.add("forward_compat", "absent", "the loader finds no libcuda")
        return None
    real = resolve_or_none(root, unread, "toolkits", mounts, taken) or taken
    if "/compat" not in taken and "/compat" not in real:
        unread.add("forward_compat", "absent", f"the loader takes {taken}, which is no cuda-compat")
        return None
    # .../cuda-12.4/compat/libcuda.so.550.54.15: the folder's name has the CUDA release.
    version = next(
        (word for word in (version_of_folder(part) for part in real.split("/")) if word), None
    )
    if version is None:
        unread.add(
            "forward_compat.version",
            "absent",
            f"{real} (driver {driver_version_of_file(real)}) does not name its CUDA",
        )
    return {"path": real, "version": version}


def read_cudnn(
    root: Root, unread: Unread, loader: Loader, mounts: list[Mount]
) -> list[dict[str, Any]]:
    """[{path, version}] of every libcudnn.so in the loader's paths; of the header if there is no
    library."""
    rows: list[dict[str, Any]] = []
    for path in find_in_loader(loader, "libcudnn.so"):
        real = resolve_or_none(root, unread, "toolkits", mounts, path)
        if real and not any(row["path"] == real for row in rows):
            rows.append({"path": real, "version": version_of_file(os.path.basename(real))})
    if not rows:
        for path in CUDNN_HEADERS:
            try:
                version = parse_cudnn_header(read_text(root, path, HEADER_LIMIT_BYTES))
            except (OSError, ValueError):
                continue
            rows.append({"path": path, "version": version})
    return rows[:64]


def read_build_tools(
    root: Root,
    unread: Unread,
    mounts: list[Mount],
    database: Database | None,
    default: dict[str, Any] | None,
) -> dict[str, Any]:
    """What a build of a CUDA extension needs; a tool is null when it is not installed."""
    nvcc = None
    if default and there(
        root, (default["path"] if default["path"] != "/usr" else "/usr") + "/bin/nvcc"
    ):
        nvcc = {"path": default["path"] + "/bin/nvcc", "version": default["version"]}
    gcc, gxx = (_tool(root, unread, mounts, database, name, (name,)) for name in ("gcc", "g++"))
    ninja = _tool(root, unread, mounts, database, "ninja", ("ninja-build",))
    return {
        "nvcc": nvcc,
        "gcc": gcc,
        "gxx": gxx,
        "ninja": ninja,
        "make": _tool(root, unread, mounts, database, "make", ("make",)),
        "python_headers": unread.attempt("build_tools.python_headers", has_python_headers, root),
        "has_compiler": gxx is not None
        or there(root, "/usr/bin/c++")
        or there(root, "/usr/bin/clang++"),
        "has_ninja": ninja is not None,
        "has_nvcc": nvcc is not None,
    }


def _tool(
    root: Root,
    unread: Unread,
    mounts: list[Mount],
    database: Database | None,
    name: str,
    packages: tuple[str, ...],
) -> dict[str, Any] | None:
    """{path, version}: the package's version, else that in the file's name; None if there is no
    such program."""
    for folder in ("/usr/local/bin", "/usr/bin"):
        path = folder + "/" + name
        if not there(root, path):
            continue
        real = resolve_or_none(root, unread, "toolkits", mounts, path) or path
        named = _TOOL_VERSION.search(real)
        version = None
        if database and folder == "/usr/bin":
            wanted = [f"{package}-{named.group(1)}" for package in packages if named] + list(
                packages
            )
            wanted += ["gcc-c++"] if name == "g++" else []
            version = next(
                (
                    upstream_version(found)
                    for found in (database.version(package) for package in wanted)
                    if found
                ),
                None,
            )
        if version is None and named:
            version = named.group(1)
        if version is None:
            unread.add(
                f"build_tools.{'gxx' if name == 'g++' else name}.version",
                "absent",
                "no package and no file name shows it; nothing is executed",
            )
        return {"path": path, "version": version}
    return None


def has_python_headers(root: Root) -> bool:
    """True when the headers of a system Python are there (the headers of a virtual environment's
    base Python are not searched). Raises OSError."""
    folders = [name for name in names_or_none(root, "/usr/include") if name.startswith("python3")]
    return any(root.exists(f"/usr/include/{name}/Python.h") for name in folders)
