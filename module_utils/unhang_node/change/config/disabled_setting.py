"""Finds the settings that are to lose their effect with the same reader that the audit uses, and changes their files."""

from __future__ import annotations

from ...files import read_mounts_or_none
from ...root import Root
from ...section import Unread
from ...sections.nccl import read_system_settings
from ..files import place_of, read_state, read_text_or_none, write_state, write_text
from .disabled_lines import Left, plan_file, restored_text


def plan_aside(rootfs, names, settings):
    """({path: (before, after)}, [Change], [Left]). names: to be taken out of effect; settings: {name: value} that may stay where the value is that one."""
    found, left = _rows(rootfs, frozenset(names), settings)
    texts, changes = {}, []
    for (path, source), rows in sorted(found.items()):
        before = read_text_or_none(place_of(rootfs, path))
        if before is None:
            continue
        text = texts[path][1] if path in texts else before
        after, done, more = plan_file(path, source, text, rows)
        left.extend(more)
        changes.extend(done)
        if after != text:
            texts[path] = (before, after)
    return texts, changes, left


def _rows(rootfs, names, settings):
    """{(path, source): [(line, name)]}, and what could not be read."""
    root, unread = Root([rootfs]), Unread()
    found = {}
    for row in read_system_settings(root, unread, read_mounts_or_none(root)).settings:
        if row.name in names and row.value is not None and row.line and row.value != settings.get(row.name):
            found.setdefault((row.file, row.source), []).append((row.line, row.name))
    left = [Left(None, None, None, "{}: {}".format(row["field"], row["reason"])) for row in unread.rows if row["field"] == "settings"]
    return found, left


def save_changes(rootfs, state_name, changes):
    """Adds the lines to what the role saved on this node; before any file is changed."""
    state = read_state(rootfs, state_name)
    files = state.setdefault("set_aside", {})
    for change in changes:
        pair = [change.before, change.after]
        if pair not in files.setdefault(change.file, []):
            files[change.file].append(pair)
    write_state(rootfs, state_name, state)


def write_texts(rootfs, texts):
    """Writes {path: (before, after)}. Raises OSError."""
    for path, (_before, after) in sorted(texts.items()):
        write_text(place_of(rootfs, path), after)


def plan_restore(rootfs, state_name):
    """({path: (before, after)}, [Left]) that puts back every line that was set aside."""
    texts, left = {}, []
    for path, pairs in sorted(read_state(rootfs, state_name).get("set_aside", {}).items()):
        before = read_text_or_none(place_of(rootfs, path))
        if before is None:
            left.append(Left(path, None, None, "the file is gone; its lines were: " + " | ".join(pair[0] for pair in pairs)[:300]))
            continue
        after, gone = restored_text(before, pairs)
        left.extend(Left(path, None, None, "no longer there to be put back: {!r}".format(line)) for line in gone)
        if after != before:
            texts[path] = (before, after)
    return texts, left


def forget_changes(rootfs, state_name):
    """After a restore."""
    state = read_state(rootfs, state_name)
    if state.pop("set_aside", None) is not None:
        write_state(rootfs, state_name, {} if set(state) <= {"schema"} else state)
