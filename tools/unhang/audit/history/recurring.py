"""Findings that come and go, waivers that end soon, and bandwidth of a node compared with its own
past."""

from __future__ import annotations

import datetime
import sqlite3
import statistics
from dataclasses import dataclass
from typing import Any

from unhang.audit.history.changes import parsed
from unhang.core.run.run_input import natural

FLAPPING = 3  # beginnings within the last runs: the finding went away and came back twice
RUNS = 30
WAIVER_DAYS = 14
SLOWER = 0.95  # share of the median of earlier results, below which a result is reported
_FLAPPING = """
SELECT rules.name, title, severity, place, hosts.name, count(*), max(f.to_run IS NULL)
FROM findings f JOIN problems p ON p.id = f.problem JOIN rules ON rules.id = p.rule JOIN hosts ON hosts.id = f.host
WHERE verdict = 'fail' AND f.from_run > (SELECT max(seq) FROM runs) - ? GROUP BY p.id, f.host HAVING count(*) >= ? ORDER BY 6 DESC, 1
"""  # noqa: E501
_WAIVED = """
SELECT rules.name, title, severity, waiver, hosts.name
FROM findings f JOIN problems p ON p.id = f.problem JOIN rules ON rules.id = p.rule JOIN hosts ON hosts.id = f.host
WHERE verdict = 'waived' AND f.to_run IS NULL
"""  # noqa: E501
_BANDWIDTH = """
SELECT hosts.name, op, size_bytes, world_size, busbw_gb_s, runs.id
FROM bandwidth b JOIN hosts ON hosts.id = b.host JOIN runs ON runs.seq = b.run WHERE ?1 IS NULL OR hosts.name = ?1 ORDER BY 1, 2, 3, 4, b.run
"""  # noqa: E501


@dataclass(frozen=True)
class Flapping:
    """Hosts on which a finding began that often. holds: whether some of them have it now."""

    rule: str
    title: str
    severity: str
    place: Any
    times: int
    holds: bool
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class EndingWaiver:
    """A waiver of a finding. days: until it ends, 0 for today, negative once it has ended."""

    rule: str
    title: str
    severity: str
    until: str
    days: int
    by: str
    reason: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class OwnPast:
    """The last result of a node alone, and the median of its earlier results. ratio: of the two;
    None with fewer than two earlier results."""

    host: str
    op: str
    size_bytes: int
    ranks: int
    run: str
    busbw_gb_s: float
    median_gb_s: float | None
    earlier: int
    ratio: float | None

    @property
    def slower(self) -> bool:
        """Whether the result is so slow that it is reported."""
        return self.ratio is not None and self.ratio < SLOWER


def flapping(connection: sqlite3.Connection, runs: int = RUNS) -> list[Flapping]:
    """Findings that went away and came back at least twice within the last runs."""
    groups: dict[tuple[Any, ...], list[tuple[str, int]]] = {}
    for rule, title, severity, place, host, times, holds in connection.execute(
        _FLAPPING, (runs, FLAPPING)
    ):
        groups.setdefault((rule, title, severity, place, times), []).append((host, holds))
    return [
        Flapping(
            rule,
            title,
            severity,
            parsed(place),
            times,
            any(holds for _, holds in rows),
            _ordered(host for host, _ in rows),
        )
        for (rule, title, severity, place, times), rows in groups.items()
    ]


def ending_waivers(
    connection: sqlite3.Connection, today: datetime.date, days: int = WAIVER_DAYS
) -> list[EndingWaiver]:
    """Waivers of findings that end within so many days, the first to end first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for *key, host in connection.execute(_WAIVED):
        groups.setdefault(tuple(key), []).append(host)
    found = []
    for (rule, title, severity, text), hosts in groups.items():
        waiver = parsed(text)
        try:
            remaining_days = (datetime.date.fromisoformat(str(waiver.get("until"))) - today).days
        except ValueError:
            continue  # a waiver without an end
        if remaining_days <= days:
            found.append(
                EndingWaiver(
                    rule,
                    title,
                    severity,
                    str(waiver["until"]),
                    remaining_days,
                    str(waiver.get("by")),
                    str(waiver.get("reason")),
                    _ordered(hosts),
                )
            )
    return sorted(found, key=lambda one: (one.days, one.rule))


def own_pasts(connection: sqlite3.Connection, host: str | None = None) -> list[OwnPast]:
    """The last result of each node, operation, size and number of ranks, against the median of the
    earlier ones; the slowest first."""
    series: dict[tuple[str, str, int, int], list[tuple[float, str]]] = {}
    for *key, busbw, run in connection.execute(_BANDWIDTH, (host,)):
        series.setdefault((key[0], key[1], key[2], key[3]), []).append((busbw, run))
    found = []
    for (name, op, size, ranks), results in series.items():
        earlier = [busbw for busbw, _ in results[:-1]]
        median = statistics.median(earlier) if len(earlier) >= 2 else None
        last, run = results[-1]
        found.append(
            OwnPast(
                name,
                op,
                size,
                ranks,
                run,
                last,
                median,
                len(earlier),
                round(last / median, 3) if median else None,
            )
        )
    return sorted(
        found,
        key=lambda one: (
            one.ratio if one.ratio is not None else 2.0,
            natural(one.host),
            one.op,
            one.size_bytes,
        ),
    )


def _ordered(hosts: Any) -> tuple[str, ...]:
    return tuple(sorted(hosts, key=natural))
