"""The runs in the history, and the one that a person names."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import json
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.core.errors import UserError

_COLUMNS = (
    "seq, id, folder, started, finished, host_limit, judged, policy, critical, error, warning,"
    " unread, healthy"
)
NO_RUN = "expected a run in the history, found none yet; make one with: unhang audit"
_AGO = re.compile(r"([1-9][0-9]{0,4})([hdwmy])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "m": 30 * 24, "y": 365 * 24}


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


def with_paths(rows: Sequence[RunRow], runs: Path) -> list[RunRow]:
    """The rows, with the path of its folder for the id of a run that is not in `runs`: it is
    another checkout's."""
    here = runs.resolve()
    return [
        row
        if Path(row.folder).resolve().parent == here
        else dataclasses.replace(row, id=row.folder)
        for row in rows
    ]


def last_two(connection: sqlite3.Connection) -> tuple[RunRow, RunRow]:
    """The run that began last, and the one before it of the same inventory. Raises UserError."""
    rows = sorted(run_rows(connection), key=lambda row: (row.started, row.seq))
    if not rows:
        raise UserError(NO_RUN)
    now = rows.pop()
    same = [row for row in rows if row.inventory == now.inventory]
    if not same:
        others = (
            f"; name one of another inventory: unhang diff {rows[-1].id} latest" if rows else ""
        )
        raise UserError(
            f"expected two runs of {inventory_of(now)} in the history, found {now.id} alone:"
            f" there is nothing yet to compare it with{others}"
        )
    return same[-1], now


def hosts_of(connection: sqlite3.Connection, run: RunRow) -> frozenset[str]:
    """The nodes that any run of this run's inventory asked."""
    rows = connection.execute(
        "SELECT DISTINCT name FROM hosts JOIN visits ON visits.host = hosts.id"
        " JOIN runs ON runs.seq = visits.run WHERE runs.inventory IS ?",
        (run.inventory,),
    )
    return frozenset(name for (name,) in rows)


def inventory_of(row: RunRow) -> str:
    """`inventory/mycluster`: the end of each path, which distinguishes inventories."""
    try:
        given = json.loads(row.inventory or "null")
    except (ValueError, RecursionError):
        given = row.inventory
    paths = given if isinstance(given, list) else [given] if isinstance(given, str) else []
    return ", ".join("/".join(str(path).rstrip("/").split("/")[-2:]) for path in paths)


def run_named(connection: sqlite3.Connection, named: str) -> RunRow:
    """By id, by the beginning of one that no other has, by its folder, or `latest`. Raises
    UserError."""
    rows = run_rows(connection)
    if not rows:
        raise UserError(NO_RUN)
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
        raise UserError(NO_RUN)
    earlier = [row for row in rows if row.started < moment]
    return earlier[-1] if earlier else rows[0]


def moment_of(since: str, now: datetime.datetime, option: str = "--since") -> datetime.datetime:
    """yesterday (the state that yesterday's last run left), 12h, 3d, 2w, 6m, 1y, 2026-11-20,
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
