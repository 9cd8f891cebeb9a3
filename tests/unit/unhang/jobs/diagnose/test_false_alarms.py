"""Healthy logs with words that frighten: retries that succeeded, names of metrics, limits,
deprecated settings, features that are disabled, resumed jobs."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.rendering import render_table

END = "Training completed successfully\n"
NCCL = (
    "cudaDriverVersion 12040", "Bootstrap : Using eth0:10.0.0.5<0>",
    "NVLS multicast support is not available on dev 0",
    "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "CUMEM disabled",
    "TUNER/Plugin: Could not find: libnccl-tuner.so.",
    "MNNVL busId 0x1 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0",
)  # fmt: skip


def nccl():
    return "".join(
        f"gpu00:{40 + rank}:{41 + rank} [{rank}] NCCL INFO {line}\n"
        for rank in range(4)
        for line in NCCL
    )


def metrics(row):
    return (
        f"{{'loss': 1.{row:03d}, 'word_error_rate': 0.{row:03d}, 'timeout_rate': 0.0, 'error':"
        " 0.01, 'failed_samples': 0, 'oom_retries': 0}\n"
    )


def steps(first, last):
    return "".join(
        f"step {step} | loss {2.5 - step / 5000:.4f} | lr 1.0e-04 | grad_norm 0.{step % 90 + 10} |"
        " 1843.2 tok/s/gpu\n"
        for step in range(first, last)
    )


LOGS = {
    "features of NCCL that are disabled": nccl() + steps(0, 60) + END,
    "retries that succeeded": steps(0, 40)
    + "WARNING:urllib3.connectionpool:Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError: Failed to establish a new "
    "connection: [Errno 111] Connection refused': /api\nbotocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL, retrying in 2 s (attempt 1/5)\n"
    + steps(40, 80)
    + "S3 upload failed (timeout), will retry\nUpload of checkpoint done after 2 attempts\n"
    + END,
    "names of metrics": "".join(map(metrics, range(60)))
    + "{'train_runtime': 1801.2, 'train_loss': 1.2, 'epoch': 3.0}\n",
    "limits on the command line": "Namespace(timeout=1800, ddp_timeout=1800, nccl_timeout=600, abort_on_error=True, kill_on_hang=False, deadlock_check=0)\n"
    + steps(0, 60)
    + END,
    "deprecated settings": "[W1122 03:00:00.1 Utils.hpp:106] Warning: Environment variable NCCL_ASYNC_ERROR_HANDLING is deprecated; use "
    "TORCH_NCCL_ASYNC_ERROR_HANDLING instead (function operator())\nDeprecationWarning: 'error' alias is deprecated\n" + steps(0, 60) + END,
    "a resumed job that tells why": "Resuming from checkpoint /ckpt/step_400 (previous run ended with: RuntimeError: NCCL timeout, job requeued)\n"
    + steps(400, 460)
    + END,
    "a job that was preempted and went on": steps(0, 40)
    + "slurmstepd: error: *** JOB 1234 ON gpu01 CANCELLED AT 2026-11-22T03:00:00 DUE TO PREEMPTION ***\nslurm: job 1234 requeued\n"
    + "Resuming from checkpoint step 40\n"
    + steps(40, 80)
    + END,
    "a batch that was too large, and a smaller one": "auto batch size: trying 64\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 79.15 GiB\nauto batch size: trying 32\n" + steps(0, 60) + END,
    "errors in the data": "sample 0: {'text': 'My training hangs: NCCL WARN Connection refused, watchdog caught collective operation timeout, why?'}\n"
    "Evaluation: 12 failed, 388 passed (unit-test generation)\npass@1: 0.42, timeout: 17 of 400 programs were killed (limit 10 s), segfault: 2\n"
    + steps(0, 60)
    + END,
    "names of commits and runs": "commit: fix deadlock in dataloader (#1234)\nbranch: fix/nccl-timeout-hang\nrun name: retry-after-OOM\n" + steps(0, 60) + END,
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_healthy_log_gives_no_alarm(tmp_path, name):
    log = tmp_path / "job.log"
    log.write_text(LOGS[name])
    found = diagnose([str(log)])
    assert found["outcome"]["word"] == "healthy"
    assert [
        (one["cause"], one["severity"]) for one in found["causes"] if one["severity"] != "info"
    ] == []
    assert found["facts"]["first_error"] is None


@pytest.mark.parametrize(
    "text",
    [
        steps(0, 40)
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a"
        " total capacity of 79.15 GiB\n",
        "Resuming from checkpoint step 40\n"
        + steps(0, 40)
        + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
        + END,
        steps(0, 40)
        + "slurmstepd: error: *** JOB 1234 ON gpu01 CANCELLED AT 2026-11-22T03:00:00 DUE TO"
        " PREEMPTION ***\n" + END,
    ],
)
def test_failure_that_nothing_repeats_is_told_all_the_same(tmp_path, text):
    log = tmp_path / "job.log"
    log.write_text(text)
    assert diagnose([str(log)])["outcome"]["word"] in ("cause", "failure")


def test_retries_before_a_good_end_are_told_as_survived_and_not_as_an_error(tmp_path):
    log = tmp_path / "job.log"
    retry = (
        "[W1122 03:00:00.1 socket.cpp:752] [c10d] The client socket has failed to connect to"
        " [head]:29500 (errno: 111 - Connection refused).\n"
    )
    log.write_text(retry + steps(0, 40) + END)
    shown = render_table(diagnose([str(log)]))
    assert "HEALTHY" in shown and "survived: [W1122" in shown and "first error" not in shown
    log.write_text(retry)
    assert "first error: [W1122" in render_table(diagnose([str(log)]))
