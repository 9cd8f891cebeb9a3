"""Versions that repositories offer, and the installed ones. Values in, values out; each backend
does its own reading."""

from __future__ import annotations

import fnmatch
from typing import Dict, Iterable, Set

from .values import Installed, Row


def installed_rows(installed: Installed, names: Set[str]) -> Dict[str, Row]:
    """{name: {version, architecture, held, state, source}} of those among `names` that are
    installed."""
    return {
        name: {
            "version": package.version,
            "architecture": package.architecture,
            "held": package.held,
            "state": package.state,
            "source": installed.sources.get(name),
        }
        for name, package in installed.packages.items()
        if name in names
    }


def chosen_names(patterns: Iterable[str], known: Iterable[str]) -> Set[str]:
    """The known names that match a name or a pattern."""
    every = list(patterns)
    plain = {pattern for pattern in every if not set(pattern) & set("*?[")}
    globs = [pattern for pattern in every if pattern not in plain]
    return {
        name
        for name in known
        if name in plain or any(fnmatch.fnmatchcase(name, pattern) for pattern in globs)
    }
