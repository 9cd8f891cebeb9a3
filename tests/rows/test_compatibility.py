"""The tables fit together, and what they say of a node is what a person would say."""

from __future__ import annotations

import pytest
from case_rows import case_rows

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.node_rules import finding_texts, judge_rule, node_world
from unhang_node.base.versions.compare import compare_versions

ROWS = case_rows(__file__)

CATALOGUE = load_catalogue()
T = CATALOGUE.tables
NODE_RULES = [rule for rule in CATALOGUE.rules if rule.scope == "node"]


def findings(today="2026-11-20", **fragment):
    """Rule id -> found text of every rule that fails on a fragment."""
    view = catalogue_view(T, tuple(rule.id for rule in CATALOGUE.rules), today)
    world = node_world(example_node(fragment), view)
    found = {}
    for rule in NODE_RULES:
        for judged in judge_rule(rule, world):
            if judged.verdict == "fail":
                found[rule.id] = (
                    finding_texts(rule, world, judged, {})["found"] if rule.for_each is None else ""
                )
    return found


def driver(version, flavour="open", **more):
    return {"loaded": {"is_loaded": True, "version": version, "flavour": flavour}, **more}


def torch(version, cuda, **more):
    return {
        "environments": [
            {"path": "/opt/train", "torch": version, "cuda": cuda, "has_cuda": True, **more}
        ]
    }


# ---- tables


@pytest.mark.parametrize(
    ("table", "rows"),
    ROWS["test_nothing_that_is_known_is_left_out"],
)  # fmt: skip
def test_nothing_that_is_known_is_left_out(table, rows):
    assert len(T[table]) == rows


def test_every_xid_has_exactly_one_gravity():
    codes = [code for level in T["xid_levels"].values() for code in level["codes"]]
    assert sorted(codes) == sorted(int(code) for code in T["xids"])


def test_every_xid_that_is_in_use_says_what_to_do():
    assert [row["xid"] for row in T["xids"].values() if len(row["action"]) < 8] == []


@pytest.mark.parametrize("code", ["63", "64", "92", "94", "95"])
def test_disagreement_about_an_xid_is_shown_with_every_voice(code):
    voices = [row for row in T["xid_opinions"].values() if str(row["xid"]) == code]
    assert len({row["who"] for row in voices}) >= 3
    assert all(row["who"] in T["xids"][code]["others_say"] for row in voices)


def names_of(table, field):
    return {row[field] for row in T[table].values() if field in row}


@pytest.mark.parametrize(
    ("table", "field", "other"),
    ROWS["test_what_a_table_refers_to_is_there"],
)  # fmt: skip
def test_what_a_table_refers_to_is_there(table, field, other):
    assert names_of(table, field) - set(T[other]) == set()


def test_the_nccl_of_every_torch_is_known_as_a_wheel():
    assert {
        row["nccl"] for row in T["torch_wheels"].values() if row["linkage"] == "wheel"
    } - names_of("nccl_wheels", "nccl") == set()


def test_every_torch_has_a_cuda_whose_floor_is_known():
    assert {row["cuda"].split(".")[0] for row in T["torch_wheels"].values()} - set(
        T["cuda_majors"]
    ) == set()


def test_a_branch_begins_before_it_ends_and_its_last_release_is_of_it():
    for row in T["driver_branches"].values():
        assert row.get("first_release", "") < row.get("eol", "9")
        assert row.get("latest", row["branch"]).split(".")[0] == row["branch"]


def test_all_features_need_no_older_driver_than_a_start_does():
    for row in T["cuda_toolkits"].values():
        floor = T["cuda_majors"].get(row["cuda"].split(".")[0])
        if floor and "rc" not in row["release"] and row["cuda"] not in ("11.0", "10.0", "10.1"):
            assert compare_versions(row["driver"], floor["driver"], "driver").sign >= 0


# ---- findings about a node


