"""What other health monitors left on the node about it. Part of section `node`.

No monitor is asked: no program is started and no port is connected to, since any user may listen on
one. Their answers are read where they keep them, or where the site leaves them.
"""

from __future__ import annotations

import os
import stat

from ...base.parse.values import clean, parse_json
from ...base.section import Denied
from ...base.untrusted_files import names_or_none, open_regular, read_tail, read_text
from ..parse.monitors import OK, parse_document, parse_nhc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread
    from ..parse.monitors import Verdict

FOLDER = "/var/lib/unhang/monitors"
MOST_FILES = 16
BYTES = 4 << 20  # `kubectl get nodes -o json` has 10 KiB a node
NHC_LOG = "/var/log/nhc.log"
NHC_TAIL_BYTES = 64 << 10
STALE = "stale"
DAY_S = 86400.0
# A monitor whose answer is older than this no longer looks at the node.
STALE_AFTER_S = 7 * DAY_S
# NHC runs every few minutes and logs each failure, but by default no success: a failure that was
# not repeated for a day is over.
NHC_STALE_AFTER_S = DAY_S


def read_monitors(
    root: Root, unread: Unread, names: frozenset[str], now_s: float | None, uptime_s: float | None
) -> list[dict[str, Any]]:
    """[{source, path, of, verdict, counts_as, since, age_s, text}], those of one file together.

    names: by which a document of several nodes may call this one. counts_as: the verdict, or
    `stale` for one that is too old or from before the last boot. now_s, uptime_s: the node's clock
    and how long it runs, None for recorded files, whose times mean nothing: age_s is null then.
    Raises OSError for a folder that cannot be listed.
    """
    rows = _read_nhc(root, unread, now_s, uptime_s)
    for name in names_or_none(root, FOLDER)[:MOST_FILES]:
        path = FOLDER + "/" + name
        if not name.endswith(".json"):
            continue
        found = unread.attempt(f"monitors[{clean(name, 256)}]", _read_document, root, path, names)
        if found is not None:
            source, verdicts, changed_s = found
            age_s = _age_s(changed_s, now_s)
            rows += _as_rows(source, path, verdicts, age_s, uptime_s, STALE_AFTER_S)
    return rows


def _read_nhc(
    root: Root, unread: Unread, now_s: float | None, uptime_s: float | None
) -> list[dict[str, Any]]:
    found = unread.attempt("monitors[nhc]", _read_nhc_log, root)
    if found is None:
        return []
    age_s = _age_s(found[1], now_s)
    return _as_rows("nhc", NHC_LOG, found[0], age_s, uptime_s, NHC_STALE_AFTER_S)


def _read_nhc_log(root: Root) -> tuple[list[Verdict], float] | None:
    try:
        changed_s = _changed_s(root, NHC_LOG)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return parse_nhc(read_tail(root, NHC_LOG, NHC_TAIL_BYTES).decode("utf-8", "replace")), changed_s


def _read_document(
    root: Root, path: str, names: frozenset[str]
) -> tuple[str, list[Verdict], float]:
    """(monitor, verdicts, time of the file). Raises OSError and ValueError."""
    changed_s = _changed_s(root, path)
    try:
        source, rows = parse_document(parse_json(read_text(root, path, BYTES, follow=False)), names)
    except ValueError as problem:
        raise ValueError(clean(f"{path}: {problem}", 512)) from None
    return source, rows, changed_s


def _changed_s(root: Root, path: str) -> float:
    """When a file was last written. Raises Denied where every user may write it."""
    descriptor = open_regular(root, path, follow=False)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if status.st_mode & stat.S_IWOTH:
        raise Denied(f"{path}: every user may write it, so it is nobody's verdict")
    return status.st_mtime


def _age_s(changed_s: float, now_s: float | None) -> float | None:
    return None if now_s is None else round(max(0.0, now_s - changed_s), 1)


def _as_rows(
    source: str,
    path: str,
    verdicts: list[Verdict],
    age_s: float | None,
    uptime_s: float | None,
    stale_after_s: float,
) -> list[dict[str, Any]]:
    too_old = age_s is not None and (
        age_s > stale_after_s or (uptime_s is not None and age_s > uptime_s)
    )
    return [
        {
            "source": source,
            "path": clean(path, 512),
            **row,
            "counts_as": STALE if too_old and row["verdict"] != OK else row["verdict"],
            "age_s": age_s,
        }
        for row in verdicts
    ]
