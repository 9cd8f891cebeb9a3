"""Every recorded look at a real job with NCCL: the right rank and the right cause, and no hang
where there was none."""

from __future__ import annotations

import json

import pytest
from inspected import EVIDENCE, inspection_of, look, render_details

from unhang.core.schemas.check import check_schema

TWO_GPUS = EVIDENCE.parent / "two_gpus"  # each rank has its own
# scene: (state, rank, words of the verdict, cause)
WHOLE = {
    "healthy": ("running", None, "collectives were launched", None),
    "slow": ("running", None, "collectives were launched", None),
    "longstep": ("running", None, "a long step", None),
    "compile": ("compiling", None, "rank 1 is compiling", None),
    "checkpoint": ("saving", None, "rank 1 is saving in save, called by save_for", None),
    "evaluation": ("evaluating", None, "rank 1 is evaluating", None),
    "never": ("hung", 1, "it sleeps in happen (inspect_job.py", None),
    # a loop without end looks like work that takes long
    "spin": ("unknown", 1, "it runs in happen (inspect_job.py", None),
    "lock": ("hung", 1, "it sleeps in happen (inspect_job.py", None),
    "first": ("hung", 1, "waits in all_reduce, called by main", None),
    "allgather": ("hung", 1, "it never launched AllGather number 1", None),
    "loader": ("hung", 1, "a worker is in read_from_dead_server", "slow_rank_or_io"),
    "stopped": ("hung", 1, "its process is stopped (state T)", None),
    "inflight": ("hung", 1, "its process is stopped (state T)", None),
    "killed": ("hung", 1, "its process is gone, and RAS misses it", "rank_failed"),
    "differ": ("hung", 1, "ranks wait for each other in different operations", "rank_desync_app"),
    "path": ("hung", None, "none left it between the looks", None),
    "init": ("starting", 1, "rank 1 of 2 is not there", None),
    # RAS counts no replay of a CUDA graph
    "graph": ("hung", 1, "it sleeps in replay_but_the_last (inspect_job.py", None),
    "left": ("hung", 1, "NCCL's RAS has it in no communicator", None),
}
OF_TWO_GPUS = {
    **{scene: row for scene, row in WHOLE.items() if scene not in ("lock", "graph", "left")},
    # a program of somebody else computes on the GPU of rank 1
    "crowded": ("running", None, "collectives were launched", None),
    "restore": ("restoring", None, "rank 1 is restoring in load, called by restore_for", None),
    "import": (
        "starting",
        None,
        "rank 1 is starting in import, called by <module> (large_package.py",
        None,
    ),
    "baton": ("hung", 1, "it sleeps in wait, called by wait_for_build", "fused_kernel_build"),
    "full": ("running", None, "collectives were launched", None),
}
HEALTHY = ("healthy", "slow", "longstep", "compile", "checkpoint", "evaluation")


@pytest.mark.parametrize("scene", WHOLE)
def test_ras_and_stacks_name_the_rank_and_the_cause(scene):
    assert_told(look(scene, "RAS-and-stacks"), *WHOLE[scene])


@pytest.mark.parametrize("scene", OF_TWO_GPUS)
def test_the_same_holds_where_each_rank_has_its_own_gpu(scene):
    assert_told(
        json.loads(
            (TWO_GPUS / "evidence" / f"{scene}-RAS-and-stacks.json").read_text(encoding="utf-8")
        ),
        *OF_TWO_GPUS[scene],
    )


@pytest.mark.parametrize("sign", ["cpu_s", "switches"])
def test_where_ras_counts_equally_a_rank_that_does_anything_is_not_accused(sign):
    document = look("graph", "RAS-and-stacks")
    document["sections"]["proc"]["ranks_2"][1][sign] += 1
    assert inspection_of([document])["suspects"] == []


def test_a_piece_of_a_stack_does_not_hide_what_the_whole_one_showed_before():
    document = look("compile", "RAS-and-stacks")
    del document["sections"]["stacks"]["processes_2"][1]["threads"][0]["frames"][1:]
    assert_told(document, *WHOLE["compile"])


def of_one_line(document: dict) -> dict:
    """Rank 0 waits for its GPU in a line of its own, as .item() does, not in synchronize()."""
    for name in ("processes", "processes_2"):
        del document["sections"]["stacks"][name][0]["threads"][0]["frames"][:2]
    return document


