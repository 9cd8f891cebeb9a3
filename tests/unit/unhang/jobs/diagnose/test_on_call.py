"""Logs as an engineer on call gets them: what was overcome is no alarm, and the answer names who is
meant."""

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
KEY_ERROR = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 71, in <module>\n   '
    " main()\nKeyError: 'caption'\n"
)


@pytest.mark.parametrize("label", ["", "[rank3]: "])
def test_exception_that_python_ignored_is_no_failure(label):
    assert diagnose_text(STEPS + END + IGNORED.format(label=label))["outcome"]["word"] == "healthy"


@pytest.mark.parametrize(
    "text", [KEY_ERROR + IGNORED, IGNORED + KEY_ERROR], ids=["before it", "after it"]
)
def test_exception_beside_one_that_python_ignored_is_the_failure(text):
    assert (
        diagnose_text(STEPS + text.format(label=""))["facts"]["first_error"]["text"]
        == "KeyError: 'caption'"
    )


def test_known_fault_in_an_ignored_exception_still_counts():
    fault = IGNORED.replace(
        "AssertionError: can only test a child process",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    )
    assert [one["cause"] for one in diagnose_text(STEPS + fault.format(label=""))["causes"]][
        :1
    ] == ["xid_hardware"]


STALL = (
    "INFO 03-09 08:22:11 [shm_broadcast.py:466] No available shared memory broadcast block found in"
    " 60 seconds.\n"
)
STARTED = "INFO:     Application startup complete.\n"
TOKENS = (
    "INFO 03-09 09:10:11 [loggers.py:127] Engine 000: Avg prompt throughput: 1212.3 tokens/s, Avg"
    " generation throughput: 421.1 tokens/s\n"
)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (STALL + STARTED, "healthy"),
        (STARTED + STALL + TOKENS, "healthy"),
        (STALL, "no_end"),
        (STARTED + TOKENS + STALL, "no_end"),
    ],
    ids=["then it started", "then it made tokens", "it never started", "the last line"],
)
def test_worker_that_was_late_is_a_hang_only_while_the_server_waits_for_it(text, word):
    assert diagnose_text(text)["outcome"]["word"] == word


MOUNT = (
    "  Warning  FailedMount  4h51m  kubelet{pod}  MountVolume.SetUp failed for volume"
    ' "kube-api-access-x2" : failed to sync configmap cache\n'
)
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
    assert "ib_misconfig" not in [one["cause"] for one in answer["causes"]]


def test_connection_that_was_retried_is_no_remark_about_a_firewall():
    refused = (
        "[W309 08:12:10.9 socket.cpp:755] [c10d] The client socket has failed to connect to"
        " [node01]:29500 (errno: 111 - Connection refused).\n"
    )
    shown = render_table(diagnose_text(refused + STEPS + END))
    assert "survived: [W309" in shown and "irewall" not in shown


def test_date_of_the_program_behind_that_of_its_pod_is_no_host():
    answer = diagnose_text(
        "2026-03-09T08:12:06Z 2026-03-09 08:12:06 - ERROR - lost its shard\n$ kubectl get pods\n"
        + STEPS
    )
    assert answer["facts"]["hosts"] == []


def watchdog(rank, op, numel, seq=3618):
    return (
        f"[rank{rank}]:[E309 08:50:24.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
        f" collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel},"
        f" NumelOut={numel}, Timeout(ms)=1800000) ran for 1800074 milliseconds before timing out.\n"
    )


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (watchdog(3, "_ALLGATHER_BASE", 64), "rank 3: _ALLGATHER_BASE; ranks 0-2, 4-5: ALLREDUCE"),
        (watchdog(3, "ALLREDUCE", 64), "rank 3: 64 elements; ranks 0-2, 4-5: 4,096 elements"),
        (watchdog(3, "ALLREDUCE", 4096, 3600), "rank 3: #3600; ranks 0-2, 4-5: #3618"),
    ],
    ids=["operation", "size", "number"],
)
def test_rank_that_waits_unlike_the_others_is_named_first(odd, told):
    cause = diagnose_text(
        "".join(odd if rank == 3 else watchdog(rank, "ALLREDUCE", 4096) for rank in range(6))
    )["causes"][0]
    assert cause["cause"] == "rank_desync_app" and cause["where"] == ["rank 3"]
    assert told in cause["evidence"][0]["says"] and "[Rank 3]" in cause["evidence"][0]["text"]


def test_line_without_a_number_is_told_as_that():
    odd = (
        watchdog(3, "ALLREDUCE", 4096)
        .replace("SeqNum=3618, ", "")
        .replace("NumelIn=4096, NumelOut=4096, ", "")
    )
    lines = [
        watchdog(0, "ALLREDUCE", 4096),
        watchdog(1, "ALLREDUCE", 4096),
        watchdog(2, "ALLREDUCE", 4096, 3600),
        odd,
    ]
    says = diagnose_text("".join(lines))["causes"][0]["evidence"][0]["says"]
    assert "rank 3: no number" in says and "None" not in says


