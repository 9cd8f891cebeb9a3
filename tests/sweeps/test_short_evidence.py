"""The short evidence: at most 16 KiB whatever stands in it, and what was cut is said."""

import json

import pytest
from msgspec import to_builtins

from unhang.core.schemas.check import check_schema
from unhang.core.verdict.short_evidence import MOST_BYTES, render_short_evidence
from unhang.core.verdict.waited_rows import Beside, WaitedRow, groups_of, waited_for_row
from unhang.core.verdict.waiting import COMPLETED, LAUNCHED, Group, Step, waited_for


def found(text: str, many: int, row: WaitedRow | None = None) -> dict:
    """A document whose every text and list is this long."""
    failure = {"text": text, "file": text, "line": 1, "rank": 0, "host": text}
    line = {"file": text, "line": 3, "text": text}
    cause = {"cause": text, "title": text, "certainty": "likely", "owner": "user",
             "where": [text] * many, "lines": [line] * many, "remedy": text}  # fmt: skip
    return {
        "by": "diagnose",
        "verdict": {"word": text, "headline": text, "certainty": "likely"},
        "waited_for": to_builtins(row),
        "groups": groups_of(row),
        "primary": [failure] * many,
        "consequences": [failure] * many,
        "causes": [cause] * many,
        "next": {"host": text, "command": "unhang inspect", "tells": text},
        "facts": [{"name": text, "value": text, "file": text, "line": 1}] * many,
        "read": [{"what": text, "kind": text, "lines": 1}] * many,
        "not_read": [{"what": text, "why": text}] * many,
        "full": text,
    }


def short(document: dict) -> dict:
    text = render_short_evidence(document)
    assert len(text.encode()) <= MOST_BYTES
    answer = json.loads(text)
    assert [str(fault) for fault in check_schema(answer, "evidence-short-1")] == []
    return answer


def test_what_has_room_stays_whole():
    answer = short(found("a line of a log", 3))
    assert answer["cut"] == [] and len(answer["causes"]) == 3
    assert answer["verdict"]["headline"] == "a line of a log"


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "\x1b[2J\u202e" * 5000, "\ud800" * 9000, '"\\' * 9000]
)
@pytest.mark.parametrize("many", [1, 400])
def test_hostile_texts_and_long_lists_are_cut_and_the_cut_is_said(text, many):
    answer = short(found(text, many))
    told = {row["what"]: row for row in answer["cut"]}
    assert told["primary.text"]["of"] > told["primary.text"]["kept"]
    assert ("causes" in told) == (many > 1)
    if many > 1:
        assert (told["causes"]["kept"], told["causes"]["of"]) == (len(answer["causes"]), many)
    assert answer["next"]["command"] == "unhang inspect"


@pytest.mark.parametrize("step", [1, 2])
def test_ten_thousand_ranks_are_folded_and_counted(step):
    members = tuple(range(10_001))
    world = Group("world", members, len(members))
    steps = [Step(rank, "world", "ALLREDUCE", 7, LAUNCHED) for rank in range(0, 10_000, step)]
    steps += [Step(rank, "world", "ALLREDUCE", 6, COMPLETED) for rank in range(1, 10_000, 2)
              if step == 2]  # fmt: skip
    row = waited_for_row(
        waited_for([world], steps, seen=members),
        Beside(hosts={rank: f"n{rank}" for rank in members}),
    )
    answer = short(found("a line", 2, row))
    wait = answer["waited_for"]["waits"][0]
    if step == 1:
        assert wait["waiting"] == {"count": 10_000, "ranks": "0-9999"}
        assert answer["waited_for"]["roots"] == {"count": 1, "ranks": "10000"}
    else:
        assert wait["waiting"]["count"] == 5000
        assert (
            wait["waiting"]["ranks"].startswith("0,2,4,") and wait["waiting"]["ranks"][-2:] == ",…"
        )
        assert "waited_for.waits.waiting.ranks" in {one["what"] for one in answer["cut"]}


def test_a_thousand_groups_keep_the_first_wait():
    groups = [Group(f"dp{one}", (one, one + 1000), 2) for one in range(1000)]
    steps = [Step(one, f"dp{one}", "ALLREDUCE", 3, LAUNCHED) for one in range(1000)]
    row = waited_for_row(waited_for(groups, steps, seen=range(2000)))
    answer = short(found("a line", 2, row))
    kept = {one["what"]: (one["kept"], one["of"]) for one in answer["cut"]}
    assert kept["waited_for.waits"] == (len(answer["waited_for"]["waits"]), 1000)
