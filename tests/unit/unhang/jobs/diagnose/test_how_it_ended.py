"""Whether a job hangs, failed or is only slow: each is asked about in its own terms, and a report of two runs is answered for the one that it asks about."""

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


@pytest.mark.parametrize("last", ["result = agent.run()", "process.wait()", "p.join()", "os.waitpid(pid, 0)"])
def test_a_parent_that_waited_is_no_failure(last):
    found = diagnose_text(LAUNCHER.format(told="", last=last))
    assert found["outcome"]["word"] == "no_end" and "py-spy" in asked(found)


@pytest.mark.parametrize("told", [" When I press Ctrl+C I see:", " After Ctrl-C it prints", " When I interrupt it I get"])
def test_what_an_interrupt_prints_is_no_failure(told):
    found = diagnose_text(LAUNCHER.format(told=told, last="return self.forward(x)"))
    assert found["outcome"]["word"] == "no_end" and "py-spy" in asked(found)


def test_a_traceback_in_the_work_itself_is_a_failure():
    assert diagnose_text(LAUNCHER.format(told="", last="raise ChildFailedError("))["outcome"]["word"] == "failure"


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        (NCCL_FAILED.format("invalid argument"), "cudaErrorInvalidValue"),
        (NCCL_FAILED.format("invalid device context"), "no context"),
        ("CUDA backend failed to initialize: a_helper.cc:90: operation gpuGet( &x) failed: CUDA_ERROR_NOT_INITIALIZED\n", "before cuInit"),
        ("RuntimeError: NCCL error in: x/ProcessGroupNCCL.cpp:784, unhandled system error, NCCL version 2.7.8\n", "NCCL gave up"),
    ],
)
def test_an_error_of_a_library_is_a_failure_with_its_meaning(message, meant):
    found = diagnose_text(f"All ranks end like this:\n\n{message}")
    assert found["outcome"]["word"] == "failure" and meant in found["outcome"]["why"]
    assert not any(word in asked(found) for word in OF_HANGS)


def test_a_library_without_kernels_for_the_gpu():
    assert diagnose_text(NCCL_FAILED.format("named symbol not found"))["causes"][0]["cause"] == "gpu_not_in_build"


def test_an_error_after_another_release_worked_is_asked_of_the_release():
    found = diagnose_text("It ran fine with jax 0.4.25, and with 0.4.26 I get this:\n\ncuda failed: CUDA_ERROR_NOT_INITIALIZED\n")
    assert "release before" in found["collect_next"][0]


@pytest.mark.parametrize(
    "told", ["init_process_group with nccl reports an error, with gloo it gives the same error.", "多卡训练初始化 nccl 后端时报错，单卡也是同样的报错。"]
)
def test_an_error_that_is_only_told_is_asked_for(told):
    found = diagnose_text(f"{told}\n")
    assert "the error itself as text" in asked(found) and not any(word in asked(found) for word in OF_HANGS)


@pytest.mark.parametrize(
    "told", ["It blocks as soon as I use two GPUs. Before I set that it gave an error.", "On two GPUs nothing more comes. Earlier I got an error."]
)
def test_an_error_of_earlier_days_makes_a_hang_no_failure(told):
    assert "py-spy" in asked(diagnose_text(f"{told}\n"))


TWO_RUNS = """\
Training gets stuck at the first step on 8 GPUs, with one GPU it works.

{told}

E0217 07:42:21.080000 470998 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3
"""


@pytest.mark.parametrize("told", ["If I also set the batch size to 1 I get this instead:", "With offload it ends with this instead:"])
def test_the_error_of_another_run_is_no_answer_to_the_hang(told):
    found = diagnose_text(TWO_RUNS.format(told=told))
    assert found["outcome"]["word"] == "no_end" and "py-spy" in asked(found)
    assert all(cause["severity"] == "info" for cause in found["causes"])


def test_the_error_of_the_same_run_is_its_answer():
    assert diagnose_text(TWO_RUNS.format(told="The end of the log is this:"))["causes"][0]["cause"] == "oom"


@pytest.mark.parametrize("told", ["No vLLM.", "We do not use vLLM.", "It runs without vLLM or Ray and hangs.", "This is not using Ray."])
def test_what_is_said_not_to_be_there_is_not_asked_about(told):
    found = diagnose_text(f"GRPO of TRL is stuck at its first step on 8 GPUs. {told}\n")
    assert not any(word in asked(found).lower() for word in ("vllm", "engine", "ray "))


def test_what_works_only_without_a_part_is_asked_about_that_part():
    assert "engine" in asked(diagnose_text("GRPO with 8 GPUs is stuck at its first step. It works without vLLM.\n"))


def test_a_matter_of_speed_is_no_cause_of_a_hang():
    line = "n1:77:90 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)\n"
    assert diagnose_text(f"Training on two nodes hangs in the third allreduce.\n\n{line}")["causes"][0]["severity"] == "info"


@pytest.mark.parametrize("told", ["gets stuck in the first epoch", "hangs at iteration 4300 of epoch 1", "freezes after 20 steps"])
def test_a_step_is_no_end_of_an_epoch(told):
    found = diagnose_text(f"Training with 8 GPUs {told}, there is no message.\n")
    assert "end of an epoch" not in str(found["causes"]) and "drop_last" not in asked(found)


def test_one_sample_and_always_the_same_step_is_asked_for_its_batch():
    found = diagnose_text(
        "With samples_per_gpu = 1 training gets stuck, always at the same iteration (4300); with 2 it runs.\n"
        "With find_unused_parameters = True an earlier error is gone, but then training freezes.\n"
    )
    assert not any(cause["severity"] != "info" for cause in found["causes"]) and "keys of its losses" in found["collect_next"][0]


def test_examples_of_variables_that_nobody_set_are_left_out():
    told = "NCCL_NCHANNELS_PER_NET_PEER=4 was set by our image, and alltoall hangs with it; it runs without NCCL_NCHANNELS_PER_NET_PEER=4.\n"
    found = next(cause for cause in diagnose_text(told)["causes"] if cause["cause"] == "env_var_misconfig")
    assert "NCCL_P2P_LEVEL" not in found["means"]


@pytest.mark.parametrize(
    "told",
    [
        "ZeRO-3 with max_completion_length=4096 is stuck, after one hour the bar still shows step 0.",
        "Training with offload to the host hangs at its first step.",
        "No matter if I use one GPU or several, our training with PyTorch hangs without a message.",
    ],
)
def test_what_may_only_be_slow_is_looked_at_twice(told):
    first = diagnose_text(f"{told}\n")["collect_next"][0]
    assert "twice, a minute apart" in first and "slow" in first
