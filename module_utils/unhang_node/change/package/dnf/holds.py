"""The version lock of dnf 4 and dnf 5. Values in, values out; only plan_holds reads."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ....base.parse.dpkg import Database, Package
from ....base.parse.rpm_locks import parse_versionlock, parse_versionlock_toml
from ....base.root import Root
from ...atomic_files import place_of, read_text_or_none
from ..held_groups import NotPossible, chosen_packages
from ..values import HoldPlan

DNF4_LOCKS = "/etc/dnf/plugins/versionlock.list"
DNF5_LOCKS = "/etc/dnf/versionlock.toml"
DNF4_PLUGIN = "/etc/dnf/plugins/versionlock.conf"
DNF5 = "/usr/bin/dnf5"
TOML_HEAD = 'version = "1.0"\n'


def plan_holds(
    rootfs: str, database: Database, groups: Sequence[str], state: Dict[str, Any]
) -> HoldPlan:
    """The plan of plan_locks for the node's file. Raises NotPossible without the versionlock
    plugin, OSError, ValueError."""
    path = lock_file(rootfs, bool(groups or state))
    return plan_locks(database, groups, state, path, read_text_or_none(place_of(rootfs, path)))


def lock_file(rootfs: str, needed: bool) -> str:
    """Path of dnf's version locks on this node. Raises NotPossible if dnf could not read them."""
    root = Root([rootfs])
    if root.exists(DNF4_PLUGIN):
        return DNF4_LOCKS
    if root.exists(DNF5) or not needed:
        return DNF5_LOCKS
    raise NotPossible("dnf's versionlock is not installed; install python3-dnf-plugin-versionlock")


def plan_locks(
    database: Database,
    groups: Sequence[str],
    state: Mapping[str, Any],
    path: str,
    text: Optional[str],
) -> HoldPlan:
    """path: DNF4_LOCKS or DNF5_LOCKS; text: its present content, or None. Others' entries stay;
    only entries that unhang added are removed."""
    packages = chosen_packages(database, groups)
    entry = _list_entry if path == DNF4_LOCKS else _toml_entry
    known = (
        parse_versionlock(text or "") if path == DNF4_LOCKS else parse_versionlock_toml(text or "")
    )
    others = {(name, pin) for _line, name, pin in known}
    added = [
        entry(package)
        for package in packages
        if entry(package) in state.get("locks", ()) or _pin(package, path) not in others
    ]
    after = _lock_text(text or "", state.get("locks", ()), added, path)
    if state.get("made") and path == DNF5_LOCKS and after.strip() in ("", TOML_HEAD.strip()):
        # unhang created the file; but dnf 4 fails if its list is missing, so dnf 4's file stays
        after_or_none = None
    else:
        after_or_none = after
    changes = (
        {}
        if after_or_none == text or (text is None and not after_or_none)
        else {path: (text, after_or_none)}
    )
    saved = {"locks": added, "made": state.get("made", text is None)} if added else {}
    return HoldPlan(hold=[], unhold=[], texts=changes, state=saved, needs_manual_action=[])


def _lock_text(text: str, removed: Sequence[str], added: List[str], path: str) -> str:
    for old in removed:
        text = text.replace(old, "", 1)
    if added and path == DNF5_LOCKS and "version" not in text.split("[[", 1)[0]:
        text = TOML_HEAD + text
    if added and text and not text.endswith("\n"):
        text += "\n"
    return text + "".join(added)


def _epoch_and_release(package: Package) -> Tuple[str, str]:
    """(epoch, version-release) of a package that the rpm reader returned."""
    epoch, colon, rest = package.version.partition(":")
    return (epoch, rest) if colon else ("0", package.version)


def _list_entry(package: Package) -> str:
    epoch, release = _epoch_and_release(package)
    return f"{package.name}-{epoch}:{release}.*\n"


def _toml_entry(package: Package) -> str:
    epoch, release = _epoch_and_release(package)
    head = f'[[packages]]\nname = "{package.name}"\n[[packages.conditions]]\n'
    return head + f'key = "evr"\ncomparator = "="\nvalue = "{epoch}:{release}"\n'


def _pin(package: Package, path: str) -> Tuple[str, str]:
    """unhang's own entry, in the form in which lock files are read."""
    epoch, release = _epoch_and_release(package)
    return (
        (package.name, f"version {release}")
        if path == DNF4_LOCKS
        else (package.name, f"evr = {epoch}:{release}")
    )
