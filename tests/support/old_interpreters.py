"""Older Python versions of this machine, for programs that must run under them."""

from __future__ import annotations

import shutil
from pathlib import Path


def interpreter(version):
    """A Python of that version ("3.9"): on PATH, or among pyenv's; None without one."""
    on_path = shutil.which(f"python{version}")
    places = [on_path] if on_path and "shims" not in on_path else []
    return next(
        (
            str(place)
            for place in [
                *places,
                *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")),
            ]
        ),
        None,
    )
