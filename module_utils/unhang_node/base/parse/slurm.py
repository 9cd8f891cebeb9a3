"""Parses the output of Slurm's commands. `scontrol -o` quotes nothing: a reason, a comment or a
kernel's name may look like fields."""

from __future__ import annotations

import calendar
import re
import time

from ..named_tuple import NamedTuple
from .values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, FrozenSet, List, Tuple

# Suffixes by which older releases mark a state, and the flag that newer releases print: sinfo(1),
# NODE STATE CODES.
SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
FREE_TEXTS = ("Reason", "Comment", "Extra")
# Two fields that follow each other in every release, and never in a user's text by accident.
_STATE = re.compile(r"(?:^|\s)State=(\S+)\s+ThreadsPerCore=\d")
_FREE = re.compile(r"\s(" + "|".join(FREE_TEXTS) + r")=")
_SET_BY = re.compile(r"\s\[([^\s@\[\]]+)@(\d{4}-\d\d-\d\dT[\d:]+)\]")
NONE = ("", "(null)", "N/A", "None")
# States of a job that is not, or no longer, on a node: squeue(1), JOB STATE CODES.
FINISHED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
    "OUT_OF_MEMORY", "PENDING", "PREEMPTED", "REVOKED",
    "SPECIAL_EXIT", "TIMEOUT",
)  # fmt: skip


class SlurmNode(NamedTuple):
    """A node as slurmctld knows it.

    states: Slurm's names (IDLE, ALLOCATED, DRAIN, NOT_RESPONDING …). reason: without the user who
    set it; "" for none. by: that user, "" if unknown. fields: the fields before the operating
    system's name and after the state, by Slurm's names. booted_at: seconds since 1970, as slurmd
    reported it; 0 if it has reported nothing.
    """

    name: str
    states: FrozenSet[str]
    reason: str
    by: str
    fields: Dict[str, str]
    booted_at: int = 0


class Reservation(NamedTuple):
    """A reservation. nodes: as Slurm writes them (gpu[001-004]). starts, ends: seconds since
    1970."""

    name: str
    nodes: str
    flags: Tuple[str, ...] = ()
    users: str = ""
    is_active: bool = True
    starts: int = 0
    ends: int = 0


class Job(NamedTuple):
    """A job that a node runs."""

    id: str
    state: str
    user: str
    ends: str


def parse_nodes(text: str) -> List[SlurmNode]:
    """Nodes out of `scontrol -o show nodes`. Raises ValueError for output that can be read in two
    ways.

    A reason with a line break continues in the next line, which does not begin with NodeName=.
    """
    records: List[str] = []
    for line in text.splitlines():
        if line.startswith("NodeName="):
            records.append(line)
        elif records:
            records[-1] += " " + line.strip()
        elif line.strip():
            raise ValueError(
                f"a node must begin with NodeName=, and this one begins with {line.strip()[:80]!r}"
            )
    return [_node(record) for record in records]


def parse_nodes_json(text: str) -> List[SlurmNode]:
    """Nodes out of `scontrol --json show nodes` (23.02 on), or `sinfo --json` before. Raises
    ValueError for anything else.

    States are a list, in older releases one word in small letters with the flags beside it. The
    fields are the same as those of parse_nodes.
    """
    try:
        given = parse_json(text)
    except ValueError:
        raise ValueError(f"this is not JSON with nodes: {text.strip()[:80]!r}") from None
    rows = given.get("nodes") if isinstance(given, dict) else None
    if not isinstance(rows, list):
        raise ValueError("the JSON has no list of nodes")
    return [_json_node(row) for row in rows]


def _json_node(row: Any) -> SlurmNode:
    name = row.get("name") if isinstance(row, dict) else None
    states = row.get("state") if isinstance(row, dict) else None
    names = (
        [*(states if isinstance(states, list) else [states]), *(row.get("state_flags") or [])]
        if isinstance(row, dict)
        else []
    )
    if (
        not isinstance(name, str)
        or not name
        or not names
        or not all(isinstance(word, str) and word for word in names)
    ):
        raise ValueError(f"a node lacks a name or its states: {str(row)[:80]}")
    places = {
        "Gres": "gres",
        "ActiveFeatures": "active_features",
        "Partitions": "partitions",
        "NodeAddr": "address",
        "NodeHostName": "hostname",
    }
    values = {key: row.get(place) for key, place in places.items()}
    fields = {
        key: ",".join(map(str, value)) if isinstance(value, list) else value
        for key, value in values.items()
    }
    return SlurmNode(
        name=name,
        states=parse_states("+".join(names)),
        reason=_line(row.get("reason")),
        by=_line(row.get("reason_set_by_user")),
        fields={
            key: value
            for key, value in fields.items()
            if isinstance(value, str) and value not in NONE
        },
        booted_at=_json_time(row.get("boot_time")),
    )


