"""What NCCL's RAS answered in seven scenes on a real GPU, in both of its forms, and what is no
answer of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unhang_node.job.parse.ras import parse_ras

CAPTURES = Path(__file__).parents[4] / "fixtures" / "ras"


def answers(name: str) -> dict[str, str]:
    """{form: text} of a capture."""
    parts = re.split(
        r"==== (verbose status|json)\n", (CAPTURES / f"{name}.txt").read_text(encoding="utf-8")
    )
    return {
        form: text.partition("\n[0.")[0]
        for form, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def only(answer):
    (communicator,) = answer["communicators"]
    return communicator


@pytest.mark.parametrize(
    ("capture", "counts"),
    [
        ("healthy-second", [{"ranks": [0, 1], "ops": {"AllReduce": 348}}]),
        (
            "never-second",
            [{"ranks": [0], "ops": {"AllReduce": 61}}, {"ranks": [1], "ops": {"AllReduce": 60}}],
        ),
        (
            "differ-second",
            [
                {"ranks": [0], "ops": {"AllReduce": 225}},
                {"ranks": [1], "ops": {"AllGather": 1, "AllReduce": 224}},
            ],
        ),
    ],
)
def test_json_counts_operations_by_rank(capture, counts):
    answer = parse_ras(answers(capture)["json"])
    assert (answer["version"], answer["form"]) == ("2.28.9", "json")
    assert only(answer)["counts"] == counts


@pytest.mark.parametrize("form", ["json", "verbose status"])
def test_a_killed_rank_is_missing_in_both_forms(form):
    """NCCL 2.28.9 forgets a comma in the JSON of a missing rank."""
    found = only(parse_ras(answers("killed-second")[form]))
    assert found["missing"] == [[1, "127.0.0.1", 705, 0, False]]
    assert [rank for rank, _ in found["errors"]] == [0]


def test_text_names_the_ranks_that_differ():
    found = only(parse_ras(answers("differ-first")["verbose status"]))
    assert found["size"] == 2
    assert found["counts"] == [
        {"ranks": [1], "ops": {"AllGather": 1}},
        {"ranks": [0], "ops": {"AllGather": 0}},
    ]


SEVERAL = """NCCL version 2.28.9 compiled with CUDA 13.0

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2        4-4            1          8        8

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH
    1         1         0         0         0         0      INIT  INCOMPLETE

#0-0 (04d06cf7dbdd94b1) MISMATCH
  Communicator ranks have different AllGather operation counts
  3 ranks have not launched any operations
  Rank 0 has launched up to operation 1 -- GPU 0 managed by process 77 on node 127.0.0.1

  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 5
  Rank 0 has launched up to operation 4 -- GPU 0 managed by process 77 on node 127.0.0.1

#1-0 (1b87000200000001) INCOMPLETE
  Missing communicator data from 257 ranks
  Rank -1193619904 -- [process information not found]
  Rank 1 -- GPU 1 managed by process 78 on node 127.0.0.1
"""


def test_text_has_each_operation_that_differs_and_nothing_of_a_communicator_that_is_not_known():
    answer = parse_ras(SEVERAL)
    found = only(answer)
    assert answer["processes"] == 8
    assert [(group["ranks"], group["ops"]) for group in found["counts"]] == [
        ([1, 2, 3], {"AllGather": 0}),
        ([0], {"AllGather": 1}),
        ([1, 2, 3], {"AllReduce": 5}),
        ([0], {"AllReduce": 4}),
    ]
    assert found["missing"] == []


def test_text_of_a_healthy_job_has_no_rank():
    found = only(parse_ras(answers("healthy-first")["verbose status"]))
    assert (found["size"], found["members"], found["missing"]) == (2, [], [])


@pytest.mark.parametrize(
    "text",
    ["", "HTTP/1.1 400 Bad Request\r\n\r\n", "OK\n", "ERROR: Unknown command x\n", "OK\n{}",
    'OK\n{"communicators": 3}', "OK\n" + "[" * 5000,
     "OK\n{" + '"a":[' * 5000,
     "Job summary\n===========\n"],
)  # fmt: skip
def test_another_service_is_refused(text):
    with pytest.raises(ValueError, match=r"not a status|Expecting|Extra"):
        parse_ras(text)


def test_half_an_answer_is_refused():
    whole = answers("never-first")["json"]
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        parse_ras(whole[: len(whole) // 2])


def test_hostile_values_become_nothing():
    text = """{"nccl_version": 7, "communicators": [1, {"hash": null, "size": "x", "ranks": [{"rank": -1, "pid": 1e9, "host": ["a"],
      "collective_counts": [1]}, 5],
      "missing_ranks": {"a": 1}}]}"""
    found = only(parse_ras(text))
    assert (found["size"], found["missing"]) == (0, [])
    assert found["members"][0][0] == 0


def test_a_thousand_ranks_stay_small():
    ranks = ",".join(
        f'{{"rank": {n}, "host": "10.0.{n // 8 % 256}.1", "pid": {n}, "cuda_dev": 0,'
        ' "collective_counts": {"AllReduce": 7}}'
        for n in range(1000)
    )
    found = only(
        parse_ras(
            '{"nccl_version": "2.30.1", "communicators": [{"hash": "0x1", "size": 1000, "ranks":'
            f" [{ranks}]}}]}}"
        )
    )
    assert len(found["members"]) == 1000
    assert found["counts"] == [{"ranks": list(range(1000)), "ops": {"AllReduce": 7}}]