NAMED = {
    "Ray's node and worker": (
        (
            "(raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory"
            " pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 7d1f0a3c55ab, IP:"
            " 10.0.7.57) over the last time period.\nMemory on the node (IP: 10.0.7.57, ID:"
            " 7d1f0a3c55ab) where the task (actor ID: f252, name=RayTrainWorker.__init__, pid=4506,"
            " memory used=58.61GB) was running was 478.33GB / 503.51GB (0.950), which exceeds the"
            " memory usage threshold of 0.95.\n"
        ),
        ["address 10.0.7.57", "pid 4506", "its memory 58.61GB"],
    ),
    "the port that is taken": (
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any"
            " local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE,"
            " message: address already in use\n"
        ),
        ["port 29500"],
    ),
    "a host and its port": (
        (
            "[c10d] TCP client failed to connect/validate to host gpu01:29400 - timed out (try=12,"
            " timeout=300000ms)\n"
        ),
        ["host gpu01", "port 29400"],
    ),
    "Slurm's job": (
        STEPS
        + "slurmstepd: error: *** JOB 882311 ON cn101 CANCELLED AT 2026-03-09T08:58:40 DUE TO TIME"
        " LIMIT ***\n",
        ["job 882311"],
    ),
}


@pytest.mark.parametrize(("text", "where"), NAMED.values(), ids=NAMED)
def test_what_the_lines_name_is_named(text, where):
    assert diagnose_text(text)["causes"][0]["where"] == where


def test_main_process_is_named_and_no_rank_that_waits_for_it():
    waits = (
        '[rank3]:     with training_args.main_process_first(desc="dataset map'
        ' tokenization"):\n[rank3]: torch.distributed.DistBackendError: aborted\n'
    )
    cause = diagnose_text(
        "".join(watchdog(rank, "ALLREDUCE", 1, 1) for rank in range(1, 4)) + waits
    )["causes"][0]
    assert (
        cause["cause"] == "slow_rank_or_io"
        and "the main process" in cause["where"]
        and "rank 3" not in cause["where"]
    )


def test_gpu_that_its_hardware_slows_down_decides_and_cites_nothing_else():
    answer = diagnose_text(
        "    Clocks Event Reasons\n        HW Slowdown                       : Active\n           "
        " HW Thermal Slowdown           : Active\n"
    )
    assert answer["decided"] and answer["causes"][0]["title"].startswith("A GPU is too hot")
    assert {one["url"] for one in answer["causes"][0]["sources"]} == {
        "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
    }


@pytest.mark.parametrize(
    "line",
    [
        (
            "[rank0]: Exception: Current loss scale already at minimum - cannot decrease scale"
            " anymore. Exiting run."
        ),
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
        (
            "AssertionError: Rank 12: found NaN in local forward loss calculation. Device: 4, node:"
            " gpu03"
        ),
    ],
)
def test_numbers_that_are_not_finite_are_not_asked_for_connections(line):
    answer = diagnose_text(STEPS + line + "\n")
    assert (
        answer["outcome"]["word"] == "failure"
        and "infinite or not a number" in answer["outcome"]["why"]
    )
    assert answer["collect_next"][0].startswith("grep -n -i -m5 -e nan")


NO_HUB = (
    "[rank{rank}]: requests.exceptions.ConnectionError:"
    " (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded"
    " (Caused by NameResolutionError(Failed to resolve 'huggingface.co' ([Errno -3] Temporary"
    " failure in name resolution)\"))\n[rank{rank}]: OSError: We couldn't connect to"
    " 'https://huggingface.co' to load the files, and couldn't find them in the cached files.\n"
)


def test_ranks_that_all_meet_the_same_fault_do_not_wait_for_the_first_of_them():
    causes = [
        one["cause"]
        for one in diagnose_text("".join(NO_HUB.format(rank=rank) for rank in range(8)))["causes"]
        if one["severity"] != "info"
    ]
    assert causes == ["dns_hostname"]


def test_failed_test_of_a_gpu_names_the_gpu():
    cause = diagnose_text(
        "| Memory                    | Fail - GPU: 3                                  |\n"
    )["causes"][0]
    assert cause["cause"] == "xid_hardware" and cause["where"] == ["GPU 3", "test Memory"]


@pytest.mark.parametrize("test", ["software", "pcie", "nccl_tests"])
def test_software_links_and_nccl_of_newer_dcgm_are_no_failed_gpu(test):
    line = f"| {test:<25} | Fail                                           |\n"
    assert "xid_hardware" not in [one["cause"] for one in diagnose_text(line)["causes"]]


FORKED = (
    "huggingface/tokenizers: The current process just got forked, after parallelism has already"
    " been used. Disabling parallelism to avoid deadlocks...\n"
)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (FORKED + STEPS + "{'train_runtime': 812.1, 'train_loss': 1.2, 'epoch': 2.0}\n", "healthy"),
        ("With 8 GPUs we cannot avoid hangs: it hangs at the first step.\n" + STEPS, "no_end"),
    ],
    ids=["averted", "not averted"],
)
def test_hang_that_is_averted_is_none(text, word):
    assert diagnose_text(text)["outcome"]["word"] == word


REFUSED = (
    "ERROR 03-09 09:11:11 [serving_chat.py:257] Traceback (most recent call last):\nERROR 03-09"
    " 09:11:11 [serving_chat.py:257] ValueError: This model's maximum context length is 32768"
    " tokens.\n"
)
ANSWERED = 'INFO:     10.0.0.7:3311 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (STARTED + ANSWERED + REFUSED + ANSWERED, "healthy"),
        (STARTED + ANSWERED + REFUSED, "failure"),
        (REFUSED + STARTED + ANSWERED, "failure"),
        (STARTED + REFUSED + STALL + ANSWERED, "failure"),
    ],
    ids=["it answers afterwards", "the last line", "before the start", "a worker is stuck"],
)
def test_exception_of_a_request_ends_no_server_that_answers_the_next(text, word):
    assert diagnose_text(text)["outcome"]["word"] == word
