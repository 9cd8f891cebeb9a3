"""Section torch: environments with a torch in them, what each was built with, and the caches of
extension builds."""

from __future__ import annotations

from ...base.untrusted_files import read_text, resolve_local
from ..parse.torch_files import parse_distributions, parse_version_py, python_of, wheel_version
from .nccl_libraries import STEM, read_library
from .reading import names_if_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

VERSION_LIMIT_BYTES = 65536
PREFIXES = ("/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3", "/opt/mambaforge")
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
MAX_ENVIRONMENTS = 64


def system_site_packages(root: Root, unread: Unread, mounts: list[Mount]) -> list[str]:
    """Local folders of installed Python packages that hold a torch or NCCL's wheel: the system's,
    /opt/conda with its environments, /opt/venv*."""
    folders = ["/usr/lib/python3/dist-packages"]
    for parent in ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"):
        folders.extend(_package_folders(root, parent))
    prefixes = list(PREFIXES)
    for conda in PREFIXES:
        prefixes.extend(conda + "/envs/" + name for name in _names(root, mounts, conda + "/envs"))
    prefixes.extend(
        "/opt/" + name
        for name in _names(root, mounts, "/opt")
        if name.startswith(("venv", "torch", "pytorch"))
    )
    for prefix in prefixes:
        if _is_local(root, mounts, prefix):
            folders.extend(_package_folders(root, prefix + "/lib"))
    found = []
    for folder in folders:
        try:
            real = resolve_local(root, mounts, folder)
            if real not in found and (
                root.exists(real + "/torch/version.py") or root.exists(real + "/nvidia/nccl")
            ):
                found.append(real)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            unread.of_error("environments", problem)
    return found[:MAX_ENVIRONMENTS]


def named_site_packages(root: Root, path: str) -> list[str]:
    """The folders of packages below a named path: a virtual environment, a conda prefix, or such a
    folder itself. Raises OSError."""
    path = path.rstrip("/")
    if path.endswith(PACKAGE_FOLDERS):
        return [path]
    found = []
    for parent in (path + "/lib", path + "/lib64"):
        found.extend(_package_folders(root, parent))
    unique = []
    for folder in found:
        real = root.resolve(folder)  # lib64 of a virtual environment is a link to lib
        if real not in unique:
            unique.append(real)
    if not unique and (root.exists(path + "/torch/version.py") or root.exists(path + "/nvidia")):
        return [path]
    if not unique:
        raise FileNotFoundError(2, "no site-packages there", path)
    return unique


def _package_folders(root: Root, parent: str) -> list[str]:
    """<parent>/python3*/site-packages and dist-packages that are there."""
    folders: list[str] = []
    for name in names_if_there(root, parent):
        if name.startswith("python3"):
            folders.extend(
                f"{parent}/{name}/{kind}"
                for kind in names_if_there(root, parent + "/" + name)
                if kind in PACKAGE_FOLDERS
            )
    return folders


def _names(root: Root, mounts: list[Mount], path: str) -> list[str]:
    return names_if_there(root, path) if _is_local(root, mounts, path) else []


def _is_local(root: Root, mounts: list[Mount], path: str) -> bool:
    try:
        resolve_local(root, mounts, path)
    except OSError:
        return False
    return True


def read_environment(
    root: Root,
    unread: Unread,
    folder: str,
    origin: str,
    container: str | None = None,
    libraries: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A row of torch.environments. folder: a site-packages folder. container: None on the host.
    libraries: rows of nccl.libraries that were already read."""
    field = f"environments[{folder}]"
    names = unread.attempt(field, root.names, folder) or []
    packages = parse_distributions(names)
    torch, cuda, has_cuda = None, None, None
    if "torch" in names:
        text = unread.attempt(
            field + ".torch", read_text, root, folder + "/torch/version.py", VERSION_LIMIT_BYTES
        )
        torch, cuda, has_cuda = (
            parse_version_py(text) if text is not None else (packages.get("torch"), None, None)
        )
    elif names:
        unread.add(field + ".torch", "absent", "no torch there")
    if has_cuda is False:
        unread.add(field + ".cuda", "absent", "torch was built without CUDA")
    return {
        "path": folder,
        "origin": origin,
        "where": "host" if container is None else "container",
        "container": container,
        "python": python_of(folder),
        "torch": torch,
        "cuda": cuda,
        "has_cuda": has_cuda,
        "nccl": _bundled_nccl(root, unread, folder, field, packages, libraries),
        "cudnn": wheel_version(packages, "nvidia-cudnn-"),
        "packages": packages,
    }


def _bundled_nccl(
    root: Root,
    unread: Unread,
    folder: str,
    field: str,
    packages: dict[str, str],
    libraries: Iterable[dict[str, Any]],
) -> str | None:
    """Version of the NCCL that this torch loads: from the banner of the library beside it, else
    from the wheel; null if NCCL is linked into torch."""
    start = folder + "/nvidia/nccl/lib/" + STEM
    known = next(
        (row["version"] for row in libraries if row["path"].startswith(start) and row["version"]),
        None,
    )
    if known:
        return str(known)
    if wheel_version(packages, "nvidia-nccl-") is None:
        if "torch" in packages:
            unread.add(
                field + ".nccl",
                "absent",
                "no NCCL wheel beside torch: it may be linked into torch itself",
            )
        return None
    library = read_library(root, unread, start + ".2", "site_packages", field=field + ".nccl")
    return library["version"] or wheel_version(packages, "nvidia-nccl-")
