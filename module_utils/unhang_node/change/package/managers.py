"""Which package manager a node has: the one place that knows both."""

from __future__ import annotations

from ...root import Root
from ...sections.package_database import RPM_FILES, RPM_FOLDERS, STATUS
from .apt.backend import APT
from .backend import Backend
from .dnf.backend import DNF

BACKENDS = (APT, DNF)


def backend_of(rootfs: str) -> Backend:
    """The backend of a node: rpm's where packages are rpm's and not dpkg's too. A node with neither gets apt's, whose message names what is missing."""
    root = Root([rootfs])
    is_rpm = not root.exists(STATUS) and any(root.exists(f"{folder}/{name}") for folder in RPM_FOLDERS for name in RPM_FILES)
    return DNF if is_rpm else APT


def backend_named(name: str) -> Backend:
    """The backend that a saved state was made with. Raises ValueError for a name that is none."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise ValueError(f"expected a saved state of {' or '.join(backend.name for backend in BACKENDS)}, found {name!r}")
