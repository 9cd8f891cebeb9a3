"""Recorded looks at vLLM 0.32 with two tensor ranks: without a request, and with one in which a
worker stands in a lock; and what a look in between would have shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inspected import inspection_of

from unhang.core.schemas.check import check_schema
from unhang.core.verdict.activities import activity_of

ENGINES = Path(__file__).parents[4] / "fixtures" / "inspect" / "engines"
IN_A_LOCK = "it sleeps in stand_in_a_lock (stuck_worker.py:7)"


def look(name: str) -> dict:
    return json.loads((ENGINES / f"{name}.json").read_text(encoding="utf-8"))


def with_stack_of(document: dict, pid: int, other: dict) -> dict:
    """The look with what another one shows of a process."""
    for section, name in (
        ("stacks", "processes"),
        ("stacks", "processes_2"),
        ("proc", "ranks_1"),
        ("proc", "ranks_2"),
        ("sockets", "ranks"),
    ):
        rows = [row for row in other["sections"][section][name] if row["pid"] == pid]
        own = document["sections"][section]
        own[name] = [row for row in own[name] if row["pid"] != pid] + rows
    return document


def pids(document: dict) -> tuple[int, int, int]:
    """(worker 0, worker 1, their engine)."""
    first, second = (row["pid"] for row in document["ranks"])
    return first, second, document["ranks"][0]["engine"]


def test_an_engine_without_a_request_is_idle():
    found = inspection_of([look("idle")])
    assert (found["state"], found["suspects"]) == ("idle", [])
    assert found["headline"] == "all 2 ranks are idle: no request"
    assert not list(check_schema(look("idle"), "evidence-1"))


def test_the_worker_that_stands_while_the_other_spins_in_a_collective_is_named():
    """vLLM's own all_reduce in shared memory polls: that the engine takes no answer shows that
    nothing moves."""
    found = inspection_of([look("code")])
    [suspect] = found["suspects"]
    assert (found["state"], suspect["rank"]) == ("hung", 1)
    assert suspect["why"] == (
        f"{IN_A_LOCK}; 1 rank waits in all_reduce, called by"
        " Worker.execute_model (stuck_worker.py:22)"
    )


def test_the_worker_that_does_not_come_back_is_named_though_its_engine_has_its_answer():
    document = look("idle")
    found = inspection_of([with_stack_of(document, pids(document)[1], look("code"))])
    [suspect] = found["suspects"]
    assert (found["state"], suspect["rank"]) == ("hung", 1)
    assert suspect["why"] == f"{IN_A_LOCK}; 1 rank waits in the engine's queue"


def test_who_is_in_a_collective_that_the_others_have_left_is_named():
    document = look("idle")
    first, _second, engine = pids(document)
    stuck = with_stack_of(document, first, look("code"))
    for row in (*stuck["sections"]["proc"]["ranks_1"], *stuck["sections"]["proc"]["ranks_2"]):
        if row["pid"] == first:
            row.update(state="S", switches=7)
    [suspect] = inspection_of([with_stack_of(stuck, engine, look("code"))])["suspects"]
    assert suspect["rank"] == 0
    assert "in all_reduce" in suspect["why"]
    assert suspect["why"].endswith("; 1 rank waits in the engine's queue")


@pytest.mark.parametrize("name", ["idle", "code"])
def test_an_engine_that_was_awake_between_the_looks_takes_answers(name):
    document = look(name)
    for row in document["sections"]["proc"]["ranks_2"]:
        if row["pid"] == pids(document)[2]:
            row["switches"] += 100
    assert inspection_of([document])["state"] == "running"


def test_a_request_that_no_worker_works_on_is_a_hang_of_nobody():
    document = look("idle")
    found = inspection_of([with_stack_of(document, pids(document)[2], look("code"))])
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == ("hung", [None])


def test_an_engine_that_stands_elsewhere_is_no_idle_one():
    document = look("idle")
    stacks = document["sections"]["stacks"]
    for row in (*stacks["processes"], *stacks["processes_2"]):
        if row["pid"] == pids(document)[2]:
            row["threads"][0]["frames"] = ["schedule (/home/ada/scheduler.py:7)"]
    found = inspection_of([document])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "which is in schedule (scheduler.py:7)" in found["headline"]


def test_an_engine_whose_stack_was_not_read_is_not_said_to_be_idle():
    document = look("idle")
    engine = pids(document)[2]
    stacks = document["sections"]["stacks"]
    for name in ("processes", "processes_2"):
        stacks[name] = [row for row in stacks[name] if row["pid"] != engine]
    found = inspection_of([document])
    assert found["state"] != "idle" and found["suspects"] == []


def test_collectives_of_the_engines_own_libraries_are_collectives():
    places = (
        "vllm/distributed/parallel_state.py",
        "sglang/srt/distributed/communication_op.py",
    )
    for place in places:
        frames = ["__call__ (/opt/venv/lib/python3.11/site-packages/torch/_ops.py:1)"]
        frames.append(f"GroupCoordinator.all_reduce (/opt/venv/site-packages/{place}:1)")
        assert activity_of(frames).name == "collective"
