"""Finds the settings to disable, with the reader that the audit uses, and plans their files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...base.root import Root
from ...base.section import Unread
from ...base.untrusted_files import read_mounts_or_none
from ...facts.sections.nccl import read_system_settings
from ..atomic_files import Texts, place_of, read_text_or_none
from .disabled_lines import Change, ManualStep, plan_file


def plan_disable(
    rootfs: str, names: Iterable[str], settings: Mapping[str, str]
) -> tuple[Texts, list[Change], list[ManualStep]]:
    """({path: (before, after)}, [Change], [ManualStep]). names: of the settings to disable;
    settings: {name: value}: a line with this value stays."""
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


def _rows(
    rootfs: str, names: Collection[str], settings: Mapping[str, str]
) -> tuple[dict[tuple[str, str], list[tuple[int, str]]], list[ManualStep]]:
    """{(path, source): [(line, name)]}, and the files that could not be read."""
    root, unread = Root([rootfs]), Unread()
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in read_system_settings(root, unread, read_mounts_or_none(root)).settings:
        if (
            row.name in names
            and row.value is not None
            and row.line
            and row.value != settings.get(row.name)
        ):
            found.setdefault((row.file, row.source), []).append((row.line, row.name))
    manual = [
        ManualStep(why=f"{row['field']}: {row['reason']}")
        for row in unread.rows
        if row["field"] == "settings"
    ]
    return found, manual
