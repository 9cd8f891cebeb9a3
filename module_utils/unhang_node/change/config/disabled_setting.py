"""Finds the settings to disable, with the reader that the audit uses, and changes their files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ...root import Root
from ...section import Unread
from ...sections.nccl import read_system_settings
from ...untrusted_files import read_mounts_or_none
from ..atomic_files import Texts, place_of, read_state, read_text_or_none, write_state, write_text
from .disabled_lines import Change, ManualStep, plan_file, restored_text


def plan_disable(rootfs: str, names: Iterable[str], settings: Mapping[str, str]) -> tuple[Texts, list[Change], list[ManualStep]]:
    """({path: (before, after)}, [Change], [ManualStep]). names: of the settings to disable; settings: {name: value}: a line with this value stays."""
    found, manual = _rows(rootfs, frozenset(names), settings)
    texts: dict[str, tuple[str | None, str | None]] = {}
    changes: list[Change] = []
    for (path, source), rows in sorted(found.items()):
        before = read_text_or_none(place_of(rootfs, path))
        if before is None:
            continue
        text = (texts[path][1] if path in texts else before) or ""
        after, done, more = plan_file(path, source, text, rows)
        manual.extend(more)
        changes.extend(done)
        if after != text:
            texts[path] = (before, after)
    return texts, changes, manual


def _rows(rootfs: str, names: Collection[str], settings: Mapping[str, str]) -> tuple[dict[tuple[str, str], list[tuple[int, str]]], list[ManualStep]]:
    """{(path, source): [(line, name)]}, and the files that could not be read."""
    root, unread = Root([rootfs]), Unread()
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in read_system_settings(root, unread, read_mounts_or_none(root)).settings:
        if row.name in names and row.value is not None and row.line and row.value != settings.get(row.name):
            found.setdefault((row.file, row.source), []).append((row.line, row.name))
    manual = [ManualStep(why=f"{row['field']}: {row['reason']}") for row in unread.rows if row["field"] == "settings"]
    return found, manual


def save_changes(rootfs: str, state_name: str, changes: Sequence[Change]) -> None:
    """Adds the lines to the role's saved state on this node, before any file is changed."""
    state = read_state(rootfs, state_name)
    files = state.setdefault("disabled", {})
    for change in changes:
        saved = [change.before, change.after, change.line]
        if saved not in files.setdefault(change.file, []):
            files[change.file].append(saved)
    write_state(rootfs, state_name, state)


def write_texts(rootfs: str, texts: Mapping[str, tuple[str | None, str | None]]) -> None:
    """Writes {path: (before, after)}. Raises OSError."""
    for path, (_before, after) in sorted(texts.items()):
        write_text(place_of(rootfs, path), after)


def plan_restore(rootfs: str, state_name: str) -> tuple[Texts, list[ManualStep]]:
    """({path: (before, after)}, [ManualStep]) that restores every line that was disabled."""
    texts: dict[str, tuple[str | None, str | None]] = {}
    manual = []
    for path, saved in sorted(read_state(rootfs, state_name).get("disabled", {}).items()):
        before = read_text_or_none(place_of(rootfs, path))
        if before is None:
            manual.append(ManualStep(file=path, why="the file is gone; its lines were: " + " | ".join(row[0] for row in saved)[:300]))
            continue
        after, gone = restored_text(before, [(row[0], row[1], row[2]) for row in saved])
        manual.extend(ManualStep(file=path, why=f"no longer there to be put back: {line!r}") for line in gone)
        if after != before:
            texts[path] = (before, after)
    return texts, manual


def forget_changes(rootfs: str, state_name: str) -> None:
    """Removes the saved lines after a restore."""
    state = read_state(rootfs, state_name)
    if state.pop("disabled", None) is not None:
        write_state(rootfs, state_name, {} if set(state) <= {"schema"} else state)
