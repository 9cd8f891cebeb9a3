"""What became of the watcher's verdicts: one line of JSON for each watch, and their sum.

A verdict is right where the job then failed, was cancelled or killed, wrong where the job went on
for a minute or ended well, and not known where nobody saw the end or the watcher ended the job.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unhang.core import project
from unhang.core.errors import UserError
from unhang.core.run.private_file import open_private
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.core.text import counted, visible

SCHEMA = "unhang/watched/1"
RECORD_ENV = "UNHANG_WATCHED"
RIGHT, WRONG, UNKNOWN = "right", "wrong", "not known"
# a watchdog that ends the job writes to its log for some seconds, which is no work
GOES_ON_S = 60.0
MOST_VERDICTS = 100  # of one watch
MOST_BYTES = 256 * 1024 * 1024
FAILED, WELL, UNSEEN = "failed", "ended well", "not seen"  # how a job ended


@dataclass
class Verdict:
    """at_s: seconds since the watch began; would: it would have ended the job; acted: it did."""

    at_s: float
    headline: str
    would: bool = False
    acted: bool = False
    became: str = ""
    moved_s: float | None = field(default=None, repr=False)  # the first progress after it


@dataclass
class Record:
    """One watch. job: what it is called; host: of the watcher; began: seconds since 1970."""

    job: str
    host: str
    began: float = field(default_factory=time.time)
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0
    first_t: float | None = field(default=None, repr=False)

    def sampled(self, t: float, since_s: float) -> None:
        """Takes a moment. t: seconds of the sampler's clock; since_s: since the last progress."""
        self.first_t = t if self.first_t is None else self.first_t
        self.seconds = max(self.seconds, t - self.first_t)
        for verdict in self.verdicts:
            if verdict.became or since_s > 0:
                continue
            verdict.moved_s = t if verdict.moved_s is None else verdict.moved_s
            if t - verdict.moved_s >= GOES_ON_S:
                verdict.became = WRONG

    def hung(self, headline: str) -> None:
        """Takes a new verdict of a hang."""
        if len(self.verdicts) < MOST_VERDICTS:
            self.verdicts.append(Verdict(self.seconds, visible(headline, 400)))

    def would_end(self, acts: bool) -> bool:
        """Notes that the job would be ended, or is. Whether that is news."""
        if not self.verdicts or self.verdicts[-1].would:
            return False
        self.verdicts[-1].would, self.verdicts[-1].acted = True, acts
        return True

    def ended(self, how: str) -> None:
        """how: FAILED, WELL or UNSEEN."""
        for verdict in self.verdicts:
            if verdict.acted:
                verdict.became = UNKNOWN
            elif not verdict.became:
                verdict.became = {FAILED: RIGHT, WELL: WRONG}.get(how, UNKNOWN)

    def line(self) -> str:
        rows = [
            {name: value for name, value in asdict(one).items() if name != "moved_s"}
            for one in self.verdicts
        ]
        return json.dumps(
            {
                "schema": SCHEMA,
                "job": self.job,
                "host": self.host,
                "began": round(self.began, 1),
                "seconds": round(self.seconds, 1),
                "verdicts": rows,
            },
            separators=(",", ":"),
        )


def record_file(environ: Mapping[str, str]) -> Path | None:
    """$UNHANG_WATCHED, else watched.jsonl in the user's state folder; None without a home."""
    if named := environ.get(RECORD_ENV):
        return Path(named)
    folder = project.state_folder(environ)
    return folder / "watched.jsonl" if folder else None


def keep(record: Record, environ: Mapping[str, str]) -> str:
    """Appends the watch to its user's own file; "" or why that failed, which ends no watch."""
    path = record_file(environ)
    if path is None:
        return ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, f"{record.line()}\n".encode())
        finally:
            os.close(handle)
    except (OSError, UserError) as problem:
        return f"this watch is not in the record {visible(str(path), 200)}: {problem}"
    return ""


def read_records(paths: Sequence[Path]) -> tuple[list[dict[str, Any]], int]:
    """(watches, lines that are none). Raises UserError for a file that cannot be read."""
    found: list[dict[str, Any]] = []
    strange = 0
    for path in paths:
        try:
            text = read_bounded(path, MOST_BYTES).decode("utf-8", "replace")
        except (OSError, NotStrict) as problem:
            raise UserError(f"--record: {visible(str(path), 200)}: {problem}") from None
        for line in filter(None, text.splitlines()):
            row = _row(line)
            strange += row is None
            found += [row] if row else []
    return found, strange


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = parse_strictly(line)
    except NotStrict:
        return None
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        return None
    rows = row.get("verdicts")
    is_one = (
        all(isinstance(row.get(name), str) for name in ("job", "host"))
        and all(isinstance(row.get(name), (int, float)) for name in ("began", "seconds"))
        and isinstance(rows, list)
        and all(isinstance(one, dict) and one.get("became") in (RIGHT, WRONG, UNKNOWN)
                for one in rows)
    )  # fmt: skip
    return row if is_one else None


def summed(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """{watches, jobs, job_hours, verdicts: {became: count}, would: {became: count}, alarms: per
    1,000 job-hours or None, wrong: [{job, host, headline}]}. A job that several nodes watched
    counts once, with its longest watch; its verdicts are those of all nodes, each headline once."""
    rows = list(rows)
    jobs: dict[str, float] = {}
    seen: dict[tuple[str, str, str], tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    for row in rows:
        # the numbers of processes come again, those of Slurm's jobs mean one job on all nodes
        job = row["job"] if row["job"].startswith("slurm ") else f"{row['host']} {row['began']}"
        jobs[job] = max(jobs.get(job, 0.0), row["seconds"])
        for one in row["verdicts"]:
            seen[job, str(one.get("headline")), one["became"]] = (row, one)
    hours = sum(jobs.values()) / 3600
    verdicts = Counter(one["became"] for _, one in seen.values())
    would = Counter(one["became"] for _, one in seen.values() if one.get("would"))
    wrong = [
        {"job": row["job"], "host": row["host"], "headline": one.get("headline", "")}
        for row, one in seen.values()
        if one["became"] == WRONG
    ]
    return {
        "watches": len(rows),
        "jobs": len(jobs),
        "job_hours": round(hours, 1),
        "verdicts": dict(verdicts),
        "would": dict(would),
        "alarms": round(1000 * verdicts[WRONG] / hours, 1) if hours >= 1 else None,
        "wrong": wrong,
    }


def render_sum(found: Mapping[str, Any], strange: int) -> str:
    """At most twelve lines for a person."""

    def parts(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{counts.get(name, 0)} {name}" for name in (RIGHT, WRONG, UNKNOWN))

    verdicts, would = found["verdicts"], found["would"]
    rate = (
        "less than one job-hour was watched"
        if found["alarms"] is None
        else f"{found['alarms']:g} false alarms per 1,000 job-hours"
    )
    lines = [
        f"watched: {counted(found['jobs'], 'job')}, {found['job_hours']:g} job-hours; {rate}",
        f"verdicts of a hang: {sum(verdicts.values())}: {parts(verdicts)}",
        f"would have ended, or ended: {counted(sum(would.values()), 'job')}: {parts(would)}",
    ]
    for one in found["wrong"][:6]:
        lines.append(
            f"  wrong: {visible(one['job'], 60)} on {visible(one['host'], 60)}:"
            f" {visible(one['headline'], 200)}"
        )
    if len(found["wrong"]) > 6:
        lines.append(f"  and {len(found['wrong']) - 6} more that were wrong")
    if strange:
        lines.append(f"{counted(strange, 'line')} not read: no watch's record")
    return "\n".join(lines) + "\n"
