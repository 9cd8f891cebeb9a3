"""The run folders that are there, and the one that a person names."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.core.errors import UserError
from unhang.core.run.findings import NODE_VERDICTS
from unhang.core.run.record import FINDINGS, read_findings_record
from unhang.core.run.run_folder import find_run, list_runs, read_run, runs_folder

NO_RUN = "there is no run to compare with yet; make one with: unhang audit"
_AGO = re.compile(r"([1-9][0-9]{0,4})([hdwmy])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "m": 30 * 24, "y": 365 * 24}


@dataclass(frozen=True)
class PastRun:
    """A run as its run.json has it; times are UTC. inventory: its paths; hosts: that were asked."""

    id: str
    folder: Path
    started: str
    finished: str | None
    limit: str | None
    inventory: tuple[str, ...]
    hosts: frozenset[str]

    @property
    def judged(self) -> bool:
        """Whether it was judged; a preview and a rollout, which read the nodes of a plan, are
        not."""
        return (self.folder / FINDINGS).is_file()

    @property
    def inventory_name(self) -> str:
        """`inventory/mycluster`: the end of each path, which distinguishes inventories."""
        return ", ".join("/".join(one.rstrip("/").split("/")[-2:]) for one in self.inventory)


def past_run(folder: Path) -> PastRun:
    """Raises UserError for what is no run folder."""
    document = read_run(folder).document
    inventory = document.get("inventory")
    paths = inventory if isinstance(inventory, list) else [inventory] if inventory else []
    return PastRun(
        document["id"],
        folder,
        str(document.get("started") or ""),
        document.get("finished"),
        document.get("limit"),
        tuple(map(str, paths)),
        frozenset(document["hosts"]),
    )


def past_runs(beside: Path | None = None) -> list[PastRun]:
    """The judged runs of a folder of runs, oldest first. beside: one of its runs; None: the usual
    folder."""
    found = []
    for folder in list_runs(beside.resolve().parent if beside else runs_folder()):
        with contextlib.suppress(UserError):  # unhang judge reports what cannot be read
            found.append(past_run(folder))
    judged = [run for run in found if run.judged]
    return sorted(judged, key=lambda run: (run.started, run.id))


def counts(run: PastRun) -> tuple[int, ...]:
    """Nodes by verdict, in the order of NODE_VERDICTS. Raises UserError."""
    found = read_findings_record(run.folder).node_verdicts
    return tuple(len(found.get(name, ())) for name in NODE_VERDICTS)


def named(name: str) -> PastRun:
    """By id, by the beginning of one, by its folder, or `latest`. Raises UserError."""
    return past_run(find_run(name))


def run_before(run: PastRun) -> PastRun | None:
    """The run of the same inventory before this one; None for the first."""
    return earlier_of(run, past_runs(run.folder))


def earlier_of(run: PastRun, runs: Sequence[PastRun]) -> PastRun | None:
    """The last of the runs with the same inventory that began before this one and asked all of its
    nodes; where there is none, the last that asked some."""
    same = [
        one
        for one in runs
        if one.inventory == run.inventory and (one.started, one.id) < (run.started, run.id)
    ]
    whole = [one for one in same if run.hosts <= one.hosts]
    return (whole or same)[-1] if same else None


def last_two() -> tuple[PastRun, PastRun]:
    """The run that began last, and the one before it of the same inventory. Raises UserError."""
    runs = past_runs()
    if not runs:
        raise UserError(NO_RUN)
    if before := earlier_of(runs[-1], runs):
        return before, runs[-1]
    others = (
        f"; for another inventory: unhang history diff {runs[-2].id} latest" if runs[:-1] else ""
    )
    raise UserError(
        f"{runs[-1].id} is the only run of {runs[-1].inventory_name}: there is nothing yet to"
        f" compare it with{others}"
    )


def run_at(since: str, now: datetime.datetime) -> PastRun:
    """The last run that began before the moment that `since` names; the first one when none did.
    now: UTC, with its zone. Raises UserError."""
    moment = moment_of(since, now).strftime("%Y-%m-%dT%H:%M:%SZ")
    runs = past_runs()
    if not runs:
        raise UserError(NO_RUN)
    return ([run for run in runs if run.started < moment] or runs[:1])[-1]


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
            f"{option} takes yesterday, 12h, 3d, 2w, or a day such as 2026-11-20, not {since!r}"
        ) from None
    return found.astimezone(datetime.UTC) if found.tzinfo else found.replace(tzinfo=datetime.UTC)
