"""Names of the pod and the container in the output of `kubectl describe pod`."""

from __future__ import annotations

import textwrap

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose
from unhang.jobs.diagnose.logs.pod_descriptions import killed_container

POD = """Name:             trainer-0
Namespace:        train
Priority:         0
Labels:           job-name=trainer
Status:           Running
Init Containers:
  fetch:
    Image:          fetch:1
    State:          Terminated
      Reason:       Completed
      Exit Code:    0
Containers:
  logger:
    Image:          log:1
    State:          Running
  trainer:
    Container ID:   containerd://77
    Image:          train:1

    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Ready:          False
    Environment:
      NAME:         other
Conditions:
  Type              Status
"""
NAMES = {"pod": "train/trainer-0", "container": "trainer"}
COMMAND = (
    "$ kubectl -n soperator describe pod worker-7 | grep -A8 'Last State'\n    Last State:    "
    " Terminated\n      Reason:       OOMKilled\n"
)


def names_in(text):
    lines = text.encode().split(b"\n")
    return killed_container(
        lines.__getitem__, next(at for at, line in enumerate(lines) if b"OOMKilled" in line)
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (POD, NAMES),
        ("NAME   READY\na  0/1\n" + textwrap.indent(POD, "    "), NAMES),
        (POD.replace("Namespace:        train\n", ""), {**NAMES, "pod": "trainer-0"}),
        (
            POD.partition("Containers:\n  logger")[1] + POD.partition("Containers:\n  logger")[2],
            {"container": "trainer"},
        ),
        (COMMAND, {"pod": "soperator/worker-7"}),
        (COMMAND.replace("-n soperator ", ""), {"pod": "worker-7"}),
        ("      Reason:       OOMKilled\n", {}),
        ("pod trainer-0: OOMKilled\n", {}),
        ("Containers:\n  Bad Name!:\n    Last State:\n      Reason:   OOMKilled\n", {}),
        ("x\n" * 500 + "      Reason:  OOMKilled\n", {}),
    ],
)
def test_names_stand_above_the_state(text, names):
    assert names_in(text) == names


def test_the_killed_container_is_named_in_the_answer(tmp_path):
    (tmp_path / "pod.log").write_text(POD)
    cause = diagnose([str(tmp_path / "pod.log")])["causes"][0]
    assert (cause["cause"], cause["where"]) == ("oom", ["pod train/trainer-0", "container trainer"])


def test_two_killed_containers_are_both_named(tmp_path):
    (tmp_path / "pods.log").write_text(POD + POD.replace("trainer-0", "trainer-1"))
    assert {"pod train/trainer-0", "pod train/trainer-1"} <= set(
        diagnose([str(tmp_path / "pods.log")])["causes"][0]["where"]
    )
