"""The collection kubernetes.core from the Python package `ansible`, and its client, both beside the
virtual environment, which is not changed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import zipfile

ANSIBLE = "12.3.0"  # has kubernetes.core 6.2.0
CLIENT = "37.0.2"
COLLECTION = "ansible_collections/kubernetes/core/"


def ready(cache):
    """{variable: value} of an environment in which Ansible finds both. They are downloaded once (62
    MB)."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"kubernetes-{ANSIBLE}-{CLIENT}"
    with open(cache / "kubernetes.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix="kubernetes-download-") as work:
                pip(
                    "download",
                    "--no-deps",
                    "--only-binary=:all:",
                    "--dest",
                    work,
                    f"ansible=={ANSIBLE}",
                )
                wheel = next(
                    os.path.join(work, name) for name in os.listdir(work) if name.endswith(".whl")
                )
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(
                        os.path.join(work, "both"),
                        [name for name in archive.namelist() if name.startswith(COLLECTION)],
                    )
                pip(
                    "install",
                    "--target",
                    os.path.join(work, "both", "client"),
                    f"kubernetes=={CLIENT}",
                )
                os.rename(os.path.join(work, "both"), folder)
    return {"ANSIBLE_COLLECTIONS_PATH": str(folder), "PYTHONPATH": str(folder / "client")}


def pip(command, *arguments):
    """Runs pip of this environment."""
    argv = [
        sys.executable,
        "-m",
        "pip",
        command,
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
