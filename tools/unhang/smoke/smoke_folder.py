"""A smoke test whose programs something else starts, such as the playbook. The two exchange files:
plans and events of each round, and the result.

    FOLDER/hosts.json                    {hosts: [names that are meant], switches: {host: switch},
    command: what a person typed}
    FOLDER/surveys/HOST.json             what the payload's survey answered there; HOST.why: in one
    line why it did not
    FOLDER/rounds/001/round.json         written by `next_step`: what this round is, who is in it,
    when it began
    FOLDER/rounds/001/plans/HOST.json    what the agent there is to do: {plan, program: argv of a
    container or null, deadline_s}
    FOLDER/rounds/001/events/HOST.jsonl  what the agent reported; HOST.why: why there is nothing, or
    not all of it
    FOLDER/rounds/001/over               the next step was asked for, so the round is over; its time
    is the end
    FOLDER/notes/*.txt                   what went wrong beside the test: HOST, a tab, one line
    FOLDER/result.json                   unhang/smoke/1, once nothing is left to be done

Each step goes through the whole session again from what lies there, so that nothing has to be kept
in between.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec

from unhang.core.bounded_reads import read_at_most
from unhang.core.errors import UserError
from unhang.core.run.whole_files import write_atomically
from unhang.core.smoke_result import Note, SmokeResult, document_of
from unhang.core.text import visible
from unhang.smoke.container import Container
from unhang.smoke.expectations import NOTHING_KNOWN, Expectations
from unhang.smoke.group import SessionOptions
from unhang.smoke.local import survey_in
from unhang.smoke.node_plans import Request
from unhang.smoke.session import Round, RoundResult, smoke_session
from unhang.smoke.streams import Stream, read_stream

Kind = TypeVar("Kind")
MOST_SURVEY_BYTES = 4 << 20
MOST_EVENT_BYTES = 256 << 20
MOST_ROUNDS = 200
ENDING_S = 40  # seconds for an agent to end its ranks and report
PLACE = "{place}"  # in a container's argv: the folder on the node, which is not known yet
NOT_ASKED = "could not be asked"
NOT_FETCHED = "its results could not be fetched"


@dataclasses.dataclass(frozen=True)
class StepInputs:
    """Inputs of a step besides the folder. container: None for the Python of the node."""

    request: Request
    options: SessionOptions
    container: Container | None = None
    expectations: Expectations = NOTHING_KNOWN


class Meant(msgspec.Struct, frozen=True):
    """hosts.json."""

    hosts: Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
    switches: dict[str, str] = {}
    command: str | None = None


class Part(msgspec.Struct, frozen=True):
    """A node of a group, and its ranks."""

    host: str
    ranks: tuple[int, ...]


class BegunRound(msgspec.Struct, frozen=True):
    """What is read of round.json. began: seconds since 1970."""

    groups: list[list[Part]]
    began: float


def file_name(host: str, suffix: str) -> str:
    """A host's file; its name comes from the inventory and may be anything."""
    name = quote(host, safe="")
    return ("%2E" * len(name) if name.strip(".") == "" else name) + suffix


def next_step(folder: Path, inputs: StepInputs) -> dict[str, Any]:
    """{round, what, hosts, limit_s} of the round that is to be run now, or {round: 0} once
    result.json is there. Raises UserError."""
    meant = _decoded(folder / "hosts.json", Meant)
    hosts = list(dict.fromkeys(meant.hosts))
    surveys = {host: _survey(folder / "surveys", host) for host in hosts}
    switches = meant.switches | dict(inputs.options.switches or {})
    session = smoke_session(
        hosts,
        surveys,
        inputs.request,
        msgspec.structs.replace(inputs.options, switches=switches),
        inputs.expectations,
    )
    try:
        wanted = next(session)
        for number in range(1, MOST_ROUNDS):
            place = folder / "rounds" / f"{number:03d}"
            if not (place / "round.json").is_file():
                return _write_round(place, number, wanted, inputs.container)
            wanted = session.send(_outcome(place))
    except StopIteration as done:
        result: SmokeResult = done.value
    else:
        raise UserError(f"{folder} already has {MOST_ROUNDS} rounds, and can hold no more")
    result = msgspec.structs.replace(
        result,
        launcher="ansible",
        command=meant.command,
        notes=notes_in(folder / "notes"),
        **_times(folder),
    )
    write_atomically(folder / "result.json", json.dumps(document_of(result)))
    return {"round": 0, "what": "the end", "hosts": []}


