"""Configuration files that stay as an admin has made them although a package brings another one:
dpkg writes that one beside it (--force-confold, dpkg(1))."""

from __future__ import annotations

import os
import re
from typing import Collection, List

from ....base.root import Root
from ....facts.sections.package_database import read_status_bytes
from ...atomic_files import place_of

BESIDE = ".dpkg-dist"
_PACKAGE = re.compile(r"^Package: (\S+)$", re.M)
_CONFFILES = re.compile(r"^Conffiles:\n((?: .*\n?)+)", re.M)


def kept_config_files(rootfs: str, names: Collection[str], since: float) -> List[str]:
    """A line for each configuration file of these packages beside which dpkg has written the
    package's own. names: without architecture; since: Unix time of the change. Raises OSError."""
    lines = []
    for path in config_files_of(read_status_bytes(Root([rootfs])), names):
        try:
            # dpkg gives the file the time that it has in the package
            written = os.stat(place_of(rootfs, path + BESIDE)).st_ctime
        except OSError:  # the usual case: there is none
            continue
        if written >= since and os.path.exists(place_of(rootfs, path)):
            lines.append(
                f"{path}: stays as it was changed here; what the package brings is in"
                f" {path + BESIDE}: compare them"
            )
    return lines


def config_files_of(content: bytes, names: Collection[str]) -> List[str]:
    """Paths of the configuration files of these packages. content: dpkg's status."""
    found = []
    for stanza in content.decode("utf-8", "surrogateescape").split("\n\n"):
        name, listed = _PACKAGE.search(stanza), _CONFFILES.search(stanza + "\n")
        if name and listed and name.group(1) in names:
            found += [line.split()[0] for line in listed.group(1).splitlines() if line.split()]
    return found
