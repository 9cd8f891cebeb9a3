"""All ranks wait: what it may be is said with its own words, by looks that were recorded on GPUs; and
neighbours count for nothing."""

from __future__ import annotations

import copy
import json

import pytest
from inspected import LOOKS, inspection_of, look

RECORDED = sorted([*LOOKS.glob("evidence/*-RAS-and-stacks.json"), *LOOKS.glob("two_gpus/*/*.json")])


def beside_a_neighbour(document: dict) -> dict:
    """Another user's job trains on a GPU of its own, at 20 % memory activity."""
    changed = copy.deepcopy(document)
    nvml = changed["sections"].get("nvml", {})
    for number in (1, 2):
        for first in nvml.get(f"gpus_{number}", [])[:1]:
            links = [(value or 0) + number * (1 << 30) for value in first["nvlink_kib"]]
            nvml[f"gpus_{number}"].append(
                {**first, "index": 7, "utilization_percent": 97, "power_w": 610.0,
                 "memory_activity_percent": 20, "processes": [[999_999, 70_000]],
                 "nvlink_kib": links}
            )  # fmt: skip
    return changed


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_neighbour_that_trains_changes_no_verdict(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    assert inspection_of([beside_a_neighbour(document)]) == inspection_of([document])


def test_a_wait_for_gpus_is_never_the_path_alone_and_on_one_machine_no_cable():
    [suspect] = inspection_of([look("path")])["suspects"]
    assert "an order of calls" in suspect["why"] and "a kernel of one rank" in suspect["why"]
    assert "or what lies between them does not carry it" in suspect["why"]
    assert "NIC" not in suspect["next"]


def with_two_groups(document: dict) -> dict:
    """AllGather of the job in a second communicator of the same ranks."""
    changed = copy.deepcopy(document)
    for one in changed["sections"]["ras"]["looks"]:
        [row] = one["communicators"]
        one["communicators"] = [
            {**row, "hash": name, "counts": [
                {**group, "ops": {op: group["ops"].get(op, 0)}} for group in row["counts"]
            ]}
            for name, op in (("0xa", "AllReduce"), ("0xb", "AllGather"))
        ]  # fmt: skip
    return changed


@pytest.mark.parametrize("scene", ["healthy", "never"])
def test_ranks_that_share_a_gpu_while_another_idles_are_told_and_beside_a_busy_one_they_are_not(
    scene,
):
    """Both ranks were recorded on the one GPU that there was."""
    alone = look(scene)
    assert "share" not in inspection_of([alone])["headline"]
    assert "share" not in inspection_of([beside_a_neighbour(alone)])["headline"]
    idle = beside_a_neighbour(alone)
    for number in (1, 2):
        idle["sections"]["nvml"][f"gpus_{number}"][-1]["processes"] = []
    assert inspection_of([idle])["headline"].endswith(
        "ranks 0-1 share GPU 0; 1 other GPU has none: does the program choose its device by"
        " LOCAL_RANK?"
    )


def test_two_groups_in_opposite_order_have_their_own_words():
    assert "different operations" in inspection_of([look("differ")])["headline"]
    found = inspection_of([with_two_groups(look("differ"))])
    assert found["state"] == "hung"
    assert found["headline"].endswith(
        "two groups that share ranks are called in opposite order: waiting are rank 0 in AllReduce"
        " number 336 for rank 1, rank 1 in AllGather number 1 for rank 0"
    )


def with_a_kernel(document: dict) -> dict:
    """Rank 1 has its own GPU at 100 % and stays at its line: its kernel does not end."""
    changed = copy.deepcopy(document)
    for number in (1, 2):
        for gpu in changed["sections"]["nvml"][f"gpus_{number}"]:
            gpu.update(utilization_percent=100, memory_activity_percent=0)
    stacks = changed["sections"]["stacks"]
    threads = {row["pid"]: row["threads"] for row in stacks["processes"]}
    for row in stacks["processes_2"]:
        row["threads"] = threads[row["pid"]]
    return changed


def test_a_kernel_that_does_not_end_is_not_called_python_code():
    spin = look("spin", folder="two_gpus/evidence")
    assert "it runs Python code" in inspection_of([spin])["headline"]
    found = inspection_of([with_a_kernel(spin)])
    assert found["state"] == "unknown"
    assert "a kernel that takes long or never ends" in found["headline"]
    assert [suspect["rank"] for suspect in found["suspects"]] == [1]


def of_three(scene: str, ways: dict[int, list[str]]) -> dict:
    """A job of two with a third rank, all asleep in these frames."""
    document = look(scene, folder="two_gpus/evidence")
    stacks, proc = document["sections"]["stacks"], document["sections"]["proc"]
    first = document["ranks"][0]["pid"]
    third = {**document["ranks"][0], "rank": 2, "pid": 99, "own_pid": 99}
    document["ranks"] = [{**row, "world_size": 3} for row in (*document["ranks"], third)]
    for rows in (proc["ranks_1"], proc["ranks_2"], stacks["processes"], stacks["processes_2"]):
        rows.append({**next(row for row in rows if row["pid"] == first), "pid": 99})
        for row in rows:
            row.update(state="S", switches=5, cpu_s=1.0)
    for row in document["ranks"]:
        for dumps in (stacks["processes"], stacks["processes_2"]):
            for dump in dumps:
                if dump["pid"] == row["pid"]:
                    dump["threads"] = [{"frames": ways[row["rank"]]}]
    return document


TORCH = "/site-packages/torch/distributed/distributed_c10d.py:3"


@pytest.mark.parametrize(
    ("ways", "named", "certain", "words"),
    [
        # its operation is the others' next one: by operations alone the root is the odd one
        ((("broadcast", "train", 40), ("all_reduce", "odd", 39), ("all_reduce", "train", 40)),
         [1], True, "different operations: all_reduce: rank 1-2; broadcast: rank 0; rank 1 went"),
        # the same helper, called from another line, which a rank may do and mean it
        ((("all_reduce", "sync", 40), ("all_reduce", "sync", 39), ("all_reduce", "sync", 40)),
         [1], False, "lines that lead to all_reduce: main (a.py:39): rank 1; main (a.py:40): rank"
         " 0,2; rank 1 went another way"),
        # a message between two keeps those in the barrier waiting
        ((("barrier", "train", 40), ("recv", "take", 38), ("send", "give", 39)),
         [1, 2], True, "barrier: rank 0; recv: rank 1; send: rank 2; rank 1-2 went another way"),
        # stages of a pipeline are at lines of their own
        ((("recv", "take", 40), ("recv", "take", 39), ("recv", "take", 40)),
         [None], True, "an order of calls"),
    ],
    ids=["root", "helper", "messages", "stages"],
)  # fmt: skip
def test_who_went_another_way_is_named_and_not_who_only_waits_for_it(ways, named, certain, words):
    document = of_three("differ", {
        rank: [f"{function} ({TORCH})", f"{own} (/app/a.py:5)", f"main (/app/a.py:{line})"]
        for rank, (function, own, line) in enumerate(ways)
    })  # fmt: skip
    document["sections"].pop("ras")
    found = inspection_of([document])
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == ("hung", named)
    assert words in found["headline"]
    assert all(one["blind"] is not certain for one in found["suspects"])
    document["sections"].pop("nvml")
    for row in document["sections"]["proc"]["ranks_2"]:  # steps that are met at the same lines
        row["switches"] += 300
    assert inspection_of([document])["suspects"] == []


def test_a_rank_at_rest_is_named_to_whose_store_the_others_dial_and_one_that_imports_is_not():
    dials = ["_env_rendezvous_handler (/site-packages/torch/distributed/rendezvous.py:2)",
             "init (/app/a.py:5)"]  # fmt: skip
    imports = ["<module> (/app/heavy.py:3)", "_call (<frozen importlib._bootstrap>:241)"]
    works = ["prepare (/app/a.py:9)"]
    for frames, state, *told in (
        (works, "S", "hung", [0]), (works, "R", "unknown", [0]), (imports, "R", "starting", []),
    ):  # fmt: skip
        document = of_three("never", {0: frames, 1: dials, 2: dials})
        document["sections"].pop("ras")
        for rows in ("ranks_1", "ranks_2"):
            for row in document["sections"]["proc"][rows]:
                is_first = row["pid"] == document["ranks"][0]["pid"]
                row["switches"] = 5 if is_first else int(rows[-1]) * 40
                row["state"] = state if is_first else "S"
        found = inspection_of([document])
        assert [found["state"], [one["rank"] for one in found["suspects"]]] == told


def test_ranks_that_never_met_are_not_sent_to_their_links_or_their_calls():
    text = json.dumps(look("init"))
    nodes = (text, text.replace('"rank": 0', '"rank": 1'))
    found = inspection_of(list(map(json.loads, nodes)))
    [suspect] = found["suspects"]
    assert (found["state"], suspect["phase"]) == ("starting", "starting")
    assert suspect["why"].startswith("all 2 ranks wait in _env_rendezvous_handler")
    assert "one MASTER_ADDR and MASTER_PORT" in suspect["next"]


def test_a_rank_that_ras_counts_behind_while_it_waits_for_others_is_not_the_one():
    waits, sleeps = [f"barrier ({TORCH})", "train (/app/a.py:5)"], ["train (/app/a.py:9)"]
    document = of_three("never", {0: waits, 1: sleeps, 2: waits})
    for answer in document["sections"]["ras"]["looks"]:
        [row] = answer["communicators"]
        row["members"].append([2, "127.0.0.1", 99, 2])
        row["counts"][1]["ranks"].append(2)  # behind, as rank 1 is
        row["size"] = 3
    found = inspection_of([document])
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == ("hung", [1])
    moved = document["sections"]["stacks"]["processes_2"]
    moved[0]["threads"] = [{"frames": [waits[0], "train (/app/a.py:6)"]}]  # it left its wait
    assert (inspection_of([document])["state"], found["world_size"]) == ("running", 3)
