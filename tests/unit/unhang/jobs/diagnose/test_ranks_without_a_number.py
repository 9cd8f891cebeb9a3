"""RAS's text numbers few ranks, and a ring has one rank that called two groups in another order."""

from __future__ import annotations

import json

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.logs.ras_ranks import members_by_stride

HEAD = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  {first}
    1         {comms}         1         4         {size}         8   RUNNING  {second}

Errors
======

Warnings
========
"""
ON = "GPU {gpu} managed by process {pid} on node {node}"


@pytest.fixture
def answer(tmp_path):
    def answer(text, first="MISMATCH", second="MISMATCH", size=4):
        head = HEAD.format(first=first, second=second, comms=8 // size, size=size)
        (tmp_path / "ras.txt").write_text(head + text, encoding="utf-8")
        return diagnose([str(tmp_path)])

    return answer


def roots(found):
    return found["waited_for"] and found["waited_for"]["roots"]["ranks"]


def place(rank, pid_step=3):
    """Ranks 0-3 on one node, 4-7 on the other."""
    node = f"10.0.0.{1 + rank // 4}"
    return ON.format(gpu=rank % 4, pid=4000 + pid_step * rank, node=node)


def behind(op, comm, counts):
    """counts: ["7 ranks have launched up to operation 60", ...]."""
    lines = "\n".join(f"  {one}" for one in counts)
    return (
        f"\n{comm} MISMATCH\n  Communicator ranks have different {op} operation counts\n{lines}\n"
    )


def test_order_of_one_rank_is_found_among_ranks_that_are_only_counted(answer):
    """Rank 6 went to the job's operation before that of its tensor group, 4-7."""
    world = ["5 ranks have launched up to operation 12", "3 ranks have launched up to operation 11"]
    world += [f"Rank {rank} -- {place(rank)}" for rank in (4, 5, 7)]
    tensor = ["3 ranks have launched up to operation 90"]
    tensor += [f"Rank 2 has launched up to operation 89 -- {place(6)}"]
    found = answer(
        behind("AllReduce", "#0-0 (6e3c)", world) + behind("AllGather", "#1-1 (e299)", tensor)
    )
    assert roots(found) == "6"
    assert "process -" not in str(found) and "0xe299 " not in str(found["collect_next"])


def test_order_of_one_rank_of_a_pair_is_found(answer):
    world = ["7 ranks have launched up to operation 9"]
    world += [f"Rank 3 has launched up to operation 8 -- {place(3)}"]
    pair = [f"Rank 1 has launched up to operation 5 -- {place(3)}"]
    pair += [f"Rank 0 has launched up to operation 4 -- {place(2)}"]
    found = answer(
        behind("AllReduce", "#0-0 (0dd4)", world) + behind("AllReduce", "#1-1 (3682)", pair), size=2
    )
    assert roots(found) == "2"


def test_process_between_two_that_are_numbered_has_the_rank_between(answer):
    """Every communicator of four ranks but one agrees; the job's lists the rest of the node."""
    world = ["4 ranks have launched up to operation 12", "4 ranks have launched up to operation 11"]
    world += [f"Rank {rank} -- {place(rank)}" for rank in (0, 1, 2, 3)]
    tensor = ["3 ranks have launched up to operation 90"]
    tensor += [f"Rank 1 has launched up to operation 89 -- {place(1)}"]
    assert (
        roots(
            answer(
                behind("AllReduce", "#0-0 (6e)", world) + behind("AllReduce", "#1-0 (e2)", tensor)
            )
        )
        == "1"
    )


def test_process_whose_gpu_and_number_do_not_rise_alike_has_no_rank(answer):
    """A launcher that started the GPUs of a node in another order."""
    world = ["7 ranks have launched up to operation 9"]
    world += [f"Rank 2 has launched up to operation 8 -- {place(2)}"]
    stranger = ON.format(gpu=1, pid=4900, node="10.0.0.1")
    pair = [f"Rank 0 has launched up to operation 5 -- {place(2)}"]
    pair += [f"Rank 1 has launched up to operation 4 -- {stranger}"]
    found = answer(
        behind("AllReduce", "#0-0 (0dd4)", world) + behind("AllReduce", "#1-1 (3682)", pair), size=2
    )
    assert roots(found) is None or "1" not in roots(found)


def test_ranks_that_were_dealt_out_to_the_nodes_in_turn_are_not_guessed(answer):
    """Ranks 0, 2, 4 and 6 on one node."""
    world = ["6 ranks have launched up to operation 9", "2 ranks have launched up to operation 8"]
    world += [f"Rank {2 * gpu} -- {place(gpu)}" for gpu in (0, 1)]
    pair = [f"Rank 0 has launched up to operation 5 -- {place(0)}"]
    pair += [f"Rank 1 has launched up to operation 4 -- {place(2)}"]
    found = answer(
        behind("AllReduce", "#0-0 (0dd4)", world) + behind("AllReduce", "#1-1 (3682)", pair), size=2
    )
    assert roots(found) is None or "3" not in roots(found)