@pytest.mark.parametrize(
    ("version", "environment", "message", "unsaid"),
    [
        (
            "570.124.06",
            torch("2.11.0", "13.0"),
            {"driver-too-old-for-torch"},
            {"driver-below-torch-cuda"},
        ),
        (
            "535.154.05",
            torch("2.9.1", "12.8"),
            {"driver-below-torch-cuda"},
            {"driver-too-old-for-torch"},
        ),
        (
            "580.159.04",
            torch("2.11.0", "13.0"),
            set(),
            {"driver-too-old-for-torch", "driver-below-torch-cuda", "driver-branch-end-of-life"},
        ),
        (
            "470.256.02",
            torch("2.5.1", "12.4"),
            {"driver-too-old-for-torch", "driver-branch-end-of-life"},
            {"driver-below-torch-cuda"},
        ),
        # 13.2 is in no table yet: nothing is guessed
        (
            "580.65.06",
            torch("2.15.0", "13.2"),
            set(),
            {"driver-too-old-for-torch", "driver-below-torch-cuda"},
        ),
    ],
)
def test_both_floors_of_a_driver_are_reported(version, environment, message, unsaid):
    found = set(findings(driver=driver(version), torch=environment))
    assert message <= found and not unsaid & found


@pytest.mark.parametrize(
    ("version", "today", "ended"),
    ROWS["test_a_branch_ends_on_its_day"],
)
def test_a_branch_ends_on_its_day(version, today, ended):
    assert ("driver-branch-end-of-life" in findings(today, driver=driver(version))) is ended


def test_a_policy_that_pins_an_ended_branch_is_honoured_and_told_what_it_gives_up():
    found = findings(
        driver=driver("535.154.05", "proprietary"), policy={"driver": {"version": "535.154.05"}}
    )
    assert set(found) == {"policy-pins-ended-branch"}
    assert (
        "2026-06-01" in found["policy-pins-ended-branch"]
        and "CUDA 13" in found["policy-pins-ended-branch"]
    )
    assert (
        next(rule.severity for rule in NODE_RULES if rule.id == "policy-pins-ended-branch")
        == "info"
    )


@pytest.mark.parametrize(
    ("model", "architecture", "version", "flavour", "message"),
    [
        ("NVIDIA B200", "blackwell", "580.159.04", "proprietary", {"driver-flavour-not-for-gpu"}),
        (
            "NVIDIA B200",
            "blackwell",
            "570.124.06",
            "open",
            {"driver-older-than-gpu", "driver-branch-end-of-life"},
        ),
        ("Tesla V100-SXM2-32GB", "volta", "580.159.04", "open", {"driver-flavour-not-for-gpu"}),
        ("Tesla V100-SXM2-32GB", "volta", "580.159.04", "proprietary", set()),
        ("NVIDIA H200", "hopper", "580.159.04", "open", set()),
        ("NVIDIA Unheard Of", "hopper", "580.159.04", "open", set()),
    ],
)
def test_gpus_get_the_flavour_and_the_driver_that_they_need(
    model, architecture, version, flavour, message
):
    gpus = {"devices": [{"index": 0, "model": model, "architecture": architecture}]}
    assert set(findings(driver=driver(version, flavour), gpus=gpus)) == message


def test_old_gpus_are_not_led_beyond_their_last_branch_and_cuda():
    gpus = {
        "model": "Tesla V100-SXM2-32GB",
        "devices": [{"index": 0, "model": "Tesla V100-SXM2-32GB", "architecture": "volta"}],
    }
    loaded = driver("580.159.04", "proprietary", on_disk={"version": "590.48.01"})
    found = set(
        findings(
            driver=loaded,
            gpus=gpus,
            torch=torch("2.11.0", "13.0", cudnn="9.19.0.56"),
            policy={"driver": {"version": "595.91.07"}},
        )
    )
    assert {
        "driver-on-disk-drops-gpu",
        "policy-driver-drops-gpu",
        "torch-cuda-13-without-old-architectures",
        "cudnn-drops-gpu",
    } <= found
