"""A burn-in of one node whose programs something else starts, such as the playbook: one round in a folder like the smoke test's (smoke_folder.py)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.core.bounded_reads import read_at_most
from unhang.core.errors import UserError
from unhang.core.run.run_folder import write_atomically
from unhang.core.verdict.counter_rates import Rates
from unhang.core.verdict.streams import Event
from unhang.smoke.burn_in.events import parse_burn_in
from unhang.smoke.burn_in.local import BEYOND_S, ENDS, burn_in_path
from unhang.smoke.burn_in.verdict import judge_burn_in
from unhang.smoke.smoke_folder import (
    MOST_EVENT_BYTES,
    NOT_FETCHED,
    file_name,
    hosts_in,
    notes_in,
    reason_in,
)

PLACE = Path("rounds", "001")


def next_burn_in_step(folder: Path, plan: Mapping[str, Any], rates: Rates) -> dict[str, Any]:
    """{round: 1, what, hosts, limit_s} of the burn-in that is to be run, or {round: 0} once result.json (unhang/burn-in/1) is there. Raises UserError.

    plan: of the payload; rates: normal rises of counters in a minute.
    """
    hosts = hosts_in(folder)["hosts"]
    if len(hosts) != 1:
        raise UserError(f"--burn-in: expected one host, each for itself, found {', '.join(hosts)}")
    (host,) = hosts
    if not (folder / PLACE / "round.json").is_file():
        return _write_round(folder, host, plan)
    document = judge_burn_in(_events(folder / PLACE / "events", host), host, rates, plan)
    document["notes"] += [row["text"] for row in notes_in(folder / "notes")]
    write_atomically(folder / "result.json", json.dumps(document))
    return {"round": 0, "what": "the end", "hosts": []}


def _write_round(folder: Path, host: str, plan: Mapping[str, Any]) -> dict[str, Any]:
    place, limit_s = folder / PLACE, float(plan["duration_s"]) + BEYOND_S
    for part in ("plans", "events"):
        (place / part).mkdir(parents=True, exist_ok=True)
    if not (why := reason_in(folder / "surveys", host, "")):
        work = {"plan": dict(plan), "program": None, "deadline_s": limit_s, "payload": burn_in_path(Path()).name}
        write_atomically(place / "plans" / file_name(host, ".json"), json.dumps(work))
    else:
        write_atomically(place / "events" / file_name(host, ".why"), why)
    write_atomically(place / "round.json", json.dumps({"what": "burn-in", "groups": [], "began": time.time()}))
    return {"round": 1, "what": "burn-in", "hosts": [host], "limit_s": int(limit_s)}


def _events(folder: Path, host: str) -> list[Event]:
    """The events of a node. If it did not report its end, the reason is one of them, and nothing is proved."""
    try:
        with (folder / file_name(host, ".jsonl")).open("rb") as source:
            events = parse_burn_in(read_at_most(source, MOST_EVENT_BYTES).split(b"\n"))
    except OSError:
        events = []
    if not any(event["e"] in ENDS for event in events):
        events.append({"e": "refused", "reasons": [reason_in(folder, host, NOT_FETCHED)]})
    return events
