"""Packs playbooks, roles, modules and plugins into a wheel, as unhang/home/ in the checkout's own layout.

Hatchling calls it. A checkout that is installed with --editable has them in place, and gets no copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOME = "unhang/home"  # unhang.base.project.INSTALLED is the path after installation
# The demo's recorded nodes and the tests stay out; tools/collector builds the program for nodes with an old Python.
PARTS = ("ansible.cfg", "library", "module_utils/unhang_node", "plugins", "roles", "tools/collector", "inventory/local", "inventory/example")
PLAYBOOKS = ("*.yml", "tasks/**/*.yml")  # without the link to plugins/callback, which is for Ansible that does not read ansible.cfg


class PackedProject(BuildHookInterface):
    """The hook."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Names the files to pack. version: "standard" for a wheel, "editable" for a checkout."""
        if version != "standard":
            return
        root = Path(self.root)
        playbooks = [path for pattern in PLAYBOOKS for path in (root / "playbooks").glob(pattern)]
        paths = [*(root / part for part in PARTS), *playbooks]
        # Pages that `make wheel` wrote before: they go to share/man of the environment, where `man` searches.
        pages = sorted((root / "build" / "man").glob("*.1"))
        build_data["shared_data"].update({str(path): f"share/man/man1/{path.name}" for path in pages})
        build_data["force_include"].update({str(path): f"{HOME}/{path.relative_to(root)}" for path in paths})
