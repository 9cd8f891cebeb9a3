"""Which versions the node's repositories offer, beside what is installed. Looks at copies where it fetches."""

from __future__ import annotations

import fnmatch
import shutil

from ..files import place_of
from . import dnf
from .apt import known_names, make_view, offers_of, private_folder, update
from .change import DEFAULTS
from .dnf import is_rpm_node, read_installed_rpms
from .dnf_modules import offered_streams
from .installed import read_installed


def read_offers(rootfs, patterns, update_cache, fetch_timeout_s, modules=()):
    """{offers, installed, warnings_of_update, manager, streams} for names and patterns of names. modules: of dnf. Raises ValueError, OSError."""
    if is_rpm_node(rootfs):
        return read_rpm_offers(rootfs, patterns, fetch_timeout_s, modules)
    installed = read_installed(rootfs)
    folder = private_folder(rootfs)
    try:
        view = make_view(rootfs, folder, private=True)
        warnings = update(view, fetch_timeout_s) if update_cache else []
        names = chosen_names(patterns, known_names(view) + list(installed.packages))
        offers = offers_of(view, names)
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    rows = {name: _row(package, installed.sources.get(name)) for name, package in installed.packages.items() if name in names}
    return {"offers": offers, "installed": rows, "warnings_of_update": warnings, "manager": "dpkg", "streams": {}}


def read_rpm_offers(rootfs, patterns, fetch_timeout_s, modules):
    """The same of a node of rpm, whose dnf fetches lists by itself when they are old."""
    installed = read_installed_rpms(rootfs)
    folder = private_folder(rootfs)
    try:
        offers = dnf.offers_of(rootfs, dict(DEFAULTS, fetch_timeout_s=fetch_timeout_s), patterns, folder)
        streams = offered_streams(rootfs, modules, dnf.private(folder), fetch_timeout_s)
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    names = chosen_names(patterns, installed.packages)
    rows = {name: _row(package, installed.sources.get(name)) for name, package in installed.packages.items() if name in names}
    return {"offers": offers, "installed": rows, "warnings_of_update": [], "manager": "rpm", "streams": streams}


def _row(package, source):
    return {"version": package.version, "architecture": package.architecture, "held": package.held, "state": package.state, "source": source}


def chosen_names(patterns, known):
    """Names that a name or a pattern means, as a set."""
    plain = {pattern for pattern in patterns if not set(pattern) & set("*?[")}
    globs = [pattern for pattern in patterns if pattern not in plain]
    return {name for name in known if name in plain or any(fnmatch.fnmatchcase(name, pattern) for pattern in globs)}
