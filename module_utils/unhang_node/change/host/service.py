"""Has a service run now and at every boot without `systemctl enable`, whose reload of systemd makes running containers lose their GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from ...process import ProgramFailed, output_of
from ...root import Root
from ...sections.reading import there
from .limits import UNIT_FOLDERS

AT_BOOT = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated")
RUNS = ("active", "activating", "reloading")


def unit_path(rootfs: str, name: str) -> str | None:
    """The unit's file, or None."""
    return next((folder + "/" + name for folder in UNIT_FOLDERS if there(Root([rootfs]), folder + "/" + name)), None)


def ask(verb: str, name: str) -> str:
    """What systemctl says in one word; it ends with another code than 0 for most of its answers."""
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
    """What a service is "at boot" ("enabled", else systemctl's word) or "now" ("active" or "inactive"); None for one that the node does not have."""
    if unit_path("/", name) is None:
        return None
    if when == "at boot":
        word = ask("is-enabled", name)
        return "enabled" if word in AT_BOOT else word
    return "active" if ask("is-active", name) in RUNS else "inactive"


def why_not_undone(name: str, before: str) -> str | None:
    """Why the service goes on being started at boot, or None."""
    return None if before == "disabled" else f"is enabled at boot, and was {before}, which only a person can bring back"


def undo_at_boot(name: str, _before: str) -> None:
    """Raises ValueError with systemctl's message."""
    output_of(["systemctl", "--no-reload", "disable", name])


def undo_now(name: str, before: str) -> None:
    """Starts or stops it, as it was. Raises ValueError with systemctl's message."""
    output_of(["systemctl", "start" if before == "active" else "stop", name])


def apply_service(name: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Raises ValueError with systemctl's message."""
    for when, _before, _after in rows:
        output_of(["systemctl", "--no-reload", "enable", name] if when == "at boot" else ["systemctl", "start", name])
    remaining = plan_service(name)
    if remaining:
        raise ValueError(f"{name}: expected it to run now and at boot, found it {remaining[0][1]} {remaining[0][0]}")