def test_who_waits_for_its_gpu_without_a_frame_that_says_so_waits_for_who_rests():
    assert_told(of_one_line(look("graph", "RAS-and-stacks")), *WHOLE["graph"])


@pytest.mark.parametrize("gpu", [{"memory_activity_percent": 9}, {"utilization_percent": 0}])
def test_beside_who_rests_a_rank_whose_gpu_computes_or_does_nothing_waits_for_nobody(gpu):
    document = of_one_line(look("graph", "RAS-and-stacks"))
    document["sections"]["nvml"]["gpus_2"][0].update(gpu)
    assert inspection_of([document])["state"] != "hung"


def of_processors(scene: str) -> dict:
    """A job with gloo."""
    path = EVIDENCE.parent / "processors" / f"{scene}-RAS-and-stacks.json"
    return json.loads(path.read_text(encoding="utf-8"))


def backward() -> dict:
    """DistributedDataParallel: rank 0 reads a pipe that nobody writes to, and rank 1 sleeps in
    backward."""
    return of_processors("backward")


def test_the_thread_that_saves_beside_those_that_wait_for_it_is_where_its_rank_is():
    """All main threads wait for a thread of their own; that of rank 1 reads a pipe."""
    words = "it sleeps in hand_over (train.py:7); 2 ranks wait in all_gather_object"
    assert_told(of_processors("asynchronous"), "hung", 1, words, None)


def test_threads_of_unlike_names_are_not_compared():
    document = of_processors("asynchronous")
    document["sections"]["stacks"]["processes"][2]["threads"][1]["name"] = "writer_0"
    assert inspection_of([document])["suspects"] == []


def test_a_rank_asleep_in_backward_waits_for_the_gradients_of_the_others():
    assert_told(
        backward(),
        "hung",
        0,
        "it sleeps in main (train.py:17); 1 rank waits in _engine_run_backward",
        None,
    )
    assert inspection_of([backward()])["unread"] == []  # no word about NCCL's RAS where no GPU is


def test_a_rank_that_computes_in_backward_waits_for_nobody():
    document = backward()
    row = document["sections"]["proc"]["ranks_2"][1]
    row.update(state="R", cpu_s=row["cpu_s"] + 3.0, switches=row["switches"] + 100)
    found = inspection_of([document])
    assert (found["state"], found["suspects"]) == ("working", [])


