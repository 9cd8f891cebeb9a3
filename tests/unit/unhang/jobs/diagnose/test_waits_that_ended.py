"""What a job waited for and then got is no cause: a node for a pod, GPUs of Ray, a name of a
service."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

NO_NODE = (
    "Warning  FailedScheduling  3m  default-scheduler  0/5 nodes are available: 5 Insufficient"
    " cpu.\n"
)
ASSIGNED = "Normal   Scheduled  1m  default-scheduler  Successfully assigned ml/train-0 to gpu-2\n"
STEPS = "step 10 loss 2.31\nstep 20 loss 2.21\ntraining finished\n"
NO_GPUS = "The worker group startup timed out after 30.0 seconds waiting for 8 workers.\n"
NO_NAME = (
    "Failed to connect to NATS: DNS error: failed to lookup address information: Temporary failure"
    " in name resolution\n"
)
NO_DRIVER = (
    "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.nvidia.com is"
    " not registered\n"
)


@pytest.fixture
def loud(tmp_path):
    def loud(log):
        """The causes of a log that are more than a remark."""
        (tmp_path / "job.log").write_text(log)
        return [
            cause["cause"]
            for cause in diagnose([str(tmp_path / "job.log")])["causes"]
            if cause["severity"] != "info"
        ]

    return loud


@pytest.mark.parametrize(
    ("wait", "cause"),
    [
        (NO_NODE, "launch_mismatch"),
        (NO_GPUS, "no_free_gpu"),
        (NO_NAME, "dns_hostname"),
        (NO_DRIVER, "container_gpu_access"),
    ],
)
def test_wait_is_a_cause_while_it_lasts_and_none_once_the_job_works(loud, wait, cause):
    assert loud(wait) == [cause]
    assert loud(wait + STEPS) == []


def test_pod_that_got_its_node_later_waits_for_nothing(loud):
    assert loud(NO_NODE + ASSIGNED) == []


def test_loaded_library_that_shares_a_gpu_is_no_cause_by_its_usual_messages(loud):
    assert (
        loud(
            "[HAMI-core Msg(1:139:libvgpu.c:855)]: Initializing.....\n[HAMI-core ERROR"
            " (utils.c:160)]: host pid is error!\n" + STEPS
        )
        == []
    )


STALLED = (
    "[2021-04-10 21:28:20.658706: W horovod/common/stall_inspector.cc:105] One or more tensors were"
    " submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for"
    " remainder of ranks for more than 60 seconds.\n"
)


def test_rank_that_was_late_for_horovod_and_came_is_no_cause(loud):
    assert loud(STEPS.replace("training finished\n", "") + STALLED) == [
        "rank_desync_app",
        "slow_rank_or_io",
    ]
    assert loud(STALLED + "500/500 [====================] - 398s 796ms/step - loss: 0.6641\n") == []
