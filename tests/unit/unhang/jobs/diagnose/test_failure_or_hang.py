"""Whether a person tells of a hang or of a failure: steps for a hang mislead somebody whose job ends with an error, and the other way round."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose, diagnose_text

STACKS = "py-spy"
SETTING = "NCCL_ASYNC_ERROR_HANDLING=1 torchrun --nproc_per_node 2 train.py\n"


def asked(text):
    found = diagnose_text(text)
    return found["outcome"]["word"], " ".join(found["collect_next"])


@pytest.mark.parametrize(
    "text",
    [
        "nccl-tests between kubernetes pods fails\n\nI built them with MPI=1.\n",
        "multi-gpu inference produces broken output\n\nOn one GPU the answers are right.\n",
        "Rank Assignment Issue with four containers\n\nThe ranks come out otherwise than I meant.\n",
        "Distributed training (DDP)\n\nWith several nodes it suffers a refused connection, with one it is fine.\n",
        "\u591a\u5361\u8bbe\u7f6e\u597d\u50cf\u6ca1\u6709\u751f\u6548\n\ntp\u8bbe\u6210\u4e24\u5f20\u5361\n",
    ],
)
def test_report_with_a_word_of_a_failure_and_none_of_a_hang_is_a_failure(text):
    word, steps = asked(text)
    assert word == "failure" and STACKS not in steps


@pytest.mark.parametrize(
    "text",
    [
        "Multi-card training freezing\n\nWith two cards it begins to freeze in stage 1, and it neither reports an error nor exits.\n",
        "Training with two GPUs gets stuck, no error\n\nI use the example of the README, and the problem is always there.\n",
        f"{SETTING}With two GPUs nothing more comes, with one it is fine.\n",
        "epoch 1 step 10 loss 2.0\nepoch 1 step 20 loss 1.9\n",  # a log that just stops
    ],
)
def test_report_with_a_word_of_a_hang_and_a_log_that_stops_are_asked_for_stacks(text):
    word, steps = asked(text)
    assert word == "no_end" and STACKS in steps


@pytest.mark.parametrize(
    "text", ["It never fails\n\nI start it with two GPUs.\n", "Does it fail with two GPUs?\n\nI start it.\n", "I found no error.\nstep 1 loss 2.0\n"]
)
def test_word_of_a_failure_that_is_denied_or_asked_about_is_none(text):
    assert asked(text)[0] != "failure"


def test_first_line_alone_is_a_heading_and_a_program_s_line_is_none():
    heading = "Horovodrun fails twice (ORTE error), then works"
    assert asked(f"{heading}\n\nI followed the instructions for two workers.\n")[0] == "failure"
    assert diagnose_text(f"{heading}\n\nI followed the instructions.\n")["outcome"]["line"]["line"] == 1
    assert asked("INFO: worker fails over\n\nstep 1 loss 2.0\n")[0] != "failure"


def test_error_that_stands_below_is_not_asked_for():
    shown = asked("The test fails\n\nIt ends with this error:\n\n  unknown code 17\n")[1]
    assert "the error itself as text" not in shown
    assert "the error itself as text" in asked("The test fails\n\nIt gives an error on two nodes.\n")[1]


@pytest.mark.parametrize("told", ["The communication takes 90 % of the time.", "Will the bandwidth of my 1 Gbit card be the bottleneck?"])
def test_slow_job_whose_network_is_named_is_asked_for_the_network_first(told):
    steps = diagnose_text(f"Training on four machines is really slow\n\n{told}\n")["collect_next"]
    assert steps[0].startswith("iperf3") and not diagnose_text("Training is really slow\n\nIt takes hours.\n")["collect_next"][0].startswith("iperf3")


@pytest.mark.parametrize("told", ["It is slower than training it with MXNet-0.9.4.", "From release b8738 on it is slow."])
def test_release_that_was_fast_is_asked_for_first(told):
    assert diagnose_text(f"Training on two machines is slow\n\n{told}\n")["collect_next"][0].startswith("the release before")


@pytest.mark.parametrize(
    "text",
    [
        "v0.25.0 is incompatible with the launcher\n\nThe argument --local-rank is not what the launcher passes.\n",
        "Device plugin only exposes one of two GPUs\n\nI installed it with the chart, and nvidia-smi shows both.\n",
    ],
)
def test_report_with_neither_is_not_called_a_failure_and_not_asked_for_stacks(text):
    word, steps = asked(text)
    assert word == "no_end" and STACKS not in steps and "the line that starts the job" in steps


def test_pods_of_a_job_that_fails_are_asked_for_first():
    found = diagnose_text("The pods of my PyTorchJob fail to schedule\n\nThe job requests two GPUs, and the Kubernetes cluster has two.\n")
    assert found["outcome"]["word"] == "failure" and found["collect_next"][0].startswith("kubectl describe pod")


def test_heading_that_denies_a_speed_is_of_a_slow_job():
    found = diagnose_text("The example doesn't run faster with two GPUs\n\nIt is as slow as with one GPU, and the load is 100 %.\n")
    assert found["outcome"]["word"] == "no_end" and found["collect_next"][0].startswith("a loop over the data loader")


def test_attribute_that_a_wrapper_hides_is_explained():
    steps = asked(
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nAttributeError: 'DistributedDataParallel' object has no attribute 'config'\n"
    )[1]
    assert "model.module.NAME" in steps


STEPS = "".join(f"epoch 1 step {number} loss 2.0\n" for number in range(30))
RAN = f"Starting the job on gpu01\n\n{STEPS}The optional cache failed to load, so it goes on with the default\nepoch 1 step 31 loss 1.9\n"


def test_log_with_a_banner_of_words_that_just_stops_is_asked_for_stacks(tmp_path):
    word, steps = asked(RAN)
    assert word == "no_end" and STACKS in steps
    (tmp_path / "README").write_text("What we keep here\n\nLogs of the jobs that failed on the old cluster.\n")
    (tmp_path / "job.log").write_text("loading the data\nworker 3 of 8\n")
    found = diagnose([str(tmp_path)])
    assert found["outcome"]["word"] == "no_end" and STACKS in " ".join(found["collect_next"])


def test_first_line_that_waits_hides_no_error_of_a_program():
    assert asked("Waiting for the master pod to be ready\nconnected\n[x] ERROR: worker table has too few slots for this group\n")[0] == "failure"
