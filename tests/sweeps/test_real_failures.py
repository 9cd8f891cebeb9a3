"""Logs of failures that were made on machines with GPUs (tests/bench/*_scenes.yml): what today's PyTorch, NCCL and the frameworks upon them print."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from unhang.diagnose.diagnosing import diagnose

TESTS = Path(__file__).parents[1]
SCENES = {"diagnose_real": "failure_scenes.yml", "diagnose_real_frameworks": "framework_scenes.yml"}
LABELS = {folder: yaml.safe_load((TESTS / "fixtures" / folder / "labels.yml").read_text(encoding="utf-8")) for folder in SCENES}
RIGHT = {TESTS / "fixtures" / folder / f"{name}.txt": row["right"] for folder, rows in LABELS.items() for name, row in rows.items()}
ONE_RANK_TELLS = "one rank alone tells that it waits, and no line says that another had called something else, had left, or was slow"
# name -> why the log does not decide; of the scenes with frameworks none is left.
UNDECIDED = dict.fromkeys(["different-collectives", "uneven-batches", "fsdp-skips-forward", "fsdp2-rank-sleeps", "store-gone"], ONE_RANK_TELLS)
# Healthy, and no line says so: the program's own last words are known to nobody. That they raise no alarm is asked of them below.
END_WITHOUT_A_WORD = {
    "healthy-download-retried", "healthy-elastic-one-of-two", "healthy-gloo-graphs", "healthy-jax-optax", "healthy-memlock-small",
    "healthy-numa-hidden-few-cpus", "healthy-preempted-with-checkpoint", "healthy-tensor-parallel", "mpi-runtime-absent",
}  # fmt: skip
ANSWERED = sorted(path for path in RIGHT if path.stem not in UNDECIDED and path.stem not in END_WITHOUT_A_WORD)
HEALTHY = sorted(path for path, right in RIGHT.items() if right == ["healthy"])


def answer(path):
    """The first cause above info, else the outcome's word; and all causes."""
    found = diagnose([path])
    loud = [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]
    return loud[0] if loud else found["outcome"]["word"], [cause["cause"] for cause in found["causes"]], found


@pytest.mark.parametrize("path", ANSWERED, ids=lambda path: path.stem)
def test_failure_that_was_made_is_named(path):
    first, _, _ = answer(path)
    assert first in RIGHT[path]


@pytest.mark.parametrize("path", sorted(path for path in RIGHT if path.stem in UNDECIDED), ids=lambda path: path.stem)
def test_hang_of_which_one_rank_tells_has_the_right_cause_among_several_and_is_not_called_sure(path):
    _, all_of_them, found = answer(path)
    assert set(all_of_them[:3]) & {*RIGHT[path], "rank_desync_app"} and "sure" not in {cause["certainty"] for cause in found["causes"]}


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_healthy_jobs_are_silent(path):
    first, _, found = answer(path)
    assert [cause for cause in found["causes"] if cause["severity"] != "info"] == []
    assert first in (("no_end", "nothing") if path.stem in END_WITHOUT_A_WORD else ("healthy",))


@pytest.mark.parametrize(("folder", "healthy"), [("diagnose_real", 3), ("diagnose_real_frameworks", 15)])
def test_each_log_has_its_labels_and_its_scene(folder, healthy):
    logs = {path.stem for path in (TESTS / "fixtures" / folder).glob("*.txt")}
    scenes = yaml.safe_load((TESTS / "bench" / SCENES[folder]).read_text(encoding="utf-8"))["scenes"]
    assert logs == set(LABELS[folder]) and logs <= set(scenes)
    assert sum(row["right"] == ["healthy"] for row in LABELS[folder].values()) >= healthy
