"""Parses what precedes a message in a line: time, host, rank, in the formats of the usual programs.
A line may have none of them."""

from __future__ import annotations

import calendar
import datetime
import re
from dataclasses import dataclass, replace

_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr)}
_ISO = re.compile(
    r"(?<!\d)(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)[T"
    r" _](?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?(?P<z>Z|[+-]\d\d:?\d\d)?"
)
_US = re.compile(r"(?<!\d)(?P<m>\d\d)/(?P<d>\d\d)/(?P<y>\d{4}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)")
_GLOG = re.compile(
    r"(?:^|[\[ ])[IWEF](?P<m>\d{1,2})(?P<d>\d\d)"
    r" (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:\.(?P<f>\d{1,9}))?"
)
_HUMAN = re.compile(
    r"\[[A-Z][a-z]{2} (?P<mon>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2})"
    r" (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d) (?P<y>\d{4})\]"
)
_SYSLOG = re.compile(
    r"(?P<mon>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?= )"
)
_SHORT = re.compile(r"(?<!\d)(?P<m>\d\d)-(?P<d>\d\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?!\d)")
_EPOCH = re.compile(r"\[(?P<e>1\d{9})(?:\.(?P<f>\d{1,9}))?\]")
_STAMPS = (_ISO, _US, _HUMAN, _EPOCH, _GLOG, _SYSLOG, _SHORT)
_NCCL = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})"
    r" \[(?P<dev>\d{1,6})\]"
)
_SYSLOG_HOST = re.compile(
    r"(?:[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,25}) "
    r"(?P<host>(?!\d{4}-\d\d-\d\d )[A-Za-z0-9][\w.-]{0,250}) [\w./()-]{1,64}(?:\[\d{1,10}\])?:"
)
_POD = re.compile(r"\[pod/(?P<host>[\w.-]{1,253})/")  # kubectl logs --prefix
_TABLE_HOST = re.compile(r"\s*(?P<host>[A-Za-z][\w.-]{1,80}) \| ")
_RANKS = (  # `task` is the label of a launcher
    re.compile(r"\[[Rr]ank ?(?P<rank>\d{1,6})\]"),
    re.compile(r"\[PG [^\]]{0,120}\bRank (?P<rank>\d{1,6})\]"),
    re.compile(r"\[1,(?P<task>\d{1,6})\]<std(?:out|err)>"),
    re.compile(r"\[default(?P<task>\d{1,6})\]"),
    re.compile(r"\b[Rr]ank[ :=]{1,2}(?P<rank>\d{1,6})\b"),
    re.compile(r"^\s{0,4}(?P<task>\d{1,6}): "),
)
_OWN = re.compile(r"\[rank(?P<rank>\d{1,6})\]")


@dataclass(frozen=True)
class Moment:
    """A time of a clock. at_s: seconds since 1970 as if in UTC, in the year 1970 if the stamp has
    no year. clock: the format of the stamp. Times of unlike formats have no order: one may be the
    program's and one the collector's, in other zones and minutes apart."""

    at_s: float
    clock: tuple[str, bool]

    def since(self, other: Moment | None) -> float | None:
        """Seconds from `other` to this one; None if they cannot be compared."""
        return self.at_s - other.at_s if other and other.clock == self.clock else None


@dataclass(frozen=True)
class Prefix:
    """time, host and rank None if missing. stamp: the text of the time, also of one that is not
    compared. own_rank: the rank of the job, which torch prints as [rank3] before the line;
    `rank` may be a number within a group, or ~3 of a launcher's label 3 until the file is read."""

    time: Moment | None = None
    stamp: str | None = None
    host: str | None = None
    pid: str | None = None
    rank: int | None = None
    own_rank: int | None = None

    def completed(self, outer: Prefix, *, time: bool, host: bool) -> Prefix:
        """This prefix, completed from the wrapper's: its rank if the line has none, its time or
        host on request."""
        merged = self
        if self.own_rank is None and outer.own_rank is not None:
            merged = replace(self, rank=outer.own_rank, own_rank=outer.own_rank)
        elif self.rank is None and outer.rank is not None:
            merged = replace(self, rank=outer.rank)
        if time and outer.time is not None:
            merged = replace(merged, time=outer.time, stamp=outer.stamp)
        elif merged.stamp is None:
            # to show only: the clocks of wrapper and program differ
            merged = replace(merged, stamp=outer.stamp)
        return replace(merged, host=outer.host) if host and outer.host else merged


def parse_prefix(text: str, start: int) -> Prefix:
    """The prefix of a line whose message begins at `start`; a rank may also be in the beginning of
    the message."""
    head = text[: min(max(start + 120, 160), 260)]  # no prefix is longer
    time, stamp = parse_stamp(head)
    nccl = _NCCL.search(head)
    named = nccl or _SYSLOG_HOST.search(head) or _TABLE_HOST.match(head) or _POD.search(head)
    ranks = (
        int(found[1]) if "rank" in found.groupdict() else ~int(found[1])
        for pattern in _RANKS
        if (found := pattern.search(head))
    )
    rank = next(ranks, None)
    own = None
    for found in _OWN.finditer(head):
        own = int(found["rank"])  # the last one is the line's own, those before it a wrapper's
    pid = nccl["pid"] if nccl else None
    return Prefix(time, stamp, named and named["host"], pid, rank if own is None else own, own)


def parse_stamp(head: str) -> tuple[Moment | None, str | None]:
    """(time, the stamp's text) of the first stamp; an impossible date does not count."""
    for pattern in _STAMPS:
        found = pattern.search(head)
        if found and (time_s := _seconds(found.groupdict())) is not None:
            clock = pattern.pattern, bool(found.groupdict().get("z"))
            return Moment(time_s, clock), found.group().strip(" [")
    return None, None


def _seconds(part: dict[str, str | None]) -> float | None:
    fraction = float(f"0.{part.get('f') or 0}")
    if part.get("e"):
        return int(part["e"] or 0) + fraction
    month = _MONTHS.get(part["mon"] or "") if part.get("mon") else int(part["m"] or 0)
    if not month:
        return None
    try:
        day, hour, minute, second = (int(part[name] or 0) for name in "dHMS")
        year = int(part.get("y") or 1970)
        moment = datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    zone = (part.get("z") or "Z").replace(":", "")
    shift_s = 0 if zone == "Z" else int(zone[:3]) * 3600 + int(zone[0] + zone[3:]) * 60
    return (moment - datetime.datetime(1970, 1, 1)).total_seconds() + fraction - shift_s
