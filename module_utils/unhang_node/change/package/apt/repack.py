"""Rebuilds a package from its installed files when no archive offers its version any more.

dpkg keeps enough of a package to rebuild it (control fields, scripts, triggers, list of files); a
file that was changed on this node is packed in its changed form. Formats: deb(5), dpkg's info
folder (dpkg-query(1) --control-path).
"""

from __future__ import annotations

import os
import shutil
import stat as stat_bits
import tempfile
from typing import Dict, List, Tuple

from ....base.process import run_process
from ...atomic_files import place_of

INFO = "/var/lib/dpkg/info"
DIVERSIONS = "/var/lib/dpkg/diversions"
SCRIPTS = (
    "preinst",
    "postinst",
    "prerm",
    "postrm",
    "config",
    "templates",
    "triggers",
    "shlibs",
    "symbols",
    "md5sums",
    "conffiles",
)
# dpkg may be configured not to install these (path-exclude), so a package without them counts as
# complete.
MAY_LACK = (
    "/usr/share/doc/",
    "/usr/share/man/",
    "/usr/share/locale/",
    "/usr/share/info/",
    "/usr/share/lintian/",
    "/usr/share/gnome/help/",
)
LEFT_OUT = ("Status", "Conffiles", "Config-Version", "Triggers-Pending", "Triggers-Awaited")
BUILD_DEADLINE_S = 600


class CannotRepack(ValueError):
    """Raised if a package could not be rebuilt; the text is the reason."""


def repack(rootfs: str, name: str, architecture: str, version: str, folder: str) -> str:
    """Builds the package in `folder` (a path of this machine) and returns its file name. Raises
    CannotRepack, OSError."""
    stem = _stem(rootfs, name, architecture)
    control = control_text(_stanza(rootfs, name, architecture), name, version)
    file_name = f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
    tree = tempfile.mkdtemp(prefix=".repack-", dir=folder)
    try:
        _lay_out(rootfs, stem, tree, name)
        os.makedirs(tree + "/DEBIAN", mode=0o755, exist_ok=True)
        for part in SCRIPTS:
            source = place_of(rootfs, f"{INFO}/{stem}.{part}")
            if os.path.exists(source):
                shutil.copy2(source, f"{tree}/DEBIAN/{part}")
        with open(
            tree + "/DEBIAN/control", "w", encoding="utf-8", errors="surrogateescape"
        ) as target:
            target.write(control)
        os.chmod(tree, 0o755)  # noqa: S103 - it becomes the / of the package
        _build(tree, os.path.join(folder, file_name))
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return file_name


def _build(tree: str, target: str) -> None:
    result = run_process(["dpkg-deb", "-Zgzip", "-z1", "--build", tree, target], BUILD_DEADLINE_S)
    if result.is_missing or result.timed_out:
        raise CannotRepack(
            "dpkg-deb --build: "
            + (
                "no such program on this node"
                if result.is_missing
                else f"no answer within {BUILD_DEADLINE_S} s"
            )
        )
    if result.code:
        raise CannotRepack("dpkg-deb --build: " + result.last_words[-300:])


def _stem(rootfs: str, name: str, architecture: str) -> str:
    """The name of the package's files in dpkg's info folder, without suffix."""
    for stem in (name, f"{name}:{architecture}"):
        if os.path.exists(place_of(rootfs, f"{INFO}/{stem}.list")):
            return stem
    raise CannotRepack(f"dpkg's list of the files of {name} is not below {INFO}")


def _stanza(rootfs: str, name: str, architecture: str) -> str:
    """The package's stanza of dpkg's status file."""
    with open(
        place_of(rootfs, "/var/lib/dpkg/status"), encoding="utf-8", errors="surrogateescape"
    ) as source:
        for stanza in source.read().split("\n\n"):
            lines = stanza.strip("\n").split("\n")
            if lines[0] == "Package: " + name and "Architecture: " + architecture in lines:
                return stanza
    raise CannotRepack(f"{name} is gone from dpkg's status")


def control_text(stanza: str, name: str, version: str) -> str:
    """A control file, made from a stanza of dpkg's status. Raises CannotRepack if the stanza has
    another version."""
    kept: List[str] = []
    keep = True
    for line in stanza.strip("\n").split("\n"):
        if line[:1] not in (" ", "\t"):
            keep = line.split(":", 1)[0] not in LEFT_OUT
        if keep:
            kept.append(line)
    if "Version: " + version not in kept:
        raise CannotRepack(f"{name} {version} is not installed whole: the node has another version")
    return "\n".join(kept) + "\n"


def read_diversions(rootfs: str) -> Dict[str, Tuple[str, str]]:
    """{path: (path to which dpkg diverts it, package whose file is not diverted)}."""
    try:
        with open(
            place_of(rootfs, DIVERSIONS), encoding="utf-8", errors="surrogateescape"
        ) as source:
            lines = source.read().splitlines()
    except FileNotFoundError:
        return {}
    return {lines[at]: (lines[at + 1], lines[at + 2]) for at in range(0, len(lines) - 2, 3)}


def _lay_out(rootfs: str, stem: str, tree: str, name: str) -> None:
    """Copies every file of the package from its place on the node to its path in the package."""
    with open(
        place_of(rootfs, f"{INFO}/{stem}.list"), encoding="utf-8", errors="surrogateescape"
    ) as source:
        paths = [line for line in source.read().splitlines() if line not in ("", "/.")]
    diversions, lacking = read_diversions(rootfs), []
    parents = {os.path.dirname(path) for path in paths}
    for path in paths:
        real, owner = diversions.get(path, (path, name))
        here = (rootfs if rootfs != "/" else "") + (path if owner == name else real)
        if not os.path.lexists(here):
            if not path.startswith(MAY_LACK):
                lacking.append(path)
            continue
        _copy(here, tree + path, path in parents)
    if lacking:
        raise CannotRepack(
            f"{name} is not whole: {len(lacking)} of its files are gone, such as {lacking[0]}"
        )


def _copy(here: str, there: str, is_folder: bool) -> None:
    """Copies one file. is_folder: the package has files below it, so that a link at this path
    belongs to the node (merged /usr)."""
    known = os.stat(here) if is_folder else os.lstat(here)
    os.makedirs(os.path.dirname(there), exist_ok=True)
    if stat_bits.S_ISDIR(known.st_mode):
        os.makedirs(there, exist_ok=True)
    elif stat_bits.S_ISLNK(known.st_mode):
        os.symlink(os.readlink(here), there)
    elif stat_bits.S_ISREG(known.st_mode):
        shutil.copy2(here, there)
    else:
        raise CannotRepack(f"{here} is neither a file nor a folder nor a link")
    os.chown(there, known.st_uid, known.st_gid, follow_symlinks=False)
    if not stat_bits.S_ISLNK(known.st_mode):
        os.chmod(there, stat_bits.S_IMODE(known.st_mode))