FRAMEWORKS = {
    "accelerate": (
        "torch",
        "wait_for_a_server_that_is_gone (framework_job.py:25), called by fetch",
        "AllReduce",
    ),
    "lightning": ("torch", "it sleeps in wait_for_a_server_that_is_gone", "AllReduce"),
    "fsdp2": ("torch", "it sleeps in wait_for_a_server_that_is_gone", "AllGather"),
    "jax": ("jax", "it sleeps in wait_for_a_server_that_is_gone", "AllReduce"),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_job_of_a_framework_is_told_while_it_trains_and_while_it_hangs(name):
    framework, place, collective = FRAMEWORKS[name]
    trains, hangs = (
        json.loads((TWO_GPUS / "frameworks" / f"{name}-{moment}.json").read_text(encoding="utf-8"))
        for moment in ("trains", "hangs")
    )
    assert {row["framework"] for row in hangs["ranks"]} == {framework}
    assert_told(trains, "running", None, "collectives were launched", None)
    for words in (place, f"never launched {collective}"):
        assert_told(hangs, "hung", 1, words, "slow_rank_or_io" if name == "accelerate" else None)


def assert_told(
    document: dict, state: str, rank: int | None, words: str, cause: str | None
) -> None:
    found = inspection_of([document])
    named = {suspect["rank"]: suspect for suspect in found["suspects"]}
    assert found["state"] == state
    assert words in " ".join(
        [found["headline"], *(suspect["why"] for suspect in found["suspects"])]
    )
    if rank is not None:
        assert named[rank]["cause"] == cause
        assert named[rank]["next"]
    else:
        assert [name for name in named if name is not None] == []


@pytest.mark.parametrize("scene", HEALTHY)
@pytest.mark.parametrize("way", ["RAS", "RAS-and-stacks", "driver-and-proc"])
def test_no_hang_is_claimed_of_a_job_that_works(scene, way):
    assert inspection_of([look(scene, way)])["state"] != "hung"


@pytest.mark.parametrize(
    "scene",
    ["never", "spin", "lock", "loader", "allgather", "stopped", "inflight", "killed", "differ"],
)
def test_ras_alone_names_the_rank(scene):
    found = inspection_of([look(scene, "RAS")])
    assert 1 in {suspect["rank"] for suspect in found["suspects"]}
    assert found["state"] in ("hung", "unknown")


@pytest.mark.parametrize(
    "path",
    sorted([*EVIDENCE.glob("*.json"), *TWO_GPUS.glob("*/*.json")]),
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_documents_are_as_their_schemas_say(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    assert list(check_schema(document, "evidence-1")) == []
    found = inspection_of([document])
    assert list(check_schema(found, "inspection-1")) == []
    assert found["headline"] in render_details(found)


def with_a_rank_gone(document: dict) -> dict:
    """The job as it is when its first rank has ended: the launcher started two."""
    ranks = [row for row in document["ranks"] if row["rank"] == 1]
    for row in ranks:
        row["settings"]["LOCAL_WORLD_SIZE"] = "2"
        row["launcher"] = "torchrun"
    return {**document, "ranks": ranks}


def test_ranks_that_save_after_another_ended_are_not_called_hung():
    saving = with_a_rank_gone(look("checkpoint", "driver-and-proc"))
    assert inspection_of([saving])["state"] == "working"
    saving = with_a_rank_gone(look("checkpoint", "RAS-and-stacks"))
    del saving["sections"]["ras"]
    found = inspection_of([saving])
    assert (found["state"], found["suspects"]) == ("saving", [])
    assert "rank 0 is gone, but the ranks that are left are saving" in found["headline"]


def test_a_worker_of_a_loader_that_is_stopped_is_named_with_what_lets_it_go_on():
    document = look("loader", "RAS-and-stacks")
    proc = document["sections"]["proc"]
    for child in (proc[name][1]["children"][-1] for name in ("ranks_1", "ranks_2")):
        child["state"] = "T"
    first, *_ = inspection_of([document])["suspects"]
    assert (first["rank"], first["phase"]) == (1, "stopped")
    assert f"kill -CONT {child['pid']} on vm" in first["next"]


def test_a_rank_that_polls_sleeps_also_if_it_was_met_awake():
    document = look("never", "RAS-and-stacks")
    assert "it sleeps in happen" in inspection_of([document])["headline"]
    for row in document["sections"]["proc"]["ranks_2"]:
        row["state"] = "R"
    assert "it sleeps in happen" in inspection_of([document])["headline"]


def test_a_rank_that_gets_little_of_a_crowded_processor_runs():
    document = look("spin", "RAS-and-stacks")
    first, second = (document["sections"]["proc"][name] for name in ("ranks_1", "ranks_2"))
    for before, after in zip(first, second, strict=True):
        after["cpu_s"] = before["cpu_s"] + 0.1
    found = inspection_of([document])
    assert (found["state"], "it runs in happen" in found["headline"]) == ("unknown", True)


@pytest.mark.parametrize(
    ("way", "errors", "state", "named"),
    [
        ("RAS", [[1, "NOCOMM"]], "unknown", [1]),
        ("RAS-and-stacks", [[1, "aborted"]], "hung", [1]),
        ("RAS", [[0, "NOCOMM"], [1, "NOCOMM"]], "unknown", []),
        ("RAS", [[1, "asynchronous error 7"]], "unknown", []),
    ],
)
def test_a_rank_that_left_its_communicator_by_ras_is_named_and_most_that_did_are_not(
    way, errors, state, named
):
    document = look("never", way)
    even = {"errors": errors, "counts": [{"ranks": [0, 1], "ops": {"AllReduce": 9}}]}
    for answer in document["sections"]["ras"]["looks"]:
        answer["communicators"][0].update(even)
    found = inspection_of([document])
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == (state, named)
    assert ("it aborted or destroyed it" in found["headline"]) is bool(named)


def test_rows_that_are_left_out_are_among_what_was_not_read():
    """A rank whose row is not as expected looks like one that is missing."""
    document = look("never")
    document["ranks"][1]["world_size"] = "two"
    document["sections"]["proc"]["ranks_2"].append("a row")
    unread = inspection_of([document])["unread"]
    assert [f"{row['what']} {row['status']} {row['why']} {row['helps']}" for row in unread] == [
        f"{what} invalid 1 of {rows} rows are not as expected, and left out None"
        for what, rows in (("ranks", 2), ("proc", 3))
    ]
