"""explain answers what people type: a piece of an error, a model without its space, a cause, a
role, a policy key; and proposes what is near in meaning."""

from __future__ import annotations

import json
import re

import pytest

from unhang import cli
from unhang.core.catalogue.own_tables import table
from unhang.core.catalogue.rule_files import own_rule_ids


def asked(capsys, *words):
    """The topics as (kind, id)."""
    assert cli.main(["explain", *words, "-o", "json"]) == 0
    return [(one["kind"], one["id"]) for one in json.loads(capsys.readouterr().out)["topics"]]


@pytest.mark.parametrize(
    ("typed", "topic"),
    [
        ("Watchdog caught collective operation timeout", ("message", "torch-watchdog-timeout")),
        ("RTX3090", ("gpu_models", "gpu_models/NVIDIA GeForce RTX 3090")),
        ("H100", ("gpu_models", "gpu_models/NVIDIA H100 80GB HBM3")),
        ("acs_iommu", ("cause", "acs_iommu")),
        ("acs-iommu", ("cause", "acs_iommu")),
        ("gpu_driver", ("role", "gpu_driver")),
        ("driver.min", ("policy", "driver.min")),
        ("unhang_policy.host.iommu", ("policy", "host.iommu")),
        ("DCGM_FR_NVLINK_DOWN", ("other_names", "other_names/DCGM_FR_NVLINK_DOWN")),
    ],
)
def test_it_answers_what_is_typed(capsys, typed, topic):
    assert asked(capsys, typed)[0] == topic


def test_a_name_of_another_monitor_leads_to_rules_that_are_there():
    known = own_rule_ids()
    assert [
        one for row in table("other_names").values() for one in row["rules"] if one not in known
    ] == []


def proposed(capsys, *words):
    """The ids that are proposed, each with its title."""
    assert cli.main(["explain", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0] == f"unhang: nothing is known of {' '.join(words)!r}; did you mean one of these?"
    )
    assert lines[-1].startswith("`unhang catalogue` lists everything")
    return dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines[1:-1])


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("persistence mode", {"gpu-persistence-off"}),
        ("bus lost", {"gpu-fell-off-the-bus"}),
        ("nvlnk down", {"nvlink-all-down", "nvlink-some-inactive"}),
        ("watchdg timeout", {"watchdog_timeout_too_short"}),
        ("slow gpu", {"gpu-slowed-by-hardware"}),
        ("thermal throttling", {"gpu-slowed-by-temperature", "gpu-slowed-by-hardware"}),
        ("fabrik manager not runing", {"fabric-manager-not-running"}),
        ("driver mismatch", {"driver-library-mismatch", "version_mismatch_driver_library"}),
        ("infinband down", {"ib_misconfig"}),
        ("timeout", {"watchdog_timeout_too_short"}),
        ("nouveu", {"driver-nouveau-loaded"}),
    ],
)
@pytest.mark.parametrize("split", [str.split, lambda typed: [typed]], ids=["words", "one word"])
def test_what_is_proposed_for_a_phrase_is_near_in_meaning(capsys, typed, near, split):
    assert near <= proposed(capsys, *split(typed)).keys()


def test_what_is_proposed_has_its_title_and_is_not_more_than_three(capsys):
    shown = proposed(capsys, "nvlnk", "down")
    assert shown["nvlink-all-down"] == "No NVLink of a training board (SXM) is up"
    assert len(shown) <= 3


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("unhang_policy.driver.mn", "driver.min"),
        ("gpus.cout", "gpus.count"),
        ("gpus.devices.serail", "gpus.devices.serial"),
        ("gpu_drver", "gpu_driver"),
        ("memlok", "policy-memlock"),
        ("cuda 12.88", "12.8"),
    ],
)
def test_a_misspelt_name_of_any_kind_is_read_as_the_one_that_it_is_near_to(capsys, typed, near):
    assert cli.main(["explain", typed]) == 2
    assert re.search(rf"\b{re.escape(near)}\b", capsys.readouterr().err)


@pytest.mark.parametrize("typed", ["my cat sat here", "xid 9999", "nccl 9.9"])
def test_nothing_is_proposed_for_what_is_near_to_nothing(capsys, typed):
    assert cli.main(["explain", typed]) == 2
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "topic"),
    [
        ("shm too small", ("rule", "shm-too-small")),
        ("driver library mismatch", ("rule", "driver-library-mismatch")),
    ],
)
def test_the_words_of_an_id_are_that_id(capsys, typed, topic):
    assert topic in asked(capsys, *typed.split())


def test_words_of_other_languages_are_no_answer(capsys):
    assert asked(capsys, "out of memory")[0] == ("message", "xla-allocator-out")


def test_a_rule_says_who_acts(capsys):
    cli.main(["explain", "xid-fatal"])
    assert "owner:         vendor" in capsys.readouterr().out


def test_a_rule_above_info_says_what_it_costs(capsys):
    cli.main(["explain", "driver-545-new-feature-branch", "-o", "json"])
    lines = dict(json.loads(capsys.readouterr().out)["topics"][0]["lines"])
    assert lines["severity"] == "error: jobs on this node hang"


def test_a_rule_shows_its_condition_as_its_row_has_it_and_a_long_one_whole_with_v(capsys):
    whole = "when: item.codes | intersect(tables.xid_levels.fatal.codes) | length > 0"
    cli.main(["explain", "xid-fatal"])
    shown = " ".join(capsys.readouterr().out.split())
    assert whole in shown and "reads:" not in shown
    cli.main(["explain", "gpu-not-as-its-model-should-be"])
    assert "… (-v shows all of it)" in capsys.readouterr().out
    cli.main(["explain", "gpu-not-as-its-model-should-be", "-v"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "(-v shows" not in shown and "reads: " in shown


@pytest.mark.parametrize(
    ("typed", "row"),
    [
        ("RuntimeError: NCCL error: unhandled system error", "nccl-unhandled-system-error"),
        (
            "srun: error: Required nodelist includes more nodes than permitted",
            "slurm-nodes-do-not-fit",
        ),
        # of a program that no signature knows
        ("mytool: fatal: manifest unknown for that image", "image-not-pulled"),
    ],
)
def test_an_error_without_a_cause_of_its_own_says_what_its_words_mean_and_what_decides(
    capsys, typed, row
):
    assert cli.main(["explain", typed, "-o", "json"]) == 0
    lines = json.loads(capsys.readouterr().out)["topics"][0]["lines"]
    words = table("error_words")[row]
    assert ["words mean", words["means"]] in lines and ["run", words["run"]] in lines
    assert [one for name, one in lines if name == "if it shows"] == words["tells"]


def test_an_error_with_a_cause_is_answered_by_the_cause_alone(capsys):
    cli.main(["explain", "RuntimeError: CUDA error: peer mapping resources exhausted"])
    assert "words mean" not in capsys.readouterr().out
