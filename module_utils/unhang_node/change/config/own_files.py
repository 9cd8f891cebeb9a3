"""Configuration files of unhang's own on a node, and lines of others that would override them,
which are disabled in place.

No line of others is lost: disabled lines are saved under /var/lib/unhang before a file changes, and
restored when unhang's file is removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Tuple

from ..atomic_files import Texts, place_of, read_text_or_none, shown, state_path, write_texts
from ..journal.saved_states import keep_files
from .disabled_lines import Change, ManualStep, disabled_line, is_continued, our_lines
from .disabled_record import forget_changes, plan_restore, save_changes
from .masking import mask_urls, masked_diff
from .setting_files import NotUnderstood, own_text
from .shared_files import why_shared


class FilePlan(NamedTuple):
    """The planned changes of files."""

    # {path: (before, after)}, after None for a file to remove
    texts: Mapping[str, tuple[str | None, str | None]] = MappingProxyType({})
    changes: Sequence[Change] = ()  # lines of others that are disabled
    manual: Sequence[ManualStep | str] = ()  # changes that a person has to make


class Row(NamedTuple):
    """A line of others to disable."""

    path: str
    number: int
    line: str = ""
    name: str = ""  # what it sets
    source: str | None = None  # the reader of its file; None: any line of it may be a comment


Effect = Tuple[str, Any, Any]  # (name, before, after) of changes of the running system
# drop-in folders of units, and unhang's own: removed together with the last file in them
OWN_FOLDERS = ("/etc/systemd/", "/etc/unhang/")


def plan_texts(rootfs: str, wanted: Mapping[str, Callable[[str | None], str | None]]) -> Texts:
    """{path: (before, after)}. wanted: by path, the text after for the text before. Raises
    NotUnderstood, OSError, ValueError; changes nothing."""
    texts: Texts = {}
    for path, after in sorted(wanted.items()):
        why = why_shared(rootfs, path)
        if why:
            raise NotUnderstood(f"{path}: {why}")
        before = read_text_or_none(place_of(rootfs, path))
        try:
            texts[path] = (before, after(before))
        except NotUnderstood as problem:
            raise NotUnderstood(f"{path}: {problem}") from None
    return texts


def changed(texts: Texts) -> Texts:
    """Those that differ."""
    return {path: pair for path, pair in texts.items() if pair[0] != pair[1]}


def plan_own(
    rootfs: str,
    wanted: Mapping[str, Sequence[str]],
    others: Iterable[tuple[str, int, str]] = (),
) -> FilePlan:
    """FilePlan. wanted: {path: [line]}, an empty list removes unhang's file. others: [(path,
    number, line)] to disable.

    A line of others in a file that other nodes read too is listed for a person. Raises the same as
    plan_texts.
    """
    texts = changed(
        plan_texts(rootfs, {path: partial(own_text, lines=rows) for path, rows in wanted.items()})
    )
    return plan_disabled(rootfs, [Row(*row) for row in others], texts)


def plan_disabled(rootfs: str, rows: Iterable[Row], texts: Texts) -> FilePlan:
    """FilePlan that disables these lines, beside other changes of files. What sets more than one
    name, and what other nodes read too, is listed for a person. Raises OSError, ValueError; changes
    nothing."""
    plan, changes, manual = dict(texts), [], []
    for path, number, found, name, source in sorted(set(rows), key=lambda row: row[:4]):
        why = why_shared(rootfs, path)
        if why:
            why = f"{_quoted(found)} contradicts the policy: {why}"
            manual.append(ManualStep(file=path, line=number, why=why))
            continue
        if path not in plan:
            plan[path] = (read_text_or_none(place_of(rootfs, path)),) * 2
        before, text = plan[path]
        lines = (text or "").split("\n")
        if number > len(lines) or number in our_lines(lines):
            continue
        line = lines[number - 1]
        after = disabled_line(path, source, line, name, is_continued(lines, number))
        if after is None:
            why = f"the line {_quoted(line)} does more than set {name}; take it out by hand"
            manual.append(ManualStep(file=path, line=number, name=name, why=why))
            continue
        plan[path] = (before, "\n".join([*lines[: number - 1], after, *lines[number:]]))
        changes.append(Change(file=path, line=number, before=line, after=after))
    return FilePlan(texts=changed(plan), changes=changes, manual=manual)


def _quoted(line: str) -> str:
    return repr(mask_urls(shown(line).strip()[:120]))


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
