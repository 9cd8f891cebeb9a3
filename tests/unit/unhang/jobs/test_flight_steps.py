"""Who is waited for, by dumps of jobs that are played through: tensor × pipeline × expert × data.
What each fault must lead to follows from the fault."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from flight_dumps import (
    Job,
    Op,
    as_json,
    as_pickle,
    changed,
    dumps_of,
    job_of,
    place_of,
    play,
)

from unhang.core.verdict.waiting import POSSIBLE, SURE, WaitedFor
from unhang.jobs.diagnose.logs.flight_dumps import read_dumps
from unhang.jobs.flight import Entry, Flight, flight_of
from unhang.jobs.flight_steps import recording_of

SHAPES = [(2, 2, 2), (1, 4, 2), (4, 1, 2), (2, 1, 4)]
FORMS = {"pickle": as_pickle, "json": as_json}
KEPT = [{}, {"active": True}, {"ring": 12}]


def answer_of(dumps: dict[int, dict]) -> WaitedFor:
    """Without the child process in which a file is read."""
    return recording_of([flight_of(dump, "", rank) for rank, dump in dumps.items()]).answer


def is_silent(answer: WaitedFor) -> bool:
    return not (answer.roots or answer.ring or answer.waits or answer.full or answer.different)


def never_enters(shape: tuple[int, int, int], rank: int) -> Job:
    job = job_of(*shape)
    job.stops[rank] = place_of(job, rank, "_reduce_scatter_base")
    return job


@pytest.mark.parametrize("kept", KEPT, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rank", [0, 3, 7])
def test_the_rank_that_never_enters_is_the_only_root_and_sure(shape, rank, kept):
    job = never_enters(shape, rank)
    answer = answer_of(dumps_of(job, play(job), **kept))
    assert (answer.roots, answer.ring, answer.certainty) == ((rank,), (), SURE)
    assert answer.missing == answer.different == answer.full == ()
    assert rank not in {one for wait in answer.waits for one in wait.waiting}


@pytest.mark.parametrize("form", FORMS)
def test_json_reads_like_the_pickle(form):
    job = never_enters((2, 2, 2), 3)
    answer = recording_of(
        [
            flight
            for rank, dump in dumps_of(job, play(job)).items()
            for flight in read_dumps(FORMS[form](dump), f"nccl_trace_rank_{rank}")
        ]
    ).answer
    assert (answer.roots, answer.certainty) == ((3,), SURE)
    places = {step.where for wait in answer.waits for step in wait.steps}
    assert all(where.startswith("/job/train.py:") for where in places) or form == "json"


@pytest.mark.parametrize(
    "fields", [{"name": "broadcast"}, {"elements": 99}], ids=["other operation", "other size"]
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_another_call_under_one_number_is_a_mismatch_of_its_group_alone(shape, fields):
    job = job_of(*shape)
    changed(job, 2, place_of(job, 2, "all_reduce", "default_pg"), **fields)
    answer = answer_of(dumps_of(job, play(job)))
    (different,) = answer.different
    assert (different.group.name, different.seq) == ("default_pg (0)", 2)
    assert min(different.calls.values(), key=len) == (2,)
    assert (answer.roots, answer.ring) == ((), ())


@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_a_wrong_peer_is_a_ring_of_messages(kept):
    job = job_of(1, 4, 2)
    place = next(
        at for at, op in enumerate(job.programs[2]) if op.name == "send" and op.peer == 4 and at > 9
    )
    changed(job, 2, place, peer=6)  # stages of a pipeline: 0, 2, 4, 6
    answer = answer_of(dumps_of(job, play(job), **kept))
    assert (answer.left_the_order, answer.roots) == (True, (2,))
    assert {2, 4, 6} <= set(answer.ring)


@pytest.mark.parametrize("ahead", [1, 50])
def test_who_calls_two_groups_in_unlike_order_is_named_alone(ahead):
    job = job_of(4, 1, 1, ahead=ahead)
    program = job.programs[2]
    last = place_of(job, 2, "all_reduce", "default_pg")
    program.insert(place_of(job, 2, "all_reduce", "tp"), program.pop(last))
    answer = answer_of(dumps_of(job, play(job)))
    assert (answer.roots, answer.ring) == ((2,), (2, 0, 1, 3))
    assert {wait.group.name.partition(" ")[0] for wait in answer.crossed} == {"tp", "default_pg"}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_operation_that_all_entered_accuses_nobody(shape):
    job = job_of(*shape)
    job.broken = ("dp0.0", 4)
    answer = answer_of(dumps_of(job, play(job)))
    assert (answer.roots, answer.ring, answer.different) == ((), (), ())
    assert answer.full[0].group.members == job.groups["dp0.0"]


@pytest.mark.parametrize("timing", [True, False])
def test_a_gpu_that_stands_is_told_only_where_started_kernels_are_known(timing):
    job = job_of(2, 1, 4, ahead=50)
    job.stands[3] = place_of(job, 3, "all_reduce", "tp")
    answer = answer_of(dumps_of(job, play(job), timing=timing))
    assert answer.roots == ((3,) if timing else ())
    assert answer.certainty == POSSIBLE


@pytest.mark.parametrize("kept", KEPT, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ahead", [1, 6])
def test_a_healthy_job_with_uneven_experts_says_nothing(shape, ahead, kept):
    job = job_of(*shape, ahead=ahead)
    assert is_silent(answer_of(dumps_of(job, play(job), **kept)))


@pytest.mark.parametrize("ended", range(10, 60, 7))
def test_dumps_of_one_moment_of_a_running_job_accuse_nobody(ended):
    job = job_of(2, 2, 2)
    answer = answer_of(dumps_of(job, play(job, ended)))
    assert (answer.roots, answer.ring, answer.different) == ((), (), ())


def test_dumps_of_different_moments_of_a_running_job_name_nobody_for_sure():
    job = job_of(2, 2, 2, ahead=3)
    late, early = dumps_of(job, play(job, 80)), dumps_of(job, play(job, 40))
    answer = answer_of({**late, 3: early[3]})
    assert answer.certainty != SURE or not answer.roots
    assert answer.different == ()


def test_dumps_by_rank_in_one_json_are_those_of_its_ranks():
    job = never_enters((2, 2, 2), 3)
    dumps = {rank: json.loads(as_json(dump)) for rank, dump in dumps_of(job, play(job)).items()}
    for content in (
        {str(rank): dump for rank, dump in dumps.items()},
        {f"rank{rank}.json": dump for rank, dump in dumps.items()},
        list(dumps.values()),
    ):
        flights = read_dumps(json.dumps(content).encode(), "debug-server.json")
        assert recording_of(flights).answer.roots == (3,)


def test_the_rank_follows_from_the_groups_where_no_name_has_it():
    job = never_enters((2, 2, 2), 3)
    flights = [
        read_dumps(as_pickle(dump), f"dump-{chr(97 + rank)}")[0]
        for rank, dump in dumps_of(job, play(job)).items()
    ]
    assert {flight.rank for flight in flights} == {None}
    assert recording_of(flights).answer.roots == (3,)


def test_parts_of_a_coalesced_call_have_the_state_of_the_call():
    """torch never completes the parts: their state stays scheduled."""
    job = Job({"default_pg": (0, 1)}, {rank: [Op("default_pg", "all_gather")] for rank in (0, 1)})
    dumps = dumps_of(job, play(job))
    for dump in dumps.values():
        (done,) = dump["entries"]
        part = {**done, "state": "scheduled", "profiling_name": "nccl:_all_gather_base"}
        dump["entries"] = [part, {**part}, {**done, "profiling_name": "nccl:coalesced"}]
    assert is_silent(answer_of(dumps))


@pytest.mark.parametrize(("new", "silent"), [((), False), ((1,), True), ((0, 2, 3), True)])
def test_a_dump_with_an_end_that_the_watchdog_has_not_seen_is_of_a_job_that_runs(new, silent):
    """Rank 1 has not called what the others wait in."""
    calls = {rank: [Op("default_pg", "all_reduce")] * (3 - (rank == 1)) for rank in range(4)}
    job = Job({"default_pg": tuple(range(4))}, calls)
    dumps = dumps_of(job, play(job))
    for rank, dump in dumps.items():
        for one in dump["entries"]:
            one["retired"] = one["state"] == "completed"
        if rank in new:
            dump["entries"][1]["retired"] = False
    assert is_silent(answer_of(dumps)) is silent


def test_an_end_that_gloo_notes_as_retired_is_an_end():
    job = Job({"default_pg": (0, 1)}, {rank: [Op("default_pg", "all_reduce")] for rank in (0, 1)})
    dumps = dumps_of(job, play(job))
    for dump in dumps.values():
        dump["entries"] = [
            {**one, "state": "scheduled", "retired": True, "profiling_name": "gloo:all_reduce"}
            for one in dump["entries"]
        ]
    assert is_silent(answer_of(dumps))


def test_a_group_that_each_rank_names_alike_with_other_members_is_two():
    job = Job(
        {"a": (0, 1), "b": (2, 3)},
        {rank: [Op("ab"[rank // 2], "all_reduce") for _ in range(3)] for rank in range(4)},
    )
    job.stops[3] = 1
    dumps = dumps_of(job, play(job))
    for dump in dumps.values():
        dump["pg_config"] = {"7": {**next(iter(dump["pg_config"].values())), "name": "7"}}
        dump["entries"] = [{**one, "process_group": ["7", "x"]} for one in dump["entries"]]
    answer = answer_of(dumps)
    assert answer.roots == (3,)
    assert [wait.group.members for wait in answer.waits] == [(2, 3)]


@pytest.mark.parametrize("ranks", ["[0, x]", "0", [0, 0], [True, 1], {"a": 1}, None, "[-1, 2]"])
def test_members_that_are_no_ranks_are_no_members(ranks):
    job = never_enters((4, 1, 2), 3)
    dumps = dumps_of(job, play(job))
    for dump in dumps.values():
        dump["pg_config"] = {key: {**one, "ranks": ranks} for key, one in dump["pg_config"].items()}
    answer = answer_of(dumps)
    assert answer.certainty == POSSIBLE
    assert replace(answer, waits=()).missing == ()


PAIR, ALL = ("1", "tp"), ("0", "default_pg")


def entry_of(group: tuple[str, str], seq: int, name: str = "all_reduce", **more) -> dict:
    is_message = name.startswith(("send", "recv"))
    return {
        "pg_id": int(group[0]), "process_group": group, "profiling_name": f"nccl:{name}",
        "collective_seq_id": 0 if is_message else seq, "p2p_seq_id": seq if is_message else 0,
        "is_p2p": is_message, "state": "scheduled", **more,
    }  # fmt: skip


def dump_of(*entries: dict, pair: str = "[1, 2]", **ended: int) -> dict:
    """An active dump of a rank in both groups. ended: {pg0: the last number}, enqueued and
    completed."""
    return {
        "entries": list(entries),
        "pg_config": {
            "0": {"desc": "default_pg", "ranks": "[0, 1, 2]"},
            "1": {"desc": "tp", "ranks": pair},
        },
        "pg_status": {
            name.removeprefix("pg"): {
                "last_enqueued_collective": last, "last_completed_collective": last,
            }
            for name, last in ended.items()
        },
    }  # fmt: skip


def test_a_receive_that_is_queued_behind_a_collective_does_not_accuse_its_sender():
    dumps = {
        0: dump_of(pair="[]"),  # its message has left
        1: dump_of(entry_of(PAIR, 5), entry_of(ALL, 3, "recv 1<-0")),
        2: dump_of(),
    }
    assert answer_of(dumps).roots == (2,)
    dumps[1]["entries"].reverse()
    assert answer_of(dumps).roots == (0, 2)


def test_a_message_that_a_whole_recording_shows_as_sent_accuses_nobody():
    sent = entry_of(ALL, 1, "send 0->1", state="completed", record_id=0)
    dumps = {
        0: dump_of(sent, pair="[]"),
        1: dump_of(entry_of(ALL, 1, "recv 1<-0", record_id=0)),
        2: dump_of(),
    }
    assert answer_of(dumps).roots == ()
    sent["record_id"] = 7  # the ring has lost entries, so this may be an earlier message
    assert answer_of(dumps).roots == (0,)


def test_the_state_of_a_group_with_messages_tells_nothing_of_its_collectives():
    dumps = {
        0: dump_of(entry_of(ALL, 2), entry_of(ALL, 49, "send 0->1"), pair="[]"),
        1: dump_of(entry_of(ALL, 2), entry_of(ALL, 8, "recv 1<-0")),
        2: dump_of(pg0=50, pg1=4),
    }
    assert answer_of(dumps).roots == (2,)


def test_the_state_of_a_group_shows_that_a_rank_without_open_entries_went_on():
    dumps = {
        0: dump_of(pair="[]", pg0=3),
        1: dump_of(entry_of(PAIR, 5), entry_of(PAIR, 6), pg0=3, pg1=6),
        2: dump_of(entry_of(ALL, 4), pg0=3, pg1=5),
    }
    dumps[2]["pg_status"]["0"]["last_enqueued_collective"] = 4
    assert set(answer_of(dumps).roots) == {0, 1}
    for dump in dumps.values():
        dump["pg_status"] = {}
    assert answer_of(dumps).roots == (0,)  # rank 1 seems to wait for rank 2


def test_parts_of_a_call_that_ended_are_no_open_operations_of_an_active_dump():
    parts = [entry_of(PAIR, 7, "_all_gather_base"), entry_of(PAIR, 7, "_all_gather_base")]
    dumps = {0: dump_of(pair="[]"), 1: dump_of(*parts, pg0=3, pg1=7), 2: dump_of(pg0=3, pg1=6)}
    assert is_silent(answer_of(dumps))
    dumps[1]["pg_status"]["1"]["last_completed_collective"] = 6
    assert answer_of(dumps).roots == (2,)


def of_rank(rank: int, *states: str, ended_s: float | None) -> Flight:
    """Operations 5, 6, 7 of one group, called at second 100 and looked at 2 ms later."""
    entries = [
        Entry(
            "0", "default_pg", 5 + place, "all_reduce", state, created_s=100.0,
            seen_started_s=100.002 if state == "started" else None,
            seen_completed_s=ended_s if state == "completed" else None,
        )
        for place, state in enumerate(states)
    ]  # fmt: skip
    return Flight(f"dump{rank}", rank, tuple(entries), {"0": ("default_pg", (0, 1, 2))}, {})


@pytest.mark.parametrize(("ended_s", "roots"), [(100.004, ()), (100.001, (0,)), (None, (0,))])
def test_what_ended_elsewhere_after_its_dump_accuses_nobody(ended_s, roots):
    others = [
        of_rank(rank, "completed", "completed", "started", ended_s=ended_s) for rank in (1, 2)
    ]
    late = of_rank(0, "started", "scheduled", "scheduled", ended_s=None)
    recording = recording_of([late, *others])
    assert recording is not None and recording.answer.roots == roots
