"""The lines that a role disabled, saved on the node, and how they are restored. Apart from their
reader, which a restore does not need."""

from __future__ import annotations

from collections.abc import Sequence

from ..atomic_files import Texts, place_of, read_state, read_text_or_none, write_state
from .disabled_lines import Change, ManualStep, restored_text


def save_changes(rootfs: str, state_name: str, changes: Sequence[Change]) -> None:
    """Adds the lines to the role's saved state on this node, before any file is changed."""
    state = read_state(rootfs, state_name)
    files = state.setdefault("disabled", {})
    for change in changes:
        saved = [change.before, change.after, change.line]
        if saved not in files.setdefault(change.file, []):
            files[change.file].append(saved)
    write_state(rootfs, state_name, state)


def plan_restore(rootfs: str, state_name: str) -> tuple[Texts, list[ManualStep]]:
    """({path: (before, after)}, [ManualStep]) that restores every line that was disabled."""
    texts: dict[str, tuple[str | None, str | None]] = {}
    manual = []
    for path, saved in sorted(read_state(rootfs, state_name).get("disabled", {}).items()):
        before = read_text_or_none(place_of(rootfs, path))
        if before is None:
            manual.append(
                ManualStep(
                    file=path,
                    why="the file is gone; its lines were: "
                    + " | ".join(row[0] for row in saved)[:300],
                )
            )
            continue
        after, gone = restored_text(before, [(row[0], row[1], row[2]) for row in saved])
        manual.extend(
            ManualStep(file=path, why=f"no longer there to be put back: {line!r}") for line in gone
        )
        if after != before:
            texts[path] = (before, after)
    return texts, manual


def forget_changes(rootfs: str, state_name: str) -> None:
    """Removes the saved lines, and the saved value, after a restore."""
    state = read_state(rootfs, state_name)
    kept = {key: state[key] for key in state if key not in ("disabled", "running", "set", "schema")}
    if state:
        write_state(rootfs, state_name, kept)
