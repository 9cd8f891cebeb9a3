"""The runs in the history, and the one that a person names."""

from __future__ import annotations

import datetime
import difflib
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from unhang.core.errors import UserError

_COLUMNS = (
    "seq, id, folder, started, finished, host_limit, judged, policy, critical, error, warning,"
    " unread, healthy"
)
_AGO = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True)
class RunRow:
    """A run; times are UTC as run.json has them. judged: the day, None when it was not judged; then
    the counts are None too. inventory: JSON, of its paths."""

    seq: int
    id: str
    folder: str
    started: str
    finished: str | None
    limit: str | None
    judged: str | None
    policy: str | None
    critical: int | None
    error: int | None
    warning: int | None
    unread: int | None
    healthy: int | None
    nodes: int = 0
    inventory: str | None = None
    no_gpu: int | None = None


def run_rows(connection: sqlite3.Connection, most: int | None = None) -> list[RunRow]:
    """The newest `most` runs, oldest first; None: all."""
    counted = f"SELECT {_COLUMNS}, (SELECT count(*) FROM visits WHERE run = seq), inventory, no_gpu FROM runs ORDER BY seq DESC LIMIT ?"  # noqa: E501, S608
    return [RunRow(*row) for row in connection.execute(counted, (-1 if most is None else most,))][
        ::-1
    ]


def run_named(connection: sqlite3.Connection, named: str) -> RunRow:
    """By id, by the beginning of one that no other has, by its folder, or `latest`. Raises
    UserError."""
    rows = run_rows(connection)
    if not rows:
        raise UserError(
            "expected a run in the history, found none yet; make one with: unhang audit"
        )
    wanted = Path(named).name if "/" in named else named
    if wanted == "latest":
        return rows[-1]
    found = [row for row in rows if row.id == wanted] or [
        row for row in rows if wanted and row.id.startswith(wanted)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"expected one run, found {len(found)} whose id begins with {wanted!r}:"
            f" {', '.join(row.id for row in found[-3:])}"
        )
    near = difflib.get_close_matches(wanted, [row.id for row in rows], 1)
    raise UserError(
        f"expected a run of the history, found none named {wanted!r}; "
        + (f"did you mean {near[0]}?" if near else "list them with: unhang runs")
    )


def run_before(connection: sqlite3.Connection, since: str, now: datetime.datetime) -> RunRow:
    """The last run that began before the moment that `since` names; the first one when none did.
    now: UTC, with its zone. Raises UserError."""
    moment = moment_of(since, now).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = run_rows(connection)
    if not rows:
        raise UserError(
            "expected a run in the history, found none yet; make one with: unhang audit"
        )
    earlier = [row for row in rows if row.started < moment]
    return earlier[-1] if earlier else rows[0]


def moment_of(since: str, now: datetime.datetime, option: str = "--since") -> datetime.datetime:
    """yesterday (the state that yesterday's last run left), 12h, 3d, 2w, 2026-11-20,
    2026-11-20T14:00. All UTC. Raises UserError."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if since in ("yesterday", "today"):
        return today
    if ago := _AGO.fullmatch(since):
        return now - datetime.timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
    try:
        found = datetime.datetime.fromisoformat(since)
    except ValueError:
        raise UserError(
            f"{option}: expected yesterday, 12h, 3d, 2w, or a day such as 2026-11-20, found"
            f" {since!r}"
        ) from None
    return found.astimezone(datetime.UTC) if found.tzinfo else found.replace(tzinfo=datetime.UTC)
