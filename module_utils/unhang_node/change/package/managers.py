"""Selects the backend for a node's package manager; only this module imports both backends."""

from __future__ import annotations

from ...base.root import Root
from ...facts.sections.package_database import RPM_FILES, RPM_FOLDERS, STATUS
from .apt.backend import APT
from .backend import Backend
from .dnf.backend import DNF

BACKENDS = (APT, DNF)


def backend_of(rootfs: str) -> Backend:
    """The backend of a node: dnf's if its packages are rpm's and not also dpkg's. A node with
    neither gets apt's, whose error names what is missing."""
    root = Root([rootfs])
    is_rpm = not root.exists(STATUS) and any(
        root.exists(f"{folder}/{name}") for folder in RPM_FOLDERS for name in RPM_FILES
    )
    return DNF if is_rpm else APT


def backend_named(name: str) -> Backend:
    """The backend with which a saved state was made. Raises ValueError for an unknown name."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise ValueError(
        f"{name!r} is not a package manager of a saved state; those are"
        f" {' or '.join(backend.name for backend in BACKENDS)}"
    )