def test_one_rank_in_another_operation_of_a_small_communicator_is_named_by_its_process(answer):
    lines = ["3 ranks have not launched any operations"]
    lines += ["Rank 2 has launched up to operation 1 -- " + place(6)]
    found = answer(behind("ReduceScatter", "#1-1 (42a2)", lines), first="OK")
    assert found["causes"][0]["where"] == ["process 4018"]
    assert "rank -" not in str(found) and "ranks -" not in str(found)


def test_equal_counts_of_all_communicators_accuse_nobody(answer):
    found = answer("", first="OK", second="OK")
    assert (found["found"], found["waited_for"]) == (False, None)


def test_dead_process_has_its_rank_in_the_title(answer):
    text = (
        "\nDEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
        "  Process 4015 on node 10.0.0.2 managing GPU 1\n\n#0-0 (c331) INCOMPLETE\n"
        f"  Missing communicator data from 1 rank\n  Rank 5 -- {place(5)}\n"
    )
    cause = answer(text, first="INCOMPLETE", second="OK")["causes"][0]
    assert (cause["cause"], cause["where"]) == (
        "rank_failed", ["rank 5", "host 10.0.0.2", "pid 4015", "GPU 1"],
    )  # fmt: skip


def in_json(communicators):
    """communicators: [(hash, members, {rank: AllReduce operations})]."""
    rows = [
        {
            "hash": name, "size": len(members), "missing_ranks": [],
            "ranks": [
                {
                    "rank": number, "host": f"10.0.0.{1 + rank // 4}", "pid": 500 + 7 * rank,
                    "cuda_dev": rank % 4, "nvml_dev": rank % 4, "status": {"init_state": 0},
                    "collective_counts": {"AllReduce": counts[rank]},
                }
                for number, rank in enumerate(members)
            ],
        }
        for name, members, counts in communicators
    ]  # fmt: skip
    return json.dumps({"nccl_version": "2.28.9", "communicators": rows}, indent=2)


@pytest.mark.parametrize(
    ("of_pairs", "odd"),
    [({2: 8}, "2"), ({rank: 8 for rank in range(8) if rank != 3}, "3")],
    ids=["went to the job's group first", "went to its pair first"],
)
def test_counts_of_all_pairs_show_whose_order_differs(tmp_path, of_pairs, odd):
    """Rank 3 waits in its pair for rank 2, and all others wait in the job's group for rank 3."""
    world = ("0xa", range(8), {rank: 8 + (rank != 3) for rank in range(8)})
    counts = {rank: of_pairs.get(rank, 9) for rank in range(8)}
    pairs = [(f"0xb{rank}", (rank, rank + 1), counts) for rank in range(0, 8, 2)]
    (tmp_path / "ras.json").write_text(in_json([world, *pairs]), encoding="utf-8")
    found = diagnose([str(tmp_path)])
    assert (roots(found), found["waited_for"]["certainty"]) == (odd, "possible")
    first = found["causes"][0]
    assert (first["cause"], first["where"]) == ("rank_desync_app", [f"rank {odd}", "host 10.0.0.1"])
    assert first["certainty"] != "sure"


@pytest.mark.parametrize("counts", [9, 10])
def test_equal_counts_in_json_accuse_nobody(tmp_path, counts):
    world = ("0xa", range(8), dict.fromkeys(range(8), 9))
    pairs = [
        (f"0xb{rank}", (rank, rank + 1), dict.fromkeys(range(8), counts + rank))
        for rank in range(0, 8, 2)
    ]
    (tmp_path / "ras.json").write_text(in_json([world, *pairs]), encoding="utf-8")
    found = diagnose([str(tmp_path)])
    assert (found["found"], found["waited_for"]) == (False, None)


def test_members_follow_where_one_stride_alone_fits():
    assert [*members_by_stride({2: 6}, 4, 8).values()] == [4, 5, 6, 7]
    assert [*members_by_stride({0: 1, 2: 9}, 4, 16).values()] == [1, 5, 9, 13]
    assert members_by_stride({0: 0}, 4, 16) == {}
    assert members_by_stride({0: 1, 2: 9}, 4, 13) == {}
    assert members_by_stride({0: 1, 1: 3, 3: 8}, 4, 16) == {}
    assert members_by_stride({0: None, 1: -3}, 4, 16) == {}
    assert members_by_stride({3: 1}, 4, 16) == {}
