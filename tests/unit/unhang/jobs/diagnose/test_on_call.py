"""Logs as an engineer on call gets them: what was overcome is no alarm, and the answer names who is meant."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.rendering import render_table

STEPS = "".join(f"step {step} | loss 2.{step}\n" for step in range(10, 40))
END = "Training completed successfully\n"
IGNORED = """{label}Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f1b2c0>
{label}Traceback (most recent call last):
{label}  File "/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py", line 1604, in __del__
{label}    self._shutdown_workers()
{label}AssertionError: can only test a child process
"""
KEY_ERROR = 'Traceback (most recent call last):\n  File "/w/train.py", line 71, in <module>\n    main()\nKeyError: \'caption\'\n'


@pytest.mark.parametrize("label", ["", "[rank3]: "])
def test_exception_that_python_ignored_is_no_failure(label):
    assert diagnose_text(STEPS + END + IGNORED.format(label=label))["outcome"]["word"] == "healthy"


@pytest.mark.parametrize("text", [KEY_ERROR + IGNORED, IGNORED + KEY_ERROR], ids=["before it", "after it"])
def test_exception_beside_one_that_python_ignored_is_the_failure(text):
    assert diagnose_text(STEPS + text.format(label=""))["facts"]["first_error"]["text"] == "KeyError: 'caption'"


def test_known_fault_in_an_ignored_exception_still_counts():
    fault = IGNORED.replace("AssertionError: can only test a child process", "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    assert [one["cause"] for one in diagnose_text(STEPS + fault.format(label=""))["causes"]][:1] == ["xid_hardware"]


STALL = "INFO 03-09 08:22:11 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging.\n"
STARTED = "INFO:     Application startup complete.\n"
TOKENS = "INFO 03-09 09:10:11 [loggers.py:127] Engine 000: Avg prompt throughput: 1212.3 tokens/s, Avg generation throughput: 421.1 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [(STALL + STARTED, "healthy"), (STARTED + STALL + TOKENS, "healthy"), (STALL, "no_end"), (STARTED + TOKENS + STALL, "no_end")],
    ids=["then it started", "then it made tokens", "it never started", "the last line"],
)
def test_worker_that_was_late_is_a_hang_only_while_the_server_waits_for_it(text, word):
    assert diagnose_text(text)["outcome"]["word"] == word


MOUNT = '  Warning  FailedMount  4h51m  kubelet{pod}  MountVolume.SetUp failed for volume "kube-api-access-x2" : failed to sync configmap cache\n'
BEGAN = "  Normal   Started      4h44m  kubelet{pod}  Started container pytorch\n"


@pytest.mark.parametrize(
    ("events", "word"),
    [
        (MOUNT.format(pod="") + BEGAN.format(pod="") + STEPS + END, "healthy"),
        (MOUNT.format(pod=""), "failure"),
        (BEGAN.format(pod="") + MOUNT.format(pod=""), "failure"),
        (MOUNT.format(pod=" pod/train-1") + BEGAN.format(pod=" pod/train-0"), "failure"),
    ],
    ids=["it started later", "it never started", "a later start", "another pod started"],
)
def test_volume_that_came_late_is_no_failure_of_a_pod_that_started(events, word):
    assert diagnose_text(events)["outcome"]["word"] == word


AER = """[Mon Mar  9 06:13:11 2026] mlx5_core 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
[Mon Mar  9 06:13:11 2026] mlx5_core 0000:18:00.0:   device [15b3:1021] error status/mask=00001000/00002000
[Mon Mar  9 06:13:11 2026] mlx5_core 0000:18:00.0:    [12] Timeout
"""


def test_errors_that_pcie_corrected_are_no_fault_of_the_adapters_driver():
    answer = diagnose_text("CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n" + AER)
    assert answer["outcome"]["word"] == "healthy" and "ib_misconfig" not in [one["cause"] for one in answer["causes"]]


def test_connection_that_was_retried_is_no_remark_about_a_firewall():
    refused = "[W309 08:12:10.9 socket.cpp:755] [c10d] The client socket has failed to connect to [node01]:29500 (errno: 111 - Connection refused).\n"
    shown = render_table(diagnose_text(refused + STEPS + END))
    assert "survived: [W309" in shown and "irewall" not in shown


def test_date_of_the_program_behind_that_of_its_pod_is_no_host():
    answer = diagnose_text("2026-03-09T08:12:06Z 2026-03-09 08:12:06 - ERROR - lost its shard\n$ kubectl get pods\n" + STEPS)
    assert answer["facts"]["hosts"] == []
