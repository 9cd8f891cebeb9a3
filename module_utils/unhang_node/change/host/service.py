"""Starts a service now and at every boot, without `systemctl enable`: that reloads systemd, and
running containers would lose their GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.process import ProgramFailed, output_of
from ...base.root import Root
from ...facts.sections.reading import drop_ins
from ..config import unit_links
from .later_lines import values_without
from .limit_values import UNIT_FOLDERS, unit_path

AT_BOOT = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated")
RUNS = ("active", "activating", "reloading")
USUAL_TARGETS = frozenset(("multi-user.target", "graphical.target"))
PERSISTENCE, WITHOUT_PERSISTENCE = "nvidia-persistenced.service", "--no-persistence-mode"


def why_not_at_boot(rootfs: str, name: str) -> str | None:
    """The reason why the service has no effect when it starts at boot, or None: Ubuntu's packages
    start the persistence daemon with the mode off."""
    root = Root([rootfs])
    main = unit_path(root, name)
    if name != PERSISTENCE or main is None:
        return None
    command = ""
    for value in values_without(
        root,
        [main, *drop_ins(root, [f"{folder}/{name}.d" for folder in UNIT_FOLDERS])],
        "Service",
        "ExecStart",
    ):
        command = value or ""  # an empty ExecStart= removes the ones before it
    if WITHOUT_PERSISTENCE not in command.split():
        return None
    found = (
        f"{name} starts with {WITHOUT_PERSISTENCE}, so that each boot begins without persistence"
        " mode"
    )
    return f"{found}; give it an ExecStart without that (systemctl edit {name})"


def wanted_starters(now: Sequence[str], wanted: bool) -> list[str]:
    """Targets that are to start a service at boot. now: of unit_links.read_starters. A link of
    another target than the two usual ones is somebody's own."""
    if wanted:
        return list(now) if USUAL_TARGETS & set(now) else sorted([*now, "multi-user.target"])
    return sorted(set(now) - USUAL_TARGETS)


def write_starters(rootfs: str, name: str, targets: Sequence[str]) -> None:
    """Has exactly these targets start it at boot. Raises OSError."""
    unit_links.write_starters(
        rootfs, name, targets, unit_path(Root([rootfs]), name) or "/lib/systemd/system/" + name
    )


def why_not_started(rootfs: str, name: str, targets: Sequence[str]) -> str | None:
    """Why no target can start it at boot, or None."""
    return (
        f"{name} is not on this node, so that nothing starts it"
        if targets and unit_path(Root([rootfs]), name) is None
        else None
    )


def ask(verb: str, name: str) -> str:
    """systemctl's one-word answer. Its exit code is not used, because it is not 0 for most
    answers."""
    try:
        return output_of(["systemctl", verb, name]).strip()
    except ProgramFailed as problem:
        return str(problem).rpartition(": ")[2].split(" ")[0]


def plan_service(name: str) -> list[tuple[str, str, str]]:
    """[("at boot" or "now", before, after)]."""
    rows = []
    enabled, active = ask("is-enabled", name), ask("is-active", name)
    if enabled not in AT_BOOT:
        rows.append(("at boot", enabled, "enabled"))
    if active not in RUNS:
        rows.append(("now", active, "active"))
    return rows


def read_state(name: str, when: str) -> str | None:
    """What a service is "at boot" ("enabled", else systemctl's word) or "now" ("active" or
    "inactive"); None for a service that the node does not have."""
    if unit_path(Root(), name) is None:
        return None
    if when == "at boot":
        word = ask("is-enabled", name)
        return "enabled" if word in AT_BOOT else word
    return "active" if ask("is-active", name) in RUNS else "inactive"


def why_not_undone(name: str, before: str) -> str | None:
    """The reason why the service stays enabled at boot, or None."""
    return (
        None
        if before == "disabled"
        else f"is enabled at boot, and was {before}, which only a person can bring back"
    )


def undo_at_boot(name: str, _before: str) -> None:
    """Disables the service at boot. Raises ValueError with systemctl's message."""
    output_of(["systemctl", "--no-reload", "disable", name])


def undo_now(name: str, before: str) -> None:
    """Starts or stops the service, to restore its former state. Raises ValueError with systemctl's
    message."""
    output_of(["systemctl", "start" if before == "active" else "stop", name])


def apply_service(name: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Makes the changes of plan_service and reads them back. Raises ValueError with systemctl's
    message."""
    for when, _before, _after in rows:
        output_of(
            ["systemctl", "--no-reload", "enable", name]
            if when == "at boot"
            else ["systemctl", "start", name]
        )
    remaining = plan_service(name)
    if remaining:
        raise ValueError(
            f"{name} must run now and at boot, but it is {remaining[0][1]} {remaining[0][0]}"
        )
