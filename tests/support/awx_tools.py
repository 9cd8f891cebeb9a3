"""Installs ansible-builder and ansible-runner, which AWX uses, beside the virtual environment,
which is not changed."""

from __future__ import annotations

import fcntl
import os
import tempfile

from kubectl import pip

PACKAGES = ("ansible-builder==3.2.0", "ansible-runner==2.4.3")


def ready(cache):
    """The folder to put on PYTHONPATH. It is downloaded once (20 MB)."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "-".join(package.replace("==", "-") for package in PACKAGES)
    with open(cache / "awx.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix="awx-download-") as work:
                pip("install", "--target", os.path.join(work, "both"), *PACKAGES)
                os.rename(os.path.join(work, "both"), folder)
    return folder
