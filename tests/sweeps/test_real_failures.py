"""Logs of failures that were made on a machine with GPUs (tests/bench/failure_scenes.yml): what today's PyTorch and NCCL print."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from unhang.diagnose.diagnosing import diagnose

FOLDER = Path(__file__).parents[1] / "fixtures" / "diagnose_real"
RIGHT = {name: row["right"] for name, row in yaml.safe_load((FOLDER / "labels.yml").read_text(encoding="utf-8")).items()}
# In these one rank alone tells that it waits, and no line says that another had called something else, had left, or was slow.
UNDECIDED = {"different-collectives", "uneven-batches", "fsdp-skips-forward", "fsdp2-rank-sleeps", "store-gone"}


def answer(name):
    """The first cause above info, else the outcome's word; and all causes."""
    found = diagnose([FOLDER / f"{name}.txt"])
    loud = [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]
    return loud[0] if loud else found["outcome"]["word"], [cause["cause"] for cause in found["causes"]], found


@pytest.mark.parametrize("name", sorted(set(RIGHT) - UNDECIDED))
def test_failure_that_was_made_is_named(name):
    first, _, _ = answer(name)
    assert first in RIGHT[name]


@pytest.mark.parametrize("name", sorted(UNDECIDED))
def test_hang_of_which_one_rank_tells_has_the_right_cause_among_several_and_is_not_called_sure(name):
    _, all_of_them, found = answer(name)
    assert set(all_of_them[:3]) & {*RIGHT[name], "rank_desync_app"} and "sure" not in {cause["certainty"] for cause in found["causes"]}


def test_healthy_jobs_are_silent():
    healthy = [name for name, right in RIGHT.items() if right == ["healthy"]]
    assert len(healthy) >= 3
    for name in healthy:
        assert [cause for cause in answer(name)[2]["causes"] if cause["severity"] != "info"] == []
