"""How a job ended: an end before another start, failures of a repeated attempt, incomplete
tracebacks, messages of launchers and shells."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.diagnosing import diagnose_text

STEPS = "step 0 loss 4.5\nstep 1 loss 3.0\n"
END = "Training completed successfully.\n"
NO_MEMORY = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a"
    " total capacity of 139.80 GiB of which 10.12 GiB is free. Including non-PyTorch memory, this"
    " process has 129.60 GiB memory in use.\n"
)
AGAIN = (
    "I0105 10:00:00.3 42 torch/distributed/elastic/agent/server/api.py:906] [default] Worker group"
    " FAILED. 2/3 attempts left; will restart worker group\n"
)
STORE_GONE = (
    "[rank1]:[W105 10:11:05.5 TCPStore.cpp:125] recvValue failed on SocketImpl(fd=3): Failed to"
    " recv, got 0 bytes. Connection was likely closed.\n"
)


def answer(tmp_path, text):
    """The outcome's word, and the causes above info."""
    log = tmp_path / "job.log"
    log.write_text(text)
    found = diagnose([str(log)])
    return found["outcome"]["word"], [
        cause["cause"] for cause in found["causes"] if cause["severity"] != "info"
    ]


@pytest.mark.parametrize(
    "later",
    [
        STEPS,
        (
            "W0105 10:10:30.0 42 run.py:803] Setting OMP_NUM_THREADS environment variable for each"
            " process to be 1\n"
        ),
    ],
    ids=["steps", "launcher"],
)
def test_end_of_a_first_job_says_nothing_of_a_second_one(tmp_path, later):
    assert answer(tmp_path, STEPS + END) == ("healthy", [])
    assert answer(tmp_path, STEPS + END + "=== run 2 ===\n" + later) == ("no_end", [])
    assert answer(tmp_path, STEPS + END + "=== run 2 ===\n" + later + END) == ("healthy", [])


def test_failure_of_an_attempt_that_was_repeated_and_came_to_its_end_is_no_alarm(tmp_path):
    assert answer(tmp_path, STEPS + NO_MEMORY + AGAIN + STEPS + END) == ("healthy", [])
    assert answer(tmp_path, STEPS + NO_MEMORY + AGAIN + STEPS)[1] == ["oom"]
    assert answer(tmp_path, STEPS + NO_MEMORY + AGAIN + STEPS + NO_MEMORY + END)[1] == ["oom"]


def test_store_that_is_gone_after_the_end_is_no_failure(tmp_path):
    assert answer(tmp_path, STEPS + END + STORE_GONE) == ("healthy", [])
    assert answer(tmp_path, STEPS + STORE_GONE + END)[0] == "no_end"
    assert (
        answer(tmp_path, STEPS + END + STORE_GONE + "[rank1]: KeyError: 'label'\n")[0] == "failure"
    )


@pytest.mark.parametrize(
    ("end", "word"),
    [
        ("Training finished with errors, see rank1.err\n", "no_end"),
        ("=== 1 failed, 2 passed in 30.21s ===\n", "failure"),
        ("=== 3 passed in 30.21s ===\n", "healthy"),
        ("[launcher] job finished with exit status 1\n", "failure"),
        ("[launcher] job finished with exit status 0\n", "healthy"),
        ("srun: error: gpu01: task 1: Exited with exit code 1\n", "failure"),
        ("make: *** [Makefile:12: train] Error 1\n", "failure"),
        (
            (
                "mpirun detected that one or more processes exited with non-zero status\n\n  "
                " Process name: [a@1,1]\n   Exit code:    3\n"
            ),
            "failure",
        ),
        ("srun: error: gpu01: task 1: Killed\n", "failure"),
        ("bash: ./run_train.sh: Permission denied\n", "failure"),
        ("bash: Zeile 1: torchrun: Kommando nicht gefunden.\n", "failure"),
        ("bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)\n", "no_end"),
    ],
)
def test_words_of_an_end_are_read_with_what_they_say_of_failure(tmp_path, end, word):
    assert answer(tmp_path, STEPS + end)[0] == word


def test_traceback_that_is_cut_or_ends_in_an_unknown_name_is_a_failure(tmp_path):
    frames = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/w/train.py", line 55, in'
        " <module>\n[rank1]:     main()\n"
    )
    assert answer(tmp_path, STEPS + frames)[0] == "failure"
    assert answer(tmp_path, STEPS + frames + "[rank1]: shards.Unlike\n")[0] == "failure"
    assert "raised shards.Unlike, which" in diagnose([str(tmp_path / "job.log")])["outcome"]["why"]
    assert answer(tmp_path, STEPS + frames + "recovered\n" + STEPS * 5)[0] == "no_end"
    assert answer(tmp_path, STEPS)[0] == "no_end"


def test_failure_whose_line_says_that_it_is_tried_again_is_none_once_the_job_has_ended_well(
    tmp_path,
):
    failed = "WARNING saving the checkpoint failed (OSError: [Errno 5] Input/output error)"
    assert answer(tmp_path, f"{STEPS}{failed}, retry 1/3\n{END}") == ("healthy", [])
    assert answer(tmp_path, f"{STEPS}{failed}, retry 1/3\n{STEPS}")[1] == ["slow_rank_or_io"]
    assert answer(tmp_path, f"{STEPS}{failed}\n{END}")[1] == ["slow_rank_or_io"]


def test_a_good_end_that_names_what_did_not_happen_is_a_good_end():
    text = (
        "step 10 loss 2.0\nstep 20 loss 1.9\nTraining finished, no CUDA out of memory and no NCCL"
        " timeout this time.\n"
    )
    assert diagnose_text(text)["outcome"]["word"] == "healthy"
