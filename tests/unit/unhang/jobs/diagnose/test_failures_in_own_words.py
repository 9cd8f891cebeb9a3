"""A failure whose message no signature knows is a failure all the same: a told crash, an exit code,
a line in which a program reports an error."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

FAILURES = {
    "a crash in the title": (
        (
            "# segfault running micro benchmarks with cuda buffers\n\nmpirun -np 2 -x"
            " UCX_TLS=rc,gdr_copy osu_latency D D\n"
        ),
        "segfault",
    ),
    "an exit code": (
        (
            "My script exits with return code = -6 and prints nothing.\ntorchrun --nproc_per_node=2"
            " a.py\n"
        ),
        "return code = -6",
    ),
    "a killed process in Chinese": ("python3 tools/train.py\n跑起来后 莫名的被kill了\n", "被kill"),
    "an error at the end": (
        (
            "mpirun -n 2 singularity exec img.sif ./run.sh\nFATAL:   permission denied\nFATAL:  "
            " permission denied\n"
        ),
        "permission denied",
    ),
    "an error of a plugin": (
        (
            "mpirun -n 2 python run.py --engine_dir a\nFailed, NCCL error plugin.cpp:183 'unknown"
            " result code'\n"
        ),
        "unknown result code",
    ),
    "a heading, and in brackets what is slow elsewhere": (
        (
            "Error (and crash) with docker on ubuntu\n\nIt works on another system (but is slow"
            " there).\n"
        ),
        "Error (and crash)",
    ),
    "a log that is announced": (
        "The training job fails with the following log:\nStarting - Launching instances\n",
        "fails with the following log",
    ),
    "a traceback of a notebook": (
        (
            "# Can't create cluster\nValueError                                Traceback (most"
            " recent call last)\n<ipython-input-1> in <module>\n"
        ),
        "ValueError",
    ),
    "an old check": (
        (
            "Multi-GPU training error\nTHCudaCheck FAIL file=THCGeneral.cpp line=383 error=11 :"
            " invalid argument\n"
        ),
        "invalid argument",
    ),
}


@pytest.mark.parametrize(
    "text",
    [
        # it went on
        "[0] plugin.cc:4 ERROR: no such plugin\n"
        + "".join(f"step {step} loss 2.0\n" for step in range(3)),
        (
            "ERROR: ld.so: object 'libjemalloc.so.9' from LD_PRELOAD cannot be preloaded:"
            " ignored.\nprogram starts\n"
        ),
        (
            "WARNING:data:download of shard 0 failed: ConnectionResetError(104, 'reset by peer');"
            " retry 1 of 5\nshard 0 is there\n"
        ),
        "The job hangs. It never crashes.\n",
        "Does it crash with two GPUs?\nstep 1 loss 2.0\n",
    ],
)
def test_line_of_an_error_that_the_job_survived_and_a_question_are_no_failure(text):
    assert diagnose_text(text)["outcome"]["word"] != "failure"


def test_no_answer_says_that_a_log_has_no_failure():
    for text, _ in FAILURES.values():
        assert "no failure" not in diagnose_text(text)["outcome"]["why"]
    assert (
        "that unhang knows" in diagnose_text("step 1 loss 2.0\nstep 2 loss 2.0\n")["outcome"]["why"]
    )


def test_name_of_a_gpu_in_a_sentence_is_no_output_of_a_tool():
    assert (
        diagnose_text(
            "I used CUDA 7.5 with 6 Tesla V100 cards and ./all_reduce_test prints nothing\n"
        )["outcome"]["word"]
        != "healthy"
    )


def test_program_that_cannot_be_started_is_looked_for():
    found = diagnose_text(
        "slurmstepd: error: execve(): torchrun: No such file or directory\nsrun: error: node7: task"
        " 0: Exited with exit code 2\n"
    )
    assert "which COMMAND" in found["collect_next"][0]


def test_bus_error_of_a_launcher_is_shared_memory():
    found = diagnose_text('it "exits with return code = -7" without any message\n')
    assert [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"] == [
        "shm_too_small"
    ]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (
            (
                "RuntimeError: Expected to have finished reduction in the prior iteration before"
                " starting a new one."
            ),
            "find_unused_parameters=True",
        ),
        (
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50",
            "no more processes on a machine than it has GPUs",
        ),
    ],
)
def test_remedy_is_that_of_the_message(line, remedy):
    assert remedy in diagnose_text(f"{line}\n")["causes"][0]["remedy"]["person"]


def test_what_cured_an_earlier_case_is_no_evidence_for_this_one():
    told = (
        "I had met this error before on a single node and solved it then by NCCL_P2P_DISABLE=1. Now"
        " I set OMP_NUM_THREADS=1 before running.\n"
    )
    found = diagnose_text(
        f"RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:272, unhandled system error\n{told}"
    )
    assert not [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]


def test_refusal_of_nccl_is_no_failure_of_one_rank():
    found = diagnose_text(
        "RuntimeError: NCCL invalid usage\nRuntimeError: NCCL error in:"
        " /w/torch/lib/c10d/ProcessGroupNCCL.cpp:911, invalid usage, NCCL version 2.7.8\n"
    )
    assert (
        "rank_failed" not in [one["cause"] for one in found["causes"]]
        and "two ranks on one GPU" in found["outcome"]["why"]
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            (
                "mpirun -n 2 singularity exec img.sif ./run.sh\nFATAL:   permission denied\nFATAL: "
                "  permission denied\n"
            ),
            "permission denied",
        ),
        (
            (
                "mpirun -n 2 python run.py --engine_dir a\nFailed, NCCL error plugin.cpp:183"
                " 'unknown result code'\n"
            ),
            "unknown result code",
        ),
        (
            (
                "ValueError                                Traceback (most recent call"
                " last)\n<ipython-input-1> in <module>\n"
            ),
            "ValueError",
        ),
        (
            "THCudaCheck FAIL file=THCGeneral.cpp line=383 error=11 : invalid argument\n",
            "invalid argument",
        ),
    ],
    ids=[
        "an error at the end",
        "an error of a plugin",
        "a traceback of a notebook",
        "an old check",
    ],
)
def test_failure_without_a_known_message_is_no_hang(text, shown):
    found = diagnose_text(text)
    assert found["outcome"]["word"] == "failure" and shown in found["outcome"]["line"]["text"]
    assert found["collect_next"] and not any(
        word in " ".join(found["collect_next"]) for word in ("py-spy", "at which each stands")
    )
