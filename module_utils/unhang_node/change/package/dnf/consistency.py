"""Whether all dependencies of packages are met: on the node now (dnf check), and after a restore
(in a copy of rpm's database)."""

from __future__ import annotations

import re
import shutil
from typing import Any, Dict, List, Sequence

from ...atomic_files import place_of
from ..programs import private_folder, run
from ..saved import kept_problem
from ..values import Row, Step

_NEEDED = re.compile(r"^\s+(.+) is needed by \(installed\) (\S+)$", re.M)
_MISSING = re.compile(r"^(\S+) has missing requires of (.+)$", re.M)
VERIFY = ["-Va", "--nofiles", "--noscripts", "--nodigest", "--nosignature"]
# dependencies only
ALONE = [
    "--justdb",
    "--nodeps",
    "--noscripts",
    "--notriggers",
    "--noplugins",
    "--nodigest",
    "--nosignature",
]


def parse_verified(output: str) -> List[str]:
    """["name-version: needs …"] from the output of `rpm -Va --nofiles`."""
    return [f"{package}: needs {wanted}" for wanted, package in _NEEDED.findall(output)]


def parse_checked(output: str) -> List[str]:
    """["name-version: needs …"] from the output of `dnf check --dependencies`."""
    return [f"{package}: needs {wanted}" for package, wanted in _MISSING.findall(output)]


def unmet_dependencies(rootfs: str) -> List[str]:
    """Dependencies that are not met on the node, one line each, from `dnf check`; [] in an image
    without dnf. Raises OSError."""
    folder = private_folder(rootfs)
    try:
        options = [f"--setopt=cachedir={folder}/cache", f"--setopt=logdir={folder}"]
        code, output = run(rootfs, ["dnf", "-q", *options, "check", "--dependencies"])
    except FileNotFoundError:
        return []  # nothing in this image resolves dependencies
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    return (
        (parse_checked(output) or ["dnf check: " + " ".join(output.split())[-300:]]) if code else []
    )


def broken_by(rootfs: str, folder: str, saved: Dict[str, Any], steps: Sequence[Step]) -> List[str]:
    """Dependencies that are met now and would not be after the steps of a restore. folder: of the
    saved state. Raises ValueError, OSError."""
    rows = {row["name"]: row for row in saved["packages"]}
    if not steps or any(
        step.after and kept_problem(rootfs, folder, rows[step.name]) for step in steps
    ):
        # in a preview a kept package may be damaged, and it is fetched again before this check
        return []
    before = set(parse_verified(run(rootfs, ["rpm", *VERIFY])[1]))
    view = private_folder(rootfs)
    try:
        return [
            line
            for line in _unmet_after(rootfs, view + "/db", folder, rows, steps)
            if line not in before
        ]
    finally:
        shutil.rmtree(place_of(rootfs, view), ignore_errors=True)


def _unmet_after(
    rootfs: str, database: str, folder: str, rows: Dict[str, Row], steps: Sequence[Step]
) -> List[str]:
    own = run(rootfs, ["rpm", "--eval", "%{_dbpath}"])[1].strip().splitlines()[-1]
    shutil.copytree(place_of(rootfs, own), place_of(rootfs, database))
    gone = [step.name for step in steps if step.after is None]
    files = [f"{folder}/{rows[step.name]['deb']}" for step in steps if step.after]
    for argv in ([["--erase", *gone]] if gone else []) + (
        [["--upgrade", "--force", "--ignoresize", *files]] if files else []
    ):
        code, output = run(rootfs, ["rpm", "--dbpath", database, *ALONE, *argv])
        if code:
            raise ValueError(
                "rpm refuses the rollback in a copy of its database:"
                f" {' '.join(output.split())[-300:]}; nothing was touched"
            )
    return parse_verified(run(rootfs, ["rpm", "--dbpath", database, *VERIFY])[1])
