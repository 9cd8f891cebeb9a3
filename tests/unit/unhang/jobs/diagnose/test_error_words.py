"""A failure that no signature knows is explained by the words of its line: what they mean, and the
command that decides."""

from __future__ import annotations

import pytest

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.next_steps import row_of

LINES = {
    "local-rank-spelling": "train.py: error: unrecognized arguments: --local-rank=1",
    "command-line-option": "train.py: error: unrecognized arguments: --fast",
    "slurm-nodes-do-not-fit": (
        "srun: error: Required nodelist includes more nodes than permitted by max-node count (2"
        " > 1)."
    ),
    "ray-register-worker": "(raylet) Failed to register worker to Raylet: IOError",
    "no-such-file": "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/epoch=3.ckpt'",
    "connection-refused": "dial tcp 10.0.0.4:7777: connect: connection refused",
    "no-answer-in-time": "OSError: [Errno 110] Connection timed out",
    "symbol-or-library-version": (
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found"
    ),
    "no-more-threads": "RuntimeError: can't start new thread",
    "not-supported-here": "RuntimeError: ProcessGroupNCCL does not support barrier",
    "call-does-not-fit": "TypeError: forward() got an unexpected keyword argument 'cache_position'",
    "missing-key": "KeyError: 'LOCAL_RANK'",
    "changed-in-place": (
        "RuntimeError: one of the variables needed for gradient computation has been modified by an"
        " inplace operation: [FloatTensor [256]]"
    ),
    "data-loader-worker": (
        "RuntimeError: DataLoader worker (pid 7948) exited unexpectedly with exit code 1"
    ),
    "nccl-invalid-usage": (
        "DistBackendError: NCCL error in: /x/ProcessGroupNCCL.cpp:1, invalid usage, NCCL version"
        " 2.18.1"
    ),
    "nccl-unhandled-cuda-error": "ncclUnhandledCudaError: Call to CUDA function failed.",
    "nccl-unhandled-system-error": (
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    ),
    "nccl-remote-error": (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
        " prematurely."
    ),
    "nccl-internal-error": (
        "RuntimeError: NCCL error in: /x/ProcessGroupNCCL.cpp:9, internal error - please report"
        " this issue to the NCCL developers"
    ),
    "nccl-invalid-argument": (
        "RuntimeError: NCCL error in: /x/ProcessGroupNCCL.cpp:388, invalid argument"
    ),
}


@pytest.mark.parametrize(("name", "line"), LINES.items(), ids=LINES)
def test_words_of_a_line_lead_to_their_family(name, line):
    assert row_of(line)["id"] == name


def test_no_row_is_hidden_by_an_earlier_one():
    for row in table("error_words").values():
        assert row["id"] in {
            row_of(f"{row.get('beside') or ''} {word}")["id"] for word in row["words"]
        }, row["id"]
        assert all(len(word) >= 5 for word in row["words"])


@pytest.mark.parametrize(
    "line",
    [
        "Using network Socket",
        "mmap failed: Invalid argument",
        "Init COMPLETE",
        "loss 2.13 in step 4, connected",
        "all is well",
    ],
)
def test_harmless_line_has_no_family(line):
    assert row_of(line) is None


def test_unknown_failure_says_what_its_words_mean_and_asks_for_what_decides_first():
    found = diagnose_text(
        "mpirun -np 2 python run.py\nplugin: fatal: TypeError: load() got an unexpected keyword"
        " argument 'mmap'\n"
    )
    assert (
        found["outcome"]["word"] == "failure"
        and table("error_words")["call-does-not-fit"]["means"] in found["outcome"]["why"]
    )
    assert found["collect_next"][0].startswith("python -m pip list")


def test_known_row_about_the_failed_line_is_not_asked_twice():
    found = diagnose_text(
        "srun python train.py\nModuleNotFoundError: No module named 'deepspeed'\n"
    )
    assert sum("python" in one.split("\n")[0] for one in found["collect_next"]) == 1


def test_code_of_nccl_says_what_its_warn_line_would_decide():
    found = diagnose_text(
        "torchrun --nproc_per_node=2 train.py\nRuntimeError: NCCL error: unhandled system error"
        " (run with NCCL_DEBUG=INFO for details)\n"
    )
    row = table("error_words")["nccl-unhandled-system-error"]
    assert row["means"] in found["outcome"]["why"] and found["collect_next"][0].splitlines() == [
        row["run"],
        *row["tells"],
    ]
    assert sum("NCCL_DEBUG" in one.split("\n")[0] for one in found["collect_next"]) == 1


def test_of_several_errors_before_a_cut_traceback_the_first_is_shown():
    errors = (
        "plugin: error: [Errno 2] No such file or directory: 'a.json'\nplugin: error: cannot find"
        " it: 'b.json'\n"
    )
    shown = diagnose_text(
        f'{errors}Traceback (most recent call last):\n  File "/a/train.py", line 3, in main\n'
    )["outcome"]
    assert shown["word"] == "failure" and shown["line"]["line"] == 1


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: Override 'local-rank' not found",
        "train.py: error: unrecognized arguments: --local_rank=0",
    ],
)
def test_either_spelling_of_the_local_rank_is_known(line):
    assert row_of(line)["id"] == "local-rank-spelling"
