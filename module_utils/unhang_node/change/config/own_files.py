"""Configuration files of unhang's own on a node, and lines of others that would override them,
which are disabled in place.

No line of others is lost: disabled lines are saved under /var/lib/unhang before a file changes, and
restored when unhang's file is removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Tuple

from ..atomic_files import place_of, read_text_or_none, shown, state_path, write_texts
from ..journal.saved_states import keep_files
from .disabled_lines import MARK, Change, ManualStep
from .disabled_record import forget_changes, plan_restore, save_changes
from .masking import mask_urls, masked_diff
from .setting_files import OWN, NotUnderstood
from .shared_files import why_shared


class FilePlan(NamedTuple):
    """The planned changes of files."""

    # {path: (before, after)}, after None for a file to remove
    texts: Mapping[str, tuple[str | None, str | None]] = MappingProxyType({})
    changes: Sequence[Change] = ()  # lines of others that are disabled
    manual: Sequence[ManualStep | str] = ()  # changes that a person has to make


Effect = Tuple[str, Any, Any]  # (name, before, after) of changes of the running system
# drop-in folders of units, and unhang's own: removed together with the last file in them
OWN_FOLDERS = ("/etc/systemd/", "/etc/unhang/")
FIRST_WORD = OWN.split(".", 1)[0] + "."  # "Written by unhang", after any comment sign


def own_text(path: str, before: str | None, lines: Sequence[str], sign: str = "#") -> str | None:
    """The text of one of unhang's files, None for no lines. sign: begins a comment in it. Raises
    NotUnderstood if somebody else wrote the file."""
    if before is not None and FIRST_WORD.lstrip("# ") not in before:
        raise NotUnderstood(
            f"{path}: expected a file of unhang's own, found one that somebody else wrote; move it"
            " away after a look"
        )
    if not lines:
        return None
    return "\n".join([sign + OWN.lstrip("#"), *lines]) + "\n"


def plan_own(
    rootfs: str,
    wanted: Mapping[str, Sequence[str]],
    sign: str = "#",
    others: Iterable[tuple[str, int, str]] = (),
) -> FilePlan:
    """FilePlan. wanted: {path: [line]}, an empty list removes unhang's file. others: [(path,
    number, line)] to disable.

    A line of others in a file that other nodes read too is named for a person. Raises
    NotUnderstood, OSError, ValueError; changes nothing.
    """
    texts, changes, manual = {}, [], []
    for path, lines in sorted(wanted.items()):
        why = why_shared(rootfs, path)
        if why:
            raise NotUnderstood(f"{path}: {why}")
        before = read_text_or_none(place_of(rootfs, path))
        after = own_text(path, before, lines, sign)
        if after != before:
            texts[path] = (before, after)
    for path, number, line in others:
        why = why_shared(rootfs, path)
        if why:
            manual.append(
                ManualStep(
                    file=path,
                    line=number,
                    why=f"{mask_urls(shown(line).strip()[:120])!r} contradicts the policy: {why}",
                )
            )
            continue
        before = texts[path][0] if path in texts else read_text_or_none(place_of(rootfs, path))
        rows = ((texts[path][1] if path in texts else before) or "").split("\n")
        change = Change(
            file=path,
            line=number,
            before=rows[number - 1],
            after=sign + " " + MARK + rows[number - 1],
        )
        rows[number - 1] = change.after
        texts[path] = (before, "\n".join(rows))
        changes.append(change)
    return FilePlan(texts=texts, changes=changes, manual=manual)


def plan_gone(rootfs: str, owner: str, paths: Iterable[str]) -> FilePlan:
    """FilePlan that removes unhang's files at `paths` and restores every line that `owner`
    disabled. Raises the same as plan_own."""
    texts, manual = plan_restore(rootfs, owner)
    return FilePlan(
        texts={**plan_own(rootfs, {path: [] for path in paths}).texts, **texts}, manual=manual
    )


def write_plan(
    rootfs: str,
    owner: str | None,
    plan: FilePlan,
    absent: bool,
    state_id: str,
    more: Sequence[str] = (),
) -> None:
    """Writes a FilePlan. absent: whether unhang's files are removed. owner: None if no line of
    others is disabled. Raises OSError, ValueError.

    state_id: the saved state that keeps the former content of these files and of those at `more`.
    """
    if plan.texts or absent or more:
        keep_files(
            rootfs,
            state_id,
            sorted(plan.texts) + ([state_path(owner)] if owner else []) + list(more),
        )
    if plan.changes and owner:
        save_changes(rootfs, owner, plan.changes)
    write_files(rootfs, plan.texts)
    if absent and owner:
        forget_changes(rootfs, owner)


def write_files(rootfs: str, texts: Mapping[str, tuple[str | None, str | None]]) -> None:
    """Writes {path: (before, after)}, and removes unhang's folders that are empty then. Raises
    OSError."""
    write_texts(rootfs, texts)
    for path in [path for path, (_before, after) in texts.items() if after is None]:
        if path.startswith(OWN_FOLDERS):
            # fails, as it should, if somebody else has a file in it
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(place_of(rootfs, path)))


def module_result(plan: FilePlan, effects: Sequence[Effect] = ()) -> dict[str, Any]:
    """A module's result for a FilePlan. effects: [(what, before, after)] of the running system,
    None for none."""
    diff = [
        masked_diff(before, after, path) for path, (before, after) in sorted(plan.texts.items())
    ]
    diff += [
        {"before": f"{old}\n", "after": f"{new}\n", "before_header": what, "after_header": what}
        for what, old, new in effects
    ]
    return {
        "changed": bool(plan.texts or effects),
        "before": {what: old for what, old, _new in effects},
        "after": {what: new for what, _old, new in effects},
        "files": sorted(plan.texts),
        "lines": [
            {"file": change.file, "line": change.line, "text": mask_urls(shown(change.before))}
            for change in plan.changes
        ],
        "needs_manual_action": [
            (
                row._asdict()
                if isinstance(row, ManualStep)
                else {"file": None, "line": None, "name": None, "why": row}
            )
            for row in plan.manual
        ],
        "diff": diff,
    }
