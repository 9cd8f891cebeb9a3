"""Whether a job hangs, failed or is only slow: each is asked about in its own terms, and a report
of two runs is answered for the one that it asks about."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

LAUNCHER = """\
Training my own model gets stuck on 4 GPUs, without a message.{told}

Traceback (most recent call last):
  File "/usr/lib/python3.9/runpy.py", line 193, in _run_module_as_main
    "__main__", mod_spec)
  File "/opt/lib/python3.9/site-packages/torch/distributed/run.py", line 624, in run
    )(*cmd_args)
  File "/opt/lib/python3.9/site-packages/torch/distributed/launcher/api.py", line 238, in launch_agent
    {last}
"""
NCCL_FAILED = "n1:77:90 [0] enqueue.cc:90 NCCL WARN Cuda failure '{}'\n"
OF_HANGS = ("py-spy", "hangs too", "at which each stands")


def asked(document):
    return " ".join(document["collect_next"])


@pytest.mark.parametrize(
    "last", ["result = agent.run()", "process.wait()", "p.join()", "os.waitpid(pid, 0)"]
)
def test_a_parent_that_waited_is_no_failure(last):
    found = diagnose_text(LAUNCHER.format(told="", last=last))
    assert found["outcome"]["word"] == "no_end"
    assert found["next"]["command"].startswith("unhang inspect")


def test_a_traceback_in_the_work_itself_is_a_failure():
    assert (
        diagnose_text(LAUNCHER.format(told="", last="raise ChildFailedError("))["outcome"]["word"]
        == "failure"
    )


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        (NCCL_FAILED.format("invalid argument"), "cudaErrorInvalidValue"),
        (NCCL_FAILED.format("invalid device context"), "no context"),
        (
            (
                "CUDA backend failed to initialize: a_helper.cc:90: operation gpuGet( &x) failed:"
                " CUDA_ERROR_NOT_INITIALIZED\n"
            ),
            "before cuInit",
        ),
        (
            (
                "RuntimeError: NCCL error in: x/ProcessGroupNCCL.cpp:784, unhandled system error,"
                " NCCL version 2.7.8\n"
            ),
            "NCCL gave up",
        ),
    ],
)
def test_an_error_of_a_library_is_a_failure_with_its_meaning(message, meant):
    found = diagnose_text(f"All ranks end like this:\n\n{message}")
    assert found["outcome"]["word"] == "failure" and meant in found["outcome"]["why"]
    assert not any(word in asked(found) for word in OF_HANGS)


def test_a_library_without_kernels_for_the_gpu():
    assert (
        diagnose_text(NCCL_FAILED.format("named symbol not found"))["causes"][0]["cause"]
        == "gpu_not_in_build"
    )


TWO_RUNS = """\
Training gets stuck at the first step on 8 GPUs, with one GPU it works.

{told}

E0217 07:42:21.080000 470998 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3
"""


def test_the_error_of_the_same_run_is_its_answer():
    assert (
        diagnose_text(TWO_RUNS.format(told="The end of the log is this:"))["causes"][0]["cause"]
        == "oom"
    )


@pytest.mark.parametrize(
    "told",
    [
        "No vLLM.",
        "We do not use vLLM.",
        "It runs without vLLM or Ray and hangs.",
        "This is not using Ray.",
    ],
)
def test_what_is_said_not_to_be_there_is_not_asked_about(told):
    found = diagnose_text(f"GRPO of TRL is stuck at its first step on 8 GPUs. {told}\n")
    assert not any(word in asked(found).lower() for word in ("vllm", "engine", "ray "))


def test_a_matter_of_speed_is_no_cause_of_a_hang():
    line = (
        "n1:77:90 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)\n"
    )
    assert (
        diagnose_text(f"Training on two nodes hangs in the third allreduce.\n\n{line}")["causes"][
            0
        ]["severity"]
        == "info"
    )


@pytest.mark.parametrize(
    "told",
    [
        "gets stuck in the first epoch",
        "hangs at iteration 4300 of epoch 1",
        "freezes after 20 steps",
    ],
)
def test_a_step_is_no_end_of_an_epoch(told):
    found = diagnose_text(f"Training with 8 GPUs {told}, there is no message.\n")
    assert "end of an epoch" not in str(found["causes"]) and "drop_last" not in asked(found)
