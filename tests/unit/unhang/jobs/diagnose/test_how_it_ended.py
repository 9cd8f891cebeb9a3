"""Whether a job hangs, failed or is only slow: each is asked about in its own terms, and a report of two runs is answered for the one that it asks about."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

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


@pytest.fixture
def answer(tmp_path):
    def answer(text):
        (tmp_path / "report.txt").write_text(text, encoding="utf-8")
        return diagnose([str(tmp_path / "report.txt")])

    return answer


def asked(document):
    return " ".join(document["collect_next"])


@pytest.mark.parametrize("last", ["result = agent.run()", "process.wait()", "p.join()", "os.waitpid(pid, 0)"])
def test_a_parent_that_waited_is_no_failure(answer, last):
    found = answer(LAUNCHER.format(told="", last=last))
    assert found["outcome"]["word"] == "no_end" and "py-spy" in asked(found)


@pytest.mark.parametrize("told", [" When I press Ctrl+C I see:", " After Ctrl-C it prints", " When I interrupt it I get"])
def test_what_an_interrupt_prints_is_no_failure(answer, told):
    found = answer(LAUNCHER.format(told=told, last="return self.forward(x)"))
    assert found["outcome"]["word"] == "no_end" and "py-spy" in asked(found)


def test_a_traceback_in_the_work_itself_is_a_failure(answer):
    assert answer(LAUNCHER.format(told="", last="raise ChildFailedError("))["outcome"]["word"] == "failure"


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        (NCCL_FAILED.format("invalid argument"), "cudaErrorInvalidValue"),
        (NCCL_FAILED.format("invalid device context"), "no context"),
        ("CUDA backend failed to initialize: a_helper.cc:90: operation gpuGet( &x) failed: CUDA_ERROR_NOT_INITIALIZED\n", "before cuInit"),
        ("RuntimeError: NCCL error in: x/ProcessGroupNCCL.cpp:784, unhandled system error, NCCL version 2.7.8\n", "NCCL gave up"),
    ],
)
def test_an_error_of_a_library_is_a_failure_with_its_meaning(answer, message, meant):
    found = answer(f"All ranks end like this:\n\n{message}")
    assert found["outcome"]["word"] == "failure" and meant in found["outcome"]["why"]
    assert not any(word in asked(found) for word in OF_HANGS)


def test_a_library_without_kernels_for_the_gpu(answer):
    assert answer(NCCL_FAILED.format("named symbol not found"))["causes"][0]["cause"] == "gpu_not_in_build"


def test_an_error_after_another_release_worked_is_asked_of_the_release(answer):
    found = answer("It ran fine with jax 0.4.25, and with 0.4.26 I get this:\n\ncuda failed: CUDA_ERROR_NOT_INITIALIZED\n")
    assert "release before" in found["collect_next"][0]


@pytest.mark.parametrize(
    "told", ["init_process_group with nccl reports an error, with gloo it gives the same error.", "多卡训练初始化 nccl 后端时报错，单卡也是同样的报错。"]
)
def test_an_error_that_is_only_told_is_asked_for(answer, told):
    found = answer(f"{told}\n")
    assert "the error itself as text" in asked(found) and not any(word in asked(found) for word in OF_HANGS)
