"""Holds, pins and the blacklist of unattended-upgrades, because each alone can be bypassed. Values
in, values out; only plan_holds and plan_pin read. An explicit install ignores a hold, a pin does
not prevent a removal, and unattended-upgrades reads its blacklist before both."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from ....base.parse.dpkg import Database, Package
from ...atomic_files import place_of, read_text_or_none
from ...config.setting_files import OWN
from ..held_groups import GROUPS, chosen_packages, dpkg_name
from ..values import HoldPlan

PIN_FILE = "/etc/apt/preferences.d/unhang-package-hold"
BLACKLIST_FILE = "/etc/apt/apt.conf.d/52unhang-package-hold"
PRIORITY = 1001  # above 1000 apt also downgrades to it (apt_preferences(5))
# New packages that would replace held ones, because a new kernel has a new name.
PATTERNS = {
    "driver": (
        "nvidia-driver",
        "nvidia-kernel",
        "nvidia-dkms",
        "nvidia-open",
        "nvidia-fabricmanager",
        "linux-modules-nvidia-",
        "cuda-drivers",
    ),
    "kernel": ("linux-image-", "linux-headers-", "linux-modules-"),
    "nccl": ("libnccl",),
    "ofed": ("mlnx-", "ofed-", "doca-ofed"),
}


def plan_holds(
    rootfs: str, database: Database, groups: Sequence[str], state: Dict[str, Any]
) -> HoldPlan:
    """The plan of plan_files_and_holds for the node's files. Raises OSError, ValueError."""
    texts = {path: read_text_or_none(place_of(rootfs, path)) for path in (PIN_FILE, BLACKLIST_FILE)}
    return plan_files_and_holds(database, groups, state, texts)


def plan_files_and_holds(
    database: Database,
    groups: Sequence[str],
    state: Mapping[str, Any],
    texts: Mapping[str, Optional[str]],
) -> HoldPlan:
    """Plans holds, pins and blacklist. state: what unhang saved before; texts: {PIN_FILE,
    BLACKLIST_FILE: present text or None}."""
    packages = chosen_packages(database, groups)
    wanted = {dpkg_name(package) for package in packages}
    held = {dpkg_name(package) for package in database.packages if package.held}
    ours = set(state.get("holds", ()))
    hold, unhold = sorted(wanted - held), sorted((ours - wanted) & held)
    after = {PIN_FILE: pin_text(packages), BLACKLIST_FILE: blacklist_text(packages, groups)}
    changes, skipped = {}, []
    for path in sorted(after):
        before = texts[path]
        if before is not None and OWN[2:] not in before:
            skipped.append(
                f"somebody else wrote {path}, which is not unhang's own file; it stays as it is"
            )
        elif before != after[path]:
            changes[path] = (before, after[path])
    kept = sorted((ours & wanted) | set(hold))
    return HoldPlan(
        hold=hold,
        unhold=unhold,
        texts=changes,
        state={"holds": kept} if wanted else {},
        needs_manual_action=skipped,
    )


def pin_text(packages: Iterable[Package]) -> Optional[str]:
    """apt preferences that keep each package at its version, None without packages."""
    versions = sorted({(package.name, package.version) for package in packages})
    return pin_stanzas_text([{"package": name, "version": version} for name, version in versions])


def blacklist_text(packages: Sequence[Package], groups: Sequence[str]) -> Optional[str]:
    """apt configuration that excludes these packages from unattended-upgrades, None without
    packages. Each entry is a regular expression that matches at a name's beginning."""
    if not packages:
        return None
    exact = sorted({re.escape(package.name).replace("\\-", "-") + "$" for package in packages})
    entries = exact + [
        pattern for group in GROUPS if group in groups for pattern in PATTERNS[group]
    ]
    lines = [f'  "{entry}";' for entry in entries]
    return (
        "\n".join(["// " + OWN[2:], "Unattended-Upgrade::Package-Blacklist {", *lines, "};"]) + "\n"
    )


def pin_stanzas_text(stanzas: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """A preferences file, None without stanzas. stanzas: [{package: name, pattern or src:NAME,
    version: exact or a pattern}]. Raises ValueError.

    For all packages of a source, in a file of their own, so that packages that must have the same
    version stay together, also in a downgrade.
    """
    parts = []
    for stanza in stanzas:
        package, version = str(stanza.get("package") or ""), str(stanza.get("version") or "")
        if not package.strip() or not version.strip() or "\n" in package + version:
            raise ValueError(
                f"a pin needs a package and a version, each of one line, and this is {stanza!r}"
            )
        parts.append(f"Package: {package}\nPin: version {version}\nPin-Priority: {PRIORITY}\n")
    return OWN + "\n\n" + "\n".join(parts) if parts else None


def plan_pin(
    rootfs: str, path: str, stanzas: Sequence[Mapping[str, Any]]
) -> Tuple[Optional[str], Optional[str]]:
    """(before, after) of the file's text; None means no file. Raises OSError, and ValueError if
    somebody else wrote it."""
    if not path.startswith("/etc/apt/preferences.d/") or "." in path.rsplit("/", 1)[1]:
        raise ValueError(
            f"apt passes over {path}: a file of /etc/apt/preferences.d must be without a dot in its"
            " name"
        )
    before: Optional[str] = read_text_or_none(place_of(rootfs, path))
    if before is not None and OWN[2:] not in before:
        raise ValueError(
            f"somebody else wrote {path}, which is not unhang's own file; move it away after a look"
        )
    return before, pin_stanzas_text(stanzas)
