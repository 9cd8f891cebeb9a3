"""Rules over several hosts or processes: networks that hosts do not share, plugins of some hosts
only, one GPU for all, a GPU for each task."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

APP = "{pid}, 00000000:{bus}:00.0, 411 MiB\n"


def _reasons(tmp_path, text):
    """(cause, why) of all evidence that the diagnosis lists."""
    log = tmp_path / "job.log"
    log.write_text(text, encoding="utf-8")
    return {
        (cause["cause"], line["says"].split(",")[0])
        for cause in diagnose([str(log)])["causes"]
        for line in cause["evidence"]
    }


def test_processes_that_hold_one_gpu_in_a_job_that_runs_are_no_evidence(tmp_path):
    assert (
        _reasons(tmp_path, APP.format(pid=5120, bus="3B") + APP.format(pid=5121, bus="3B")) == set()
    )


DONE = (
    "n1:{pid}:90 [{gpu}] NCCL INFO comm 0x7f1a rank {rank} nranks 2 cudaDev {gpu} busId 20000{gpu}"
    " - Init COMPLETE\n"
)


def test_process_of_several_gpus_changes_none(tmp_path):
    text = (
        "".join(DONE.format(pid=70, gpu=gpu, rank=gpu) for gpu in range(2))
        + "n1:70:95 [1] NCCL INFO threadThresholds 8/8/64 | 24/8/64 | 8/8/64\n"
    )
    assert not any(why.startswith("process 70 used") for _, why in _reasons(tmp_path, text))


@pytest.mark.parametrize(("second", "shown"), [("1", True), ("2", False), ("0-63", False)])
def test_workers_that_print_one_and_the_same_core_share_it(tmp_path, second, shown):
    text = f"core affinity for PID 884147: 1\ncore affinity for PID 884145: {second}\n"
    assert (
        ("cpu_affinity", "several processes are bound to one and the same CPU")
        in _reasons(tmp_path, text)
    ) == shown
