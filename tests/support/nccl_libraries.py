"""Real libnccl files from the wheels that PyTorch installs, with the layout of a package."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

USUAL = "2.20.5"
OTHER = "2.21.5"  # newer, because ldconfig links libnccl.so.2 to the newest that it finds
VERSIONS = (USUAL, OTHER)
PLACE = "usr/lib/x86_64-linux-gnu"
IN_WHEEL = "nvidia/nccl/lib/libnccl.so.2"


def ready(cache, version):
    """A folder below `cache` to put over a root: libnccl.so.<version> and its links. It is
    downloaded once."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"nccl-{version}"
    with open(cache / "nccl.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix="nccl-download-") as work:
                unpack(download(work, version), os.path.join(work, "root"), version)
                os.rename(os.path.join(work, "root"), folder)
    return folder


def download(work, version):
    """Path of the wheel."""
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--platform=manylinux2014_x86_64",
    ]
    subprocess.run(
        [*argv, "--dest", work, f"nvidia-nccl-cu12=={version}"],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return next(os.path.join(work, name) for name in os.listdir(work) if name.endswith(".whl"))


def unpack(wheel, root, version):
    """The library under its full name, and the name that programs ask for as a link to it."""
    os.makedirs(os.path.join(root, PLACE))
    target = os.path.join(root, PLACE, f"libnccl.so.{version}")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(IN_WHEEL) as source,
        open(target, "wb") as output,
    ):
        shutil.copyfileobj(source, output)
    os.symlink(f"libnccl.so.{version}", os.path.join(root, PLACE, "libnccl.so.2"))
