"""Whether all dependencies of packages are met: on the node now, and after a restore. Changes
nothing."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Dict, List, Optional, Sequence

from ....base.root import Root
from ....facts.sections.package_database import read_status_bytes
from ...atomic_files import place_of, write_text
from ..programs import private_folder, run
from ..values import Step
from .installed import apt_name, native_architecture

APT_GET = "/usr/bin/apt-get"
_HEAD = "The following packages have unmet dependencies:"
_UNMET = re.compile(r"^ (\S+) : (.+)$")


def parse_unmet(output: str) -> List[str]:
    """["name: Depends: …"] from the output of `apt-get check`, one line for each dependency that is
    not met; other errors unchanged."""
    lines: List[str] = []
    name: Optional[str] = None
    for line in output.partition(_HEAD)[2].splitlines():
        found = _UNMET.match(line)
        if found:
            name = found.group(1)
            lines.append(f"{name}: {found.group(2).strip()}")
        elif name and line.startswith("  "):
            lines.append(f"{name}: {line.strip()}")
        else:
            name = None
    errors = [
        line.strip()
        for line in output.splitlines()
        if line.startswith("E: ") and "Unmet dependencies" not in line
    ]
    return lines + errors


def has_apt(rootfs: str) -> bool:
    """False in an image without apt, where nothing resolves dependencies."""
    return os.path.exists(place_of(rootfs, APT_GET))


def unmet_dependencies(rootfs: str, status: Optional[str] = None) -> List[str]:
    """Dependencies that are not met, a line each. status: text of a dpkg status file in place of
    the node's. Raises OSError."""
    if not has_apt(rootfs):
        return []
    folder = private_folder(rootfs)
    try:
        options = ["-o", f"Dir::Cache={folder}", "-o", "Debug::NoLocking=1"]
        if status is not None:
            write_text(place_of(rootfs, folder + "/status"), status)
            options += ["-o", f"Dir::State::status={folder}/status"]
        code, output = run(rootfs, ["apt-get", "-q", *options, "check"])
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    return (parse_unmet(output) or [" ".join(output.split())[-300:]]) if code else []


def broken_by(rootfs: str, folder: str, saved: Dict[str, Any], steps: Sequence[Step]) -> List[str]:
    """Dependencies that are met now and would not be after the steps of a restore. folder: of the
    saved state."""
    if not steps or not has_apt(rootfs):
        return []
    before = set(unmet_dependencies(rootfs))
    return [
        line
        for line in unmet_dependencies(rootfs, status_after(rootfs, folder, saved, steps))
        if line not in before
    ]


def status_after(rootfs: str, folder: str, saved: Dict[str, Any], steps: Sequence[Step]) -> str:
    """dpkg's status file as it will be after the steps of a restore."""
    root = Root([rootfs])
    content, native = (
        read_status_bytes(root).decode("utf-8", "surrogateescape"),
        native_architecture(root),
    )
    leaving = {step.name for step in steps}
    kept = [
        stanza.strip("\n")
        for stanza in content.split("\n\n")
        if stanza.strip() and _name_of(stanza, native) not in leaving
    ]
    rows = {row["name"]: row for row in saved["packages"]}
    for step in steps:
        if step.after:
            # The control file is kept beside the package, because in a preview the package may be
            # damaged and fetched again only later.
            control = rows[step.name].get("control") or control_of(
                rootfs, f"{folder}/{rows[step.name]['deb']}"
            )
            kept.append(control.strip("\n").replace("\n", "\nStatus: install ok installed\n", 1))
    return "\n\n".join(kept) + "\n\n"


def control_of(rootfs: str, path: str) -> str:
    """The control file in a package. path: of the package on the node."""
    return run(rootfs, ["dpkg-deb", "--field", path])[1]


def _name_of(stanza: str, native: str) -> str:
    """The package's name in apt's notation."""
    name = re.search(r"^Package: (\S+)", stanza, re.M)
    architecture = re.search(r"^Architecture: (\S+)", stanza, re.M)
    return apt_name(
        name.group(1) if name else "", architecture.group(1) if architecture else "", native
    )
