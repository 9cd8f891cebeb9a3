"""What is asked first, by what decided such reports: the line, the versions and one process of a failure; and steps of their own for special reports."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.next_commands import MOST_COMMANDS
from unhang.jobs.diagnose.rendering import steps_of

RAISED = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
CUT = "Training with two GPUs fails\n\nI start it as in the README and get this:\n\n" + RAISED
LAUNCHER = (
    "My run with two GPUs fails\n\nIt prints only this:\n\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\ntrain.py FAILED\n"
    "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 4100)\n  error_file: <N/A>\n"
)
FAILS = "Error when I start the training with 4 GPUs\n\nThe PyTorch training ends with a strange message about a module.\n"


def first_words(text):
    return [one.partition("\n")[0] for one in diagnose_text(text)["collect_next"]]


def test_failure_is_asked_for_its_line_then_its_versions_then_what_it_says_then_one_process():
    steps = first_words(FAILS)
    asked = ("the line that starts", "the versions", "the error itself as text", "the same run with one process")
    assert len(steps) == len(asked) and all(step.startswith(words) for step, words in zip(steps, asked, strict=True)), steps


def test_one_process_is_not_asked_for_where_it_is_told_to_work():
    steps = first_words(FAILS + "With one GPU it works.\n")
    assert not any("with one process" in step for step in steps) and any("what several processes change" in step for step in steps)


@pytest.mark.parametrize("text", [CUT, LAUNCHER], ids=["a traceback that is cut", "only the launcher's report"])
def test_rest_of_the_output_is_asked_for_where_it_is_missing(text):
    asked = ("the same output to its end", "the own log of the rank")
    assert first_words(text)[0].startswith(asked) and not any(step.startswith(asked) for step in first_words(FAILS))


@pytest.mark.parametrize(
    ("text", "is_early"),
    [
        ("Two GPUs hang at the first step, all GPUs at 100 %.\n", True),
        ("It gets stuck at DistributedDataParallel\n\nI use torchrun with two GPUs, and it hangs in the constructor of DDP.\n", True),
        ("Training hangs after a while\n\nI use torchrun with two GPUs, and it just hangs.\n", False),
        ("Training hangs after 300 steps with two GPUs.\n", False),
    ],
)
def test_experiment_with_peer_to_peer_comes_early_only_where_it_decided(text, is_early):
    assert any("NCCL_P2P_DISABLE" in step for step in first_words(text)[:2]) == is_early


@pytest.mark.parametrize(
    ("text", "wanted", "word"),
    [
        ("multi-gpu bug\n\nwhen I use 8 gpus, the loss becomes nan and the training is stopped\n", "learning rate", "no_end"),
        ("About multi gpu training\n\nThere are 8 GPUs, but only the first GPU gets utilized.\n", "ps -ef | grep SCRIPT", "no_end"),
        ("NCCL error with multi gpu on windows\n\nIt ends with an error.\n", "is_nccl_available", "failure"),
        ("Workers on two nodes\n\nThe pod of the worker is stuck at the ContainerCreating stage for ever.\n", "kubectl describe pod", "no_end"),
        ("RuntimeError: Distributed package doesn't have NCCL built in\n", "is_nccl_available", "failure"),
        ("ValueError: Cannot load file containing pickled data when allow_pickle=False\n", "ls -l of that file", "failure"),
        ("Lower speed with two nodes\n\nThe distributed mode has a lower speed than the single mode.\n", "data loader", "no_end"),
        (
            "nccl-tests on two nodes slow over EFA\n\n" + "# Using devices\n#  Rank  0 Group  0 Pid 87 on n1 device  0 [0000:33:00] NVIDIA H100 80GB HBM3\n",
            "which network",
            "no_end",
        ),
    ],
)
def test_what_is_special_has_steps_of_its_own(text, wanted, word):
    steps = first_words(text)
    assert wanted in steps[0] and diagnose_text(text)["outcome"]["word"] == word, steps


def test_pods_that_wait_are_asked_for_once():
    steps = first_words("Workers on two nodes\n\nThe PyTorchJob hangs at the start: a pod is stuck at ContainerCreating.\n")
    assert sum("kubectl describe pod" in step for step in steps) == 1 and steps[0].startswith("kubectl describe pod"), steps


def test_network_that_is_named_is_asked_for_first():
    told = "Unable to run jobs on our nodes\n\nPods are unable to communicate with each other{}.\n"
    assert first_words(told.format(" because of networking issues"))[0].startswith("on each host, or in each pod: ip -br addr")


def test_function_that_an_older_torch_does_not_have_is_no_wrapped_model():
    line = "AttributeError: 'DistributedDataParallel' object has no attribute '{}'\n"
    assert "torch.__version__" in first_words(line.format("_set_static_graph"))[0]
    assert not any("torch.__version__" in first_words(line.format(name))[0] for name in ("config", "no_sync"))


def test_port_in_use_in_a_sentence_is_that_cause():
    found = diagnose_text("Two experiments in one image\n\nWhen I start the second one it says that the port is already in use.\n")
    assert found["causes"][0]["cause"] == "port_in_use"


def test_image_that_is_the_newest_is_no_change():
    ran = "NCCL error\n\nI was running the example inside the latest docker image on one node and it failed.\n"
    assert not any("the release before" in step for step in first_words(ran))
    assert any("the release before" in step for step in first_words(ran.replace("inside the latest docker image", "since we pulled the latest docker image")))


def test_container_that_asks_for_an_unknown_gpu_is_no_missing_runtime():
    found = diagnose_text("nvidia-container-cli: device error: 4: unknown device\n")
    assert "NVIDIA_VISIBLE_DEVICES" in found["collect_next"][0] and not [one for one in found["causes"] if one["severity"] != "info"]
    other = diagnose_text("nvidia-container-cli: initialization error: nvml error\n")
    assert other["causes"][0]["cause"] == "container_gpu_access" and other["causes"][0]["severity"] != "info"


@pytest.mark.parametrize(("line", "is_title"), [("[BUG] NCCL issue in pretraining", True), ("[Gloo] ranks have been connected", False)])
def test_tag_of_a_title_is_no_part_of_it(line, is_title):
    found = diagnose_text(f"{line}\n\nOn some clusters this error comes up.\n")
    assert (found["outcome"]["line"] is not None and found["outcome"]["line"]["line"] == 1) == is_title


def test_checks_of_hints_are_among_the_four_steps():
    text = "nvidia-container-cli: device error: 4: unknown device\n"
    assert len(steps_of(diagnose_text(text))) <= MOST_COMMANDS
