"""torch in the nodes: this environment and the interpreter below it, bind-mounted read-only.

The environment gets a path of its own: its path on this machine may be hidden in a node, which
mounts its own /tmp and /run at boot. The interpreter keeps its path, because the environment's
python is an absolute link to it.
"""

from __future__ import annotations

import pathlib
import sys

import pytest

ENVIRONMENT = "/opt/torch-environment"
PYTHON = pathlib.Path(ENVIRONMENT) / "bin" / "python"
# The distribution's own interpreter is not mounted: the node's own is used if it has the same
# version (Debian 12).
OWN = sys.base_prefix in ("/usr", "/usr/local")
FITS = not OWN or sys.version_info[:2] == (3, 11)
needs_torch = pytest.mark.skipif(
    not FITS,
    reason=(
        "the nodes' Python is 3.11, this environment's is the distribution's"
        f" {sys.version.split()[0]}"
    ),
)


def mount(node):
    """Runs before the node boots. Its overlay stays small, and a test on the node cannot change the
    files here."""
    for folder, place in (
        (sys.prefix, ENVIRONMENT),
        *([] if OWN else [(sys.base_prefix, sys.base_prefix)]),
    ):
        inside = f"{node.bed.inner_state}/{node.name}/root{place}"
        for argv in (
            ["mkdir", "-p", inside],
            ["mount", "--bind", folder, inside],
            ["mount", "-o", "remount,bind,ro", inside],
        ):
            done = node.bed.run(argv)
            if done.returncode:
                raise OSError(f"{argv}: {done.stderr.strip()}")


BROKEN = "/usr/local/bin/python-of-a-broken-torch"


def plant_broken(fleet, name):
    """Until the test ends, the node has a Python at BROKEN that finds a torch and cannot import it:
    nothing can be proved with it, which is not seen before a smoke test."""
    fleet.plant(
        name,
        "/srv/broken-torch/torch/__init__.py",
        "raise ImportError('libcudart.so is missing')\n",
    )
    launcher = '#!/bin/sh\nPYTHONPATH=/srv/broken-torch exec /usr/bin/python3 "$@"\n'
    fleet.plant(name, BROKEN, launcher, 0o755)
