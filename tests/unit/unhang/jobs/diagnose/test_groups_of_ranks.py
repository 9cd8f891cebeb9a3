"""Jobs of many groups: who is waited for, by lines of watchdogs of torch 2.1 to 2.10."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_diagnosis import diagnose
from read_again import fits

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.logs.group_numbers import (
    all_members,
    may_be_of_mesh,
    parse_group_label,
    split_by_stride,
)

FOLDER = Path(__file__).parents[4] / "fixtures" / "diagnose_groups"
LABELS = load_yaml(FOLDER / "labels.yml")[0]


def ranks(row):
    """{"count": 3, "ranks": "0-1,5"} -> [0, 1, 5]"""
    parts = [part.partition("-") for part in row["ranks"].split(",") if part]
    return [rank for first, _, last in parts for rank in range(int(first), int(last or first) + 1)]


@pytest.mark.parametrize("name", LABELS)
def test_the_rank_that_is_waited_for_is_named_and_nobody_else(name):
    label, answer = LABELS[name], diagnose([str(FOLDER / name)])
    waited = answer["waited_for"]
    loud = [cause for cause in answer["causes"] if cause["severity"] != "info"]
    fits(answer, "diagnosis-1")
    if label.get("healthy"):
        assert (answer["outcome"]["word"], loud, waited) == ("healthy", [], None)
        return
    if "roots" in label:
        assert (ranks(waited["roots"]) if waited else None) == label["roots"]
    assert ranks(waited["ring"]) == label["ring"] if "ring" in label else True
    assert waited["certainty"] == label["certainty"] if "certainty" in label else True
    assert answer["facts"]["ranks"]["world_size"] == label.get(
        "size", answer["facts"]["ranks"]["world_size"]
    )
    if "cause" in label:
        assert loud[0]["cause"] == label["cause"]
    else:
        assert [cause["cause"] for cause in loud] == []
    if "named" in label:
        assert next(one for one in loud[0]["where"] if one.startswith("rank ")) == (
            f"rank {label['named']}"
        )
    if label.get("cause") != "rank_failed":  # its end was seen
        assert "sure" not in [cause["certainty"] for cause in answer["causes"]]


@pytest.mark.parametrize(
    ("text", "name", "mesh", "number"),
    [
        ("[PG ID 3 PG GUID 12(mesh_tp) Rank 4] x", "12", "mesh_tp", 4),
        ("[PG ID 2 PG GUID 9 Rank 4] x", "9", "", 4),
        ("[PG 0 (default_pg) Rank 1] x", "0", "default_pg", 1),
        ("[PG 3 Rank 4] Exception", "3", "", 4),
        ("[PG GUID update_(3,0) Rank 1] x", "update_(3,0)", "", 1),
    ],
)
def test_label_of_a_group_is_read_in_all_its_forms(text, name, mesh, number):
    found = parse_group_label(text)
    assert (found.name, found.mesh, found.number) in (
        (name, mesh, number),
        ("update_", "3,0", number),
    )


def test_line_without_a_group_has_no_label():
    assert parse_group_label("[rank3]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog") is None


def test_group_without_a_name_is_that_of_all_ranks():
    assert parse_group_label("[PG  Rank 12] Exception").is_default
    assert not parse_group_label("[PG 3 Rank 2] Exception").is_default


def test_groups_that_share_a_name_are_told_apart_by_their_stride():
    tensor = [(rank % 4, rank) for rank in range(16) if rank != 6]
    assert [sorted(one.values()) for one in split_by_stride(tensor)] == [
        [0, 1, 2, 3], [4, 5, 7], [8, 9, 10, 11], [12, 13, 14, 15]
    ]  # fmt: skip
    pipeline = [(rank // 8, rank) for rank in range(16)]
    assert sorted(sorted(one.values()) for one in split_by_stride(pipeline)) == [
        [rank, rank + 8] for rank in range(8)
    ]


def test_members_between_known_ones_are_proven_by_one_stride_alone():
    assert all_members({0: 12, 1: 13, 3: 15}) == (12, 13, 14, 15)
    assert all_members({0: 0, 2: 16, 3: 24}) == (0, 8, 16, 24)
    assert all_members({0: 0, 1: 3, 3: 9, 4: 13}) == ()
    assert all_members({1: 5}, size=2) == ()
    assert all_members({1: 5}, size=2, stride=1) == (4, 5)


def test_row_of_a_mesh_is_told_from_two_stages_that_send_to_each_other():
    rows = [(4, 5), (1, 3), (8, 9, 10, 11), (2, 6, 10, 14)]
    assert all(map(may_be_of_mesh, rows))
    assert not any(map(may_be_of_mesh, [(3, 5), (1, 2), (6, 10, 14, 18), (0, 1, 3), (5,)]))
