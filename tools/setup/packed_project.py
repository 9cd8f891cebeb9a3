"""Packs playbooks, roles, modules and plugins into a wheel, as unhang/home/ in the checkout's own
layout.

Hatchling calls it. A checkout that is installed with --editable has them in place, and gets no
copy.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOME = "unhang/home"  # unhang.core.project.INSTALLED is the path after installation
DEMO, ARCHIVE = "inventory/demo", "demo.tar.gz"  # the recorded fleet, whose links no wheel can hold
IMPORTED = "tools/setup/unhang.pth"  # names the folder of unhang_node, for Python's site
# The tests stay out; tools/collector builds the program for nodes with an old Python.
PARTS = (
    "ansible.cfg",
    "library",
    "module_utils/unhang_node",
    "plugins",
    "roles",
    "tools/collector",
    "inventory/local",
    "inventory/example",
    "inventory/slurm",
)
# without the link to plugins/callback, which is for Ansible that does not read ansible.cfg
PLAYBOOKS = ("*.yml", "tasks/**/*.yml")


class PackedProject(BuildHookInterface):
    """The hook."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Names the files to pack. version: "standard" for a wheel or a source archive, "editable"
        for a checkout."""
        if version != "standard":
            return
        root = Path(self.root)
        archive = packed_demo(root)
        if self.target_name == "sdist":
            build_data["force_include"][str(archive)] = f"build/{ARCHIVE}"
            return
        build_data["force_include"][str(archive)] = f"{HOME}/{ARCHIVE}"
        build_data["force_include"][str(root / IMPORTED)] = Path(IMPORTED).name
        playbooks = [path for pattern in PLAYBOOKS for path in (root / "playbooks").glob(pattern)]
        paths = [*(root / part for part in PARTS), *playbooks]
        build_data["force_include"].update(
            {str(path): f"{HOME}/{path.relative_to(root)}" for path in paths}
        )


def packed_demo(root: Path) -> Path:
    """The archive of the recorded fleet, written from a checkout; a source archive has it already.
    The same files give the same bytes."""
    archive, fleet = root / "build" / ARCHIVE, root / DEMO
    if not fleet.is_dir():
        return archive
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for path in sorted(fleet.rglob("*")):
            if (path.is_file() or path.is_symlink()) and "__pycache__" not in path.parts:
                row = packed.gettarinfo(path, str(path.relative_to(root)))
                row.mtime, row.uid, row.gid, row.uname, row.gname, row.mode = (
                    0,
                    0,
                    0,
                    "",
                    "",
                    0o755 if row.mode & 0o100 else 0o644,
                )
                if row.isreg():
                    with path.open("rb") as content:
                        packed.addfile(row, content)
                else:
                    packed.addfile(row)
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return archive
