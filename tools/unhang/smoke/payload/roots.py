"""Root of the system's own files: /, or another folder for a recorded machine."""

from __future__ import annotations

import os


def rooted(path: str) -> str:
    """UNHANG_SMOKE_ROOT in front of an absolute path."""
    return os.path.join(os.environ.get("UNHANG_SMOKE_ROOT") or "/", path.lstrip("/"))
