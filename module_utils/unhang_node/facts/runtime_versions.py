"""Versions of container runtimes. Their programs state them only when they are started, so they are
those of the packages, which another source reads: known once both sections are merged."""

from __future__ import annotations

from ..base.parse.nvidia_driver import upstream_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIELD = "container_runtimes[*].version"
# packages of Debian, Red Hat and the makers, of which one may be installed
PACKAGES = {
    "docker": ("docker-ce", "docker.io", "moby-engine"),
    "containerd": ("containerd.io", "containerd", "moby-containerd"),
    "podman": ("podman",),
    "crio": ("cri-o",),
    "enroot": ("enroot",),
    "apptainer": ("apptainer",),
    "singularity": ("singularity-ce", "singularity"),
    "nvidia-container-toolkit": ("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
}


def add_runtime_versions(sections: dict[str, dict[str, Any]]) -> None:
    """Sets node.container_runtimes[*].version from packages.installed; a runtime that no package
    brought keeps null, and the reason for it."""
    node = sections.get("node", {})
    installed = {
        row.get("name"): row.get("version")
        for row in sections.get("packages", {}).get("installed") or []
    }
    runtimes = node.get("container_runtimes") or []
    for row in runtimes:
        names = PACKAGES.get(row["name"], ()) if row["version"] is None else ()
        found = next((installed[name] for name in names if installed.get(name)), None)
        if found is not None:
            row["version"] = upstream_version(found)
    unread = node.get("probe", {}).get("unread", [])
    reason = next((row for row in unread if row["field"] == FIELD), None)
    if reason is not None and any(row["version"] is not None for row in runtimes):
        unread.remove(reason)
        unread += [
            {**reason, "field": FIELD.replace("*", str(index))}
            for index, row in enumerate(runtimes)
            if row["version"] is None
        ]
