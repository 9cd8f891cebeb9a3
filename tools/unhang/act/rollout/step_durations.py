"""How long the steps of earlier rollouts took: stored in a rollout's run folder when it ends, read
to estimate the minutes of the next plan."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.act.plan.plan_document import Plan, StepMinutes
from unhang.act.rollout.steps import BEFORE, BEGUN, DONE, Entry
from unhang.core.errors import UserError
from unhang.core.run.run_folder import read_object, write_atomically

FILE, SCHEMA = "step-durations.json", "unhang/step-durations/1"
# total of these five steps, without the wait for jobs, which does not depend on unhang
FRAME = ("lock", "drain", "save", "audit", "release")
# step of the journal -> of the table remedy_steps
ONE_EACH = {"reboot": "reboot", BEFORE: "smoke", "smoke_alone": "smoke"}
MOST_DURATIONS = 200  # durations of one step that are kept of one rollout
MOST_ROLLOUTS = 50
LONGEST_S = 24 * 3600  # such a duration means that the clock was set, not a long step
LARGEST_BYTES = 1024 * 1024


def durations_of(entries: Iterable[Entry], plan: Plan) -> dict[str, list[int]]:
    """{step of the table remedy_steps: seconds of each node, sorted}. Only steps that began once on
    the node and were done; others were interrupted. A role counts only if it was the node's only
    one, because the journal has one time for all roles."""
    found: dict[str, list[int]] = {}
    for host, took in _by_host(entries).items():
        entry = plan.for_host(host)
        if entry is None:
            continue
        rows = [(name, took[step]) for step, name in ONE_EACH.items() if step in took]
        rows += [("frame", sum(took[step] for step in FRAME))] if took.keys() >= set(FRAME) else []
        rows += (
            [(entry.roles[0], took["apply"])] if "apply" in took and len(entry.roles) == 1 else []
        )
        for name, seconds in rows:
            found.setdefault(name, []).append(seconds)
    return {name: _spread(sorted(seconds)) for name, seconds in sorted(found.items())}


def keep_durations(folder: Path, plan: Plan, entries: Iterable[Entry], at: str) -> None:
    """Writes them into the rollout's run folder. at: when it ended, RFC 3339, UTC. Raises
    OSError."""
    document = {"schema": SCHEMA, "ended": at, "seconds": durations_of(entries, plan)}
    write_atomically(folder / FILE, json.dumps(document, indent=1) + "\n")


def measured_steps(runs: Path, before: str) -> list[StepMinutes]:
    """Medians over the newest rollouts in this folder of run folders that ended before this time
    (RFC 3339, UTC), by step.

    Later rollouts do not count, so that the same run always gives the same plan. Files that cannot
    be read are skipped: the table's durations are used.
    """
    try:
        until = _moment(before)
    except ValueError:  # planning refuses such a run with a message
        return []
    kept = sorted(
        filter(None, (_read(path) for path in runs.glob(f"*/{FILE}"))),
        key=lambda one: (one["ended"], json.dumps(one["seconds"])),
    )
    earlier = [one["seconds"] for one in kept if _moment(one["ended"]) < until][-MOST_ROLLOUTS:]
    seconds: dict[str, list[int]] = {}
    for one in earlier:
        for step, took in one.items():
            seconds.setdefault(step, []).extend(took)
    return [
        StepMinutes(step, round(statistics.median(took) / 60, 1), len(took))
        for step, took in sorted(seconds.items())
        if took
    ]


def _by_host(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """{host: {step: seconds}} of steps that began once and were done."""
    begun: dict[tuple[str, str], list[str]] = {}
    done: dict[tuple[str, str], Entry] = {}
    for one in entries:
        if one.host and one.status == BEGUN:
            begun.setdefault((one.host, one.step), []).append(one.at)
        elif one.host and one.status == DONE and "skipped" not in one.evidence:
            done[one.host, one.step] = one
    found: dict[str, dict[str, int]] = {}
    for (host, step), end in done.items():
        starts = begun.get((host, step), [])
        seconds = _moment(end.at) - _moment(starts[0]) if len(starts) == 1 else -1
        if 0 <= seconds <= LONGEST_S:
            found.setdefault(host, {})[step] = int(seconds)
    return found


def _spread(seconds: Sequence[int]) -> list[int]:
    """At most MOST_DURATIONS of them, evenly spread: their median is that of all, or next to it."""
    if len(seconds) <= MOST_DURATIONS:
        return list(seconds)
    return [
        seconds[(2 * place + 1) * len(seconds) // (2 * MOST_DURATIONS)]
        for place in range(MOST_DURATIONS)
    ]


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        document = read_object(path, f"durations ({SCHEMA})", LARGEST_BYTES, "")
        seconds = document["seconds"]
        _moment(document["ended"])
    except (UserError, OSError, KeyError, TypeError, ValueError):
        return None
    right = document.get("schema") == SCHEMA and isinstance(seconds, dict)
    right = right and all(
        isinstance(took, list)
        and all(type(one) is int and 0 <= one <= LONGEST_S * len(FRAME) for one in took)
        for took in seconds.values()
    )
    return document if right else None


def _moment(text: str) -> float:
    """Seconds since 1970. Raises ValueError, TypeError."""
    at = datetime.datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
