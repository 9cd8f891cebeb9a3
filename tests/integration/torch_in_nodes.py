"""torch in the nodes: this environment and its interpreter, bind-mounted read-only at the paths that they have here."""

from __future__ import annotations

import pathlib
import sys

PYTHON = pathlib.Path(sys.prefix) / "bin" / "python"


def mount(node):
    """Before the node boots. Its overlay stays small, and nothing that a test does there can reach the files here."""
    for folder in (sys.prefix, sys.base_prefix):
        inside = f"{node.bed.inner_state}/{node.name}/root{folder}"
        for argv in (["mkdir", "-p", inside], ["mount", "--bind", folder, inside], ["mount", "-o", "remount,bind,ro", inside]):
            done = node.bed.run(argv)
            if done.returncode:
                raise OSError(f"{argv}: {done.stderr.strip()}")
