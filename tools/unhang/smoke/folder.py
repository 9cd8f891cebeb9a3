"""A smoke test in two steps with a folder between them, for launchers that bring files to and fro, such as the playbook.

    FOLDER/hosts.json              names of the hosts that are meant
    FOLDER/surveys/HOST.json       what the payload's survey answered there; none: the host could not be asked
    FOLDER/plans/HOST.json         written by plan_folder: what the agent there is to do; none: it takes no part
    FOLDER/events/HOST.jsonl       what the agent told; none: it could not be fetched
    FOLDER/result.json             written by judge_folder
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unhang.errors import UserError
from unhang.run_folder import write_atomically
from unhang.smoke.group import Wishes, meeting_row, prepare
from unhang.smoke.plan import Request
from unhang.smoke.rendezvous import Meeting
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream, parse_events

MOST_SURVEY_BYTES = 4 << 20
MOST_EVENT_BYTES = 256 << 20
NOT_ASKED = "could not be asked: unreachable, or no python3 there"
NOT_FETCHED = "its results could not be fetched: the node was lost on the way"


def file_name(host: str, suffix: str) -> str:
    """A host's file; its name comes from the inventory and may be anything."""
    name = quote(host, safe="")
    return ("%2E" * len(name) if name.strip(".") == "" else name) + suffix


def plan_folder(folder: Path, request: Request, wishes: Wishes) -> list[str]:
    """Writes plans and group.json; the hosts that take part. Raises UserError."""
    hosts = _hosts(folder)
    surveys = {host: _survey(folder / "surveys" / file_name(host, ".json")) for host in hosts}
    ready = prepare(hosts, surveys, request, wishes)
    (folder / "plans").mkdir(exist_ok=True)
    for plan in ready.plans:
        write_atomically(folder / "plans" / file_name(plan.host, ".json"), json.dumps(plan.document))
    members = [{"host": plan.host, "ranks": list(plan.ranks)} for plan in ready.plans]
    meeting = dataclasses.asdict(ready.meeting) if ready.meeting else None
    write_atomically(folder / "group.json", json.dumps({"members": members, "absent": dict(ready.absent), "meeting": meeting}))
    return [plan.host for plan in ready.plans]


def judge_folder(folder: Path, table: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The result of what came back. Raises UserError."""
    group = _json(folder / "group.json")
    streams = [_stream(folder / "events" / file_name(row["host"], ".jsonl"), row["host"], tuple(row["ranks"])) for row in group["members"]]
    away = [Stream(host, (), (), reason) for host, reason in group["absent"].items()]
    result = judge([*streams, *away], table, history)
    result["rendezvous"] = meeting_row(Meeting(**group["meeting"]), streams, None) if group["meeting"] else None
    return result


def _hosts(folder: Path) -> list[str]:
    hosts = _json(folder / "hosts.json")
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, str) and host for host in hosts):
        raise UserError(f"{folder / 'hosts.json'}: expected a list of host names, found something else")
    return list(dict.fromkeys(hosts))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise UserError(f"{path}: expected JSON of a smoke test, found: {problem}") from None


def _survey(path: Path) -> dict[str, Any] | str:
    """Of a node, so anything at all may stand there."""
    try:
        with path.open("rb") as source:
            for line in source.read(MOST_SURVEY_BYTES).splitlines():
                found = json.loads(line) if line.startswith(b"{") else None
                if isinstance(found, dict) and found.get("e") == "survey":
                    return found
    except OSError:
        return NOT_ASKED
    except (ValueError, RecursionError):
        return "its survey is no JSON"
    return NOT_ASKED


def _stream(path: Path, host: str, ranks: tuple[int, ...]) -> Stream:
    try:
        with path.open("rb") as source:
            said = source.read(MOST_EVENT_BYTES)
    except OSError:
        return Stream(host, ranks, (), NOT_FETCHED)
    return Stream(host, ranks, tuple(parse_events(said.split(b"\n"), ranks)))