def _json_time(value: Any) -> int:
    """Seconds since 1970 of a time, which newer releases write as {"set": true, "number": …}; 0 for
    none."""
    number = value.get("number") if isinstance(value, dict) else value
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def parse_utc(text: str) -> int:
    """Seconds since 1970 of a time as Slurm's commands write it when they run with TZ=UTC; 0 for
    any other text."""
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0


def _line(value: Any) -> str:
    """A text on one line; "" for none."""
    return " ".join(value.split()) if isinstance(value, str) and value not in NONE else ""


def _node(record: str) -> SlurmNode:
    name = record.split(None, 1)[0].partition("=")[2]
    found = list(_STATE.finditer(record))
    if not name or len(found) != 1:
        raise ValueError(
            f"node {name[:80] or '(without a name)'} has {len(found)} State= before"
            " ThreadsPerCore=, not one"
        )
    before, rest = record[: found[0].start()], record[found[0].start() :]
    free = _FREE.search(rest)
    fields = {
        **_fields(before.partition(" OS=")[0]),
        **_fields(rest[: free.start()] if free else rest),
    }
    reason, by = _reason(name, rest[free.start() :]) if free else ("", "")
    return SlurmNode(
        name=name,
        states=parse_states(found[0][1]),
        reason=reason,
        by=by,
        fields=fields,
        booted_at=parse_utc(fields.get("BootTime", "")),
    )


def _fields(text: str) -> Dict[str, str]:
    """{name: value} of fields whose values contain no blank; fields without a value are omitted."""
    pairs = (word.partition("=") for word in text.split())
    return {key: value for key, sign, value in pairs if sign and value not in NONE}


def _reason(name: str, text: str) -> Tuple[str, str]:
    """(reason, who set it) from the text that users can write. If the reason is not its first
    field, only one part may look like a reason."""
    starts = list(re.finditer(r"\sReason=", text))
    if not starts:
        return "", ""
    if starts[0].start() and len(starts) > 1:
        raise ValueError(f"node {name} has {len(starts)} Reason=, its comment included, not one")
    reason = text[starts[0].end() :]
    set_by = _SET_BY.search(reason)
    return (reason[: set_by.start()].strip(), set_by[1]) if set_by else (reason.strip(), "")


def parse_states(word: str) -> FrozenSet[str]:
    """The states in IDLE+DRAIN+NOT_RESPONDING, or IDLE*+DRAIN as older releases print it."""
    states = set()
    for part in word.split("+"):
        bare = part.rstrip("".join(SUFFIXES))
        states.add(bare.upper())
        states |= {SUFFIXES[symbol] for symbol in part[len(bare) :]}
    return frozenset(states - {""})


def parse_reservations(text: str) -> List[Reservation]:
    """The reservations of `scontrol -o show reservations`. Raises ValueError for a line that is no
    reservation."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("No reservations"):
            continue
        fields = _fields(line)
        if not line.startswith("ReservationName=") or "State" not in fields:
            raise ValueError(
                f"a reservation lacks ReservationName= or State=: {line.strip()[:80]!r}"
            )
        found.append(
            Reservation(
                name=fields["ReservationName"],
                nodes=fields.get("Nodes", ""),
                flags=tuple(flag for flag in fields.get("Flags", "").split(",") if flag),
                users=",".join(
                    fields[key] for key in ("Users", "Accounts", "Groups") if key in fields
                ),
                is_active=fields["State"] == "ACTIVE",
                starts=parse_utc(fields.get("StartTime", "")),
                ends=parse_utc(fields.get("EndTime", "")),
            )
        )
    return found


def parse_config(text: str) -> Dict[str, str]:
    """{name: value} out of `scontrol show config`; settings without a value are omitted."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {
        name.strip(): value.strip()
        for name, sign, value in pairs
        if sign and value.strip() not in NONE
    }


def parse_jobs(text: str) -> List[Job]:
    """Jobs that are on a node, from `squeue -h -o '%i|%T|%u|%e'`: fields into which no user can
    write. Raises ValueError for a line of another form."""
    jobs = []
    for line in text.splitlines():
        fields = line.strip().split("|")
        if fields == [""]:
            continue
        if (
            len(fields) != 4
            or not re.fullmatch(r"[0-9][0-9A-Za-z_+.\[\]%,-]*", fields[0])
            or not fields[1].isupper()
        ):
            raise ValueError(f"this is not a job as ID|STATE|USER|END: {line.strip()[:80]!r}")
        if fields[1] not in FINISHED:
            jobs.append(Job(*fields))
    return jobs
