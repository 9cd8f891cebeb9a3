"""What a rank did is read from its own rows: a GPU that others use too says nothing of it, and bytes
that arrive far beyond what comes to a rank at rest are work, however few."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from inspected import inspection_of

LOOKS = Path(__file__).parents[4] / "fixtures" / "inspect"
SHARED = LOOKS / "two_gpus" / "shared"
RECORDED = sorted([*LOOKS.glob("evidence/*.json"), *LOOKS.glob("two_gpus/*/*.json")])
DOWNLOADS, AT_REST = 2048, 2049


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def with_a_stranger_on_its_gpus(document: dict) -> dict:
    """Another job trains on each GPU on which this one has memory."""
    changed = copy.deepcopy(document)
    nvml = changed["sections"].get("nvml", {})
    for number in (1, 2):
        for gpu in nvml.get(f"gpus_{number}", []):
            if gpu.get("processes"):
                gpu["processes"].append([999_999, 2000])
                gpu.update(utilization_percent=100, memory_activity_percent=20, power_w=600.0)
                gpu["nvlink_kib"] = [number << 30] * 2
    return changed


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_stranger_on_its_gpus_makes_no_hang_work_and_no_work_a_hang(path):
    alone = inspection_of([read(path)])
    beside = inspection_of([with_a_stranger_on_its_gpus(read(path))])
    if alone["state"] == "hung":
        assert beside["state"] in ("hung", "unknown")
        assert [one["rank"] for one in beside["suspects"]] in (
            [one["rank"] for one in alone["suspects"]],
            [],
        )
    else:
        assert beside["state"] != "hung"
    assert "the driver" not in [*beside["sources"]["works"], *beside["sources"]["stands"]]


def test_the_rank_in_a_queue_is_named_beside_a_job_that_computes_on_the_same_gpus():
    found = inspection_of([read(SHARED / "beside-a-job.json")])
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == ("hung", [1])
    assert "it sleeps in main (pretrain.py:207)" in found["headline"]
    assert found["sources"]["works"] == []


def test_all_that_wait_beside_such_a_job_are_not_called_hung_and_the_tool_that_tells_is_named():
    found = inspection_of(
        [with_a_stranger_on_its_gpus(read(LOOKS / "evidence/longstep-RAS-and-stacks.json"))]
    )
    assert found["state"] == "unknown"
    assert "others have memory on their GPUs: `nvidia-smi pmon -c 5` shows" in found["headline"]


def download(*, rate: float = 40_894.0, rest: float = 221.0, **more: object) -> dict:
    """Rank 0 waits in recv, rank 1 in a barrier; bytes a second that come to each."""
    document = read(SHARED / "download.json")
    for row in document["sections"]["proc"]["ranks_2"]:
        to = rate if row["pid"] == DOWNLOADS else rest
        row.update(socket_bytes_s=to, arrived_bytes_s=to)
        if row["pid"] == DOWNLOADS:
            row.update(more)
    return document


def asleep() -> dict:
    """Its main thread did not wake up."""
    rows = read(SHARED / "download.json")["sections"]["proc"]["ranks_1"]
    return {"switches": next(row["switches"] for row in rows if row["pid"] == DOWNLOADS)}


def without(document: dict, *sections: str) -> dict:
    for name in sections:
        del document["sections"][name]
    return document


@pytest.mark.parametrize(
    "missing",
    [(), ("ras",), ("stacks",), ("ras", "stacks")],
    ids=lambda names: "+".join(names) or "all",
)
def test_a_rank_that_downloads_slowly_works_and_what_arrives_is_said(missing):
    found = inspection_of([without(download(), *missing)])
    assert found["state"] in ("working", "running")
    assert "41 KB/s arrive from 127.0.0.1" in found["headline"]
    assert found["suspects"] == []


def test_so_does_one_that_waits_for_a_child_that_downloads():
    found = inspection_of([download(arrived_below=True, **asleep())])
    assert found["state"] == "working"
    assert "41 KB/s arrive from 127.0.0.1" in found["headline"]


def test_what_comes_to_a_thread_in_the_background_leaves_it_open():
    """Threads that download, or what RAS and monitors get."""
    found = inspection_of([download(**asleep())])
    assert found["state"] == "unknown"
    assert "41 KB/s arrive from 127.0.0.1" in found["headline"]


def test_where_the_ranks_are_on_two_nodes_rest_is_that_of_the_other_node():
    whole = download()
    parts = []
    for pid, host in ((DOWNLOADS, "a"), (AT_REST, "b")):
        part = {**copy.deepcopy(whole), "asked_as": host}
        part["ranks"] = [row for row in part["ranks"] if row["pid"] == pid]
        for rows in ("ranks_1", "ranks_2"):
            proc = part["sections"]["proc"]
            proc[rows] = [row for row in proc[rows] if row["pid"] == pid]
        parts.append(part)
    assert inspection_of(parts)["state"] == "working"


@pytest.mark.parametrize("rate", [0.0, 221.0, 2_000.0, 5_000.0])
@pytest.mark.parametrize(
    "more", [{}, asleep(), {"arrived_below": True}], ids=["woke", "asleep", "below"]
)
def test_a_heartbeat_is_no_work(rate, more):
    found = inspection_of([download(rate=rate, rest=0.0, **more)])
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == ("hung", [0])


@pytest.mark.parametrize(("rate", "state"), [(40_894.0, "hung"), (100_000.0, "working")])
def test_where_no_rank_is_at_rest_more_than_a_report_is_work(rate, state):
    assert inspection_of([download(rate=rate, rest=rate / 2)])["state"] == state


def test_an_address_that_is_none_is_not_printed():
    found = inspection_of([download(arrived_from="\x1b[2J; reboot")])
    assert (
        "41 KB/s arrive, 1 rank waits" in found["headline"]
        or "41 KB/s arrive)" in found["headline"]
    )