def read_result(folder: Path) -> SmokeResult:
    """The finished result. Raises UserError."""
    return _decoded(folder / "result.json", SmokeResult)


def _write_round(
    place: Path, number: int, wanted: Round, container: Container | None
) -> dict[str, Any]:
    for name in ("plans", "events"):
        (place / name).mkdir(parents=True, exist_ok=True)
    program = container.argv(PLACE) if container else None
    plans = [plan for group in wanted.groups for plan in group]
    for plan in plans:
        part = {
            "plan": plan.document,
            "program": program,
            "deadline_s": plan.limit_s + ENDING_S,
        }
        write_atomically(place / "plans" / file_name(plan.host, ".json"), json.dumps(part))
    groups = [
        [{"host": plan.host, "ranks": list(plan.ranks)} for plan in group]
        for group in wanted.groups
    ]
    write_atomically(
        place / "round.json",
        json.dumps({"what": wanted.what, "groups": groups, "began": time.time()}),
    )
    return {
        "round": number,
        "what": wanted.what,
        "hosts": [plan.host for plan in plans],
        "limit_s": int(max(plan.limit_s for plan in plans)),
    }


def _outcome(place: Path) -> RoundResult:
    """The outcome of a finished round. The round ends when this is first called."""
    written = _decoded(place / "round.json", BegunRound)
    over = place / "over"
    if not over.is_file():
        write_atomically(over, str(time.time()))
    groups = [
        [_stream(place / "events", part.host, part.ranks) for part in group]
        for group in written.groups
    ]
    return RoundResult(groups, max(0.0, float(over.read_text(encoding="ascii")) - written.began))


def _times(folder: Path) -> dict[str, Any]:
    began = (folder / "hosts.json").stat().st_mtime
    started = datetime.datetime.fromtimestamp(began, datetime.UTC).isoformat(timespec="seconds")
    return {"started": started, "duration_s": round(max(0.0, time.time() - began), 2)}


def _decoded(path: Path, kind: type[Kind]) -> Kind:
    """A file of the session. Raises UserError. Texts of nodes may have halves of characters, which
    msgspec's own reader refuses."""
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), kind)
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{path} is not JSON of a smoke test: {problem}") from None


def reason_in(folder: Path, host: str, otherwise: str) -> str:
    """Why there is no answer, in a line fit to be shown."""
    try:
        return (
            visible(
                " ".join(
                    (folder / file_name(host, ".why"))
                    .read_text(encoding="utf-8", errors="replace")
                    .split()
                ),
                400,
            )
            or otherwise
        )
    except OSError:
        return otherwise


def _survey(folder: Path, host: str) -> dict[str, Any] | str:
    """The content of a node's file, which may be anything."""
    try:
        with (folder / file_name(host, ".json")).open("rb") as source:
            found = survey_in(read_at_most(source, MOST_SURVEY_BYTES))
    except OSError:
        found = None
    return found or reason_in(folder, host, NOT_ASKED)


def _stream(folder: Path, host: str, ranks: tuple[int, ...]) -> Stream:
    """A host's events. A problem beside a full stream is none: the end was reported."""
    try:
        with (folder / file_name(host, ".jsonl")).open("rb") as source:
            lines = read_at_most(source, MOST_EVENT_BYTES).split(b"\n")
    except OSError:
        return Stream(host, ranks, (), reason_in(folder, host, NOT_FETCHED))
    return read_stream(host, ranks, lines, reason_in(folder, host, "") or None)


def notes_in(folder: Path) -> list[Note]:
    """What the playbook could not do."""
    rows = []
    for path in sorted(folder.glob("*.txt")):
        host, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\t")
        rows.append(Note(host, visible(" ".join(text.split()), 400)))
    return rows
