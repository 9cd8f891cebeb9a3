"""Logs of failures that were made on machines with GPUs (tests/bench/*_scenes.yml), with the
messages of today's PyTorch, NCCL and frameworks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from case_rows import case_rows
from job_diagnosis import diagnose

ROWS = case_rows(__file__)

TESTS = Path(__file__).parents[1]
SCENES = {
    "diagnose_real": "failure_scenes.yml", "diagnose_real_frameworks": "framework_scenes.yml",
    "diagnose_real_jobs": "job_scenes.yml",
    "diagnose_user_jobs": "user_scenes.yml",
}  # fmt: skip
LABELS = {
    folder: yaml.safe_load((TESTS / "fixtures" / folder / "labels.yml").read_text(encoding="utf-8"))
    for folder in SCENES
}
RIGHT = {
    TESTS / "fixtures" / folder / f"{name}.txt": row["right"]
    for folder, rows in LABELS.items()
    for name, row in rows.items()
}
ONE_RANK_TELLS = (
    "one rank alone tells that it waits, and no line says that another had called something else,"
    " had left, or was slow"
)
# name -> why the log does not decide; none of the scenes with frameworks is here any more.
UNDECIDED = dict.fromkeys(
    [
        "different-collectives",
        "uneven-batches",
        "fsdp-skips-forward",
        "fsdp2-rank-sleeps",
        "store-gone",
        "subgroup-missing-member",
    ],
    ONE_RANK_TELLS,
)
# Healthy logs without a line that shows it, because no signature knows the program's last lines. A
# test below checks that they raise no alarm.
END_WITHOUT_A_WORD = {
    "healthy-download-retried", "healthy-gloo-graphs", "healthy-tensor-parallel",
    "mpi-runtime-absent", "deterministic-without-workspace-config",
    "mps-pipes-without-daemon", "healthy-preload-missing", "healthy-mps-folder-absent",
    "healthy-gloo-hostname-not-local", "healthy-loss-scale-falls",
    "healthy-cuda-graph-with-reduction", "healthy-store-answers-late",
    "healthy-omp-threads-nonsense",
    "pipeline-groups-made-by-members-gloo", "probe-speaks-http-to-store",
    "healthy-eight-gloo-ranks-info", "healthy-flight-recorder-read",
    "healthy-rpc-parameter-server",
    "healthy-recompile-limit-reached", "healthy-async-save-and-load",
    "healthy-jax-sees-one-of-four",
}  # fmt: skip
# Healthy logs with a failure on the way: the failure is shown, because no line shows that it was
# survived.
FAILED_ON_THE_WAY = {
    "healthy-broken-images-skipped", "healthy-second-node-leaves",
    "healthy-configs-too-large-for-shared-memory", "healthy-no-checkpoint-starts-fresh",
}  # fmt: skip
# name -> why another answer comes first.
NOT_NAMED = ROWS["NOT_NAMED"]
# Only rules that were learnt from these logs alone had named them; now a lone timeout or a
# difference between ranks is reported, and is no cause.
LEARNT_BY_HEART = (
    "blocking-wait-timeout", "no-set-device-barrier", "python-loop-stuck",
    "accelerate-uneven-loader", "ddp-checkpoint-reentrant", "gloo-rank-dies",
    "jax-proxy-in-environment", "lightning-barrier-rank0-callback",
    "pipeline-recv-without-send", "rank-stopped",
    "rank-waits-for-own-lock", "json-lines-log",
    "p2p-off-on-one-rank", "recompile-one-rank-others-time-out",
    "shard-read-crawls", "slurm-each-task-alone", "two-agents-second-killed-whole",
    "two-nodes-master-is-loopback", "early-stopping-decided-per-rank",
    "hosts-started-one-after-the-other", "kernel-of-one-rank-runs-long",
    "own-sampler-without-padding", "weights-copied-by-rank0-with-bars",
)  # fmt: skip
NOT_NAMED.update(
    dict.fromkeys(LEARNT_BY_HEART, "named only by a rule that was learnt from this log")
)
ANSWERED = sorted(
    path
    for path in RIGHT
    if path.stem not in {*UNDECIDED, *END_WITHOUT_A_WORD, *FAILED_ON_THE_WAY, *NOT_NAMED}
)
HEALTHY = sorted(path for path, right in RIGHT.items() if right == ["healthy"])


def answer(path):
    """The first cause above info, else the outcome's word; and all causes."""
    found = diagnose([path])
    loud = [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]
    return (
        loud[0] if loud else found["outcome"]["word"],
        [cause["cause"] for cause in found["causes"]],
        found,
    )


@pytest.mark.parametrize("path", ANSWERED, ids=lambda path: path.stem)
def test_failure_that_was_made_is_named(path):
    first, _, _ = answer(path)
    assert first in RIGHT[path]


@pytest.mark.parametrize(
    "path", sorted(path for path in RIGHT if path.stem in UNDECIDED), ids=lambda path: path.stem
)
def test_hang_of_which_one_rank_tells_has_the_right_cause_among_several_and_is_not_called_sure(
    path,
):
    _, all_of_them, found = answer(path)
    assert set(all_of_them[:3]) & {*RIGHT[path], "rank_desync_app"} and "sure" not in {
        cause["certainty"] for cause in found["causes"]
    }


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_healthy_jobs_are_silent(path):
    first, _, found = answer(path)
    assert [cause for cause in found["causes"] if cause["severity"] != "info"] == []
    expected = (
        "no_end nothing"
        if path.stem in END_WITHOUT_A_WORD
        else "failure"
        if path.stem in FAILED_ON_THE_WAY
        else "healthy"
    )
    assert first in expected.split()


@pytest.mark.parametrize(
    "path", sorted(path for path in RIGHT if path.stem in NOT_NAMED), ids=lambda path: path.stem
)
def test_failure_that_is_not_named_gets_no_answer_at_error_level(path):
    first, _, found = answer(path)
    assert {cause["severity"] for cause in found["causes"]} <= {"info", "warning"}
    assert first not in RIGHT[path]


@pytest.mark.parametrize(
    ("folder", "healthy"),
    [
        ("diagnose_real", 3),
        ("diagnose_real_frameworks", 15),
        ("diagnose_real_jobs", 18),
        ("diagnose_user_jobs", 18),
    ],
)
def test_each_log_has_its_labels_and_its_scene(folder, healthy):
    logs = {path.stem for path in (TESTS / "fixtures" / folder).glob("*.txt")}
    scenes = yaml.safe_load((TESTS / "bench" / SCENES[folder]).read_text(encoding="utf-8"))[
        "scenes"
    ]
    assert logs == set(LABELS[folder]) and logs <= set(scenes)
    assert sum(row["right"] == ["healthy"] for row in LABELS[folder].values()) >= healthy
