"""How ranks meet and part: each rule on the lines that it was made for, and silent on lines that
are near to them."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

FATAL = (
    "F1121 17:46:29.327005    6689 client.h:86] Terminating process because the JAX distributed"
    " service detected fatal errors. This most likely indicates that another task died; see the"
    " other task logs for more details. absl::Status: {status}"
)
NOT_REGISTERED = FATAL.format(
    status=(
        "DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC:"
        " /xla.coordination.CoordinationService/RegisterTask\n"
    )
)
STACK = (
    "*** Check failure stack trace: ***\n    @     0x7f36bdf657d4 "
    " absl::log_internal::LogMessage::SendToLog()\nAborted\n"
)
HEARTBEATS = "coordination_service.cc:1518] Use error polling to propagate the following error to all tasks: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n2\n"
POLLED = "E1121 17:46:35.833273    7115 coordination_service_agent.cc:288] Polled an error from coordination service (this can be an error from this or another task).\n"
MEMBER = "Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {nth}/{all}\n"
GONE = (
    "[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read"
    " error [127.0.0.1]:10962: Connection reset by peer\n"
)
REPORT = (
    "Failures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 6718)\nRoot Cause"
    " (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : {code} (pid:"
    " 6720)\n"
)
SEMAPHORE = (
    "    sl = self._semlock = _multiprocessing.SemLock(\n                        "
    " ^^^^^^^^^^^^^^^^\nOSError: [Errno {code}] {why}\n"
)
NO_MEMORY = (
    "WARNING: CUDA out of memory. Tried to allocate 262144.00 GiB. batch 67108864 does not fit,"
    " trying 262144\n"
)


@pytest.fixture
def found(tmp_path):
    """The diagnosis of a log of these lines: (the first answer, the causes above a remark, the
    document)."""

    def look(*lines):
        log = tmp_path / "job.log"
        log.write_text("".join(lines), encoding="utf-8")
        document = diagnose([log])
        loud = [cause["cause"] for cause in document["causes"] if cause["severity"] != "info"]
        return (loud[0] if loud else document["outcome"]["word"]), loud, document

    return look


@pytest.mark.parametrize("lines", [
    (FATAL.format(status="INTERNAL: a thing that nobody knows\n"),),
    (FATAL.format(status="ABORTED: restarted\n"), STACK),
    ("F1121 17:46:31.913895    6764 pjrt_client.cc:86] Check failed: copy_event.ok()\n", STACK),
    ("step 3\n", STACK),
    (NOT_REGISTERED,),
])  # fmt: skip
def test_jax_process_that_ended_itself_never_counts_as_a_log_that_just_ends(found, lines):
    assert found(*lines)[0] in ("failure", "firewall_ports")


def test_jax_process_that_says_no_more_than_its_start_has_no_failure(found):
    assert found(
        "I1121 17:46:29.3    6689 service.cc:86] Starting JAX distributed service on [::]:1234\n",
        "step 3\n",
    )[0] not in ("failure", "rank_failed")


def test_task_that_did_not_register_leaves_network_and_launch_open(found):
    _, loud, document = found(NOT_REGISTERED, STACK)
    assert {"firewall_ports", "launch_mismatch"} <= set(loud) and not document["decided"]
    assert found("RPC: /xla.coordination.CoordinationService/RegisterTask\n", "step 3\n")[1] == []


def test_task_without_heartbeats_is_the_one_that_failed(found):
    first, _, document = found("step 9\n", HEARTBEATS, POLLED)
    assert first == "rank_failed" and "task 2" in document["causes"][0]["evidence"][0]["says"]
    assert found("coordination_service.cc:8] heartbeat timeout set to 100 s\n", "step 9\n")[1] == []


@pytest.mark.parametrize(
    ("host", "firewall"), [("127.0.0.1", False), ("localhost", False), ("198.51.100.9", True)]
)
def test_store_on_the_same_host_is_behind_no_firewall(found, host, firewall):
    line = (
        "torch.distributed.DistNetworkError: The client socket has timed out after 12000ms while"
        f" trying to connect to ({host}, 47343).\n"
    )
    assert ("firewall_ports" in found(line)[1]) is firewall


@pytest.mark.parametrize("lines", [
    (GONE.format(rank=3), REPORT.format(code=-15)),  # swept away
    (GONE.format(rank=2), REPORT.format(code=77)),  # the rank itself found another one gone
    (REPORT.format(code=77),),  # no rank was missing
])  # fmt: skip
def test_rank_that_did_not_leave_first_or_is_missed_by_nobody_is_not_accused(found, lines):
    assert found(*lines)[0] == "failure"


def test_root_of_the_report_is_told_and_not_the_first_of_those_that_were_ended_after_it(found):
    why = found(REPORT.format(code=77))[2]["outcome"]["why"]
    assert why.startswith("rank 2 ended with exit code 77")


@pytest.mark.parametrize(("code", "why", "first"), [
    (30, "Read-only file system", "shm_permission"),
    (13, "Permission denied", "shm_permission"),
    (28, "No space left on device", "disk_full"),
])  # fmt: skip
def test_semaphore_that_may_not_be_made_is_no_full_disk(found, code, why, first):
    answer, loud, _ = found(SEMAPHORE.format(code=code, why=why))
    assert (answer == "shm_permission") is (first == "shm_permission")
    assert first == "disk_full" or "disk_full" not in loud


def test_memory_that_ran_out_was_survived_where_the_job_came_to_its_end(found):
    assert found(NO_MEMORY, "step 3\n", "Training finished after 20 steps\n")[1] == []
    assert found("Training finished after 20 steps\n", NO_MEMORY)[0] == "oom"
    assert found(NO_MEMORY, "Training finished after 20 steps\n", REPORT.format(code=1))[0] == "oom"


def test_few_cores_for_data_loaders_alone_raise_no_alarm(found):
    line = (
        "dataloader.py:432: UserWarning: This DataLoader will create 10 worker processes in total."
        " Our suggested max number of worker in current system is 8\n"
    )
    assert found(line, "finished, loss 7.158\n")[1] == []


@pytest.mark.parametrize(("code", "alarm"), [("-9", ["oom"]), ("-15", []), ("1", [])])
def test_child_that_lightning_found_killed_is_told_of(found, code, alarm):
    line = (
        f"[rank: 2] Child process with PID 2830 terminated with code {code}. Forcefully terminating"
        " all other processes to avoid zombies\n"
    )
    assert found(line)[1] == alarm


@pytest.mark.parametrize(("line", "cause"), [
    ("vm:5728:5728 [2] graph/xml.cc:175 NCCL WARN XML Parse : expected >, got '\n",
    "env_var_misconfig"),
    ("[rank1]: torch.distributed.DistBackendError: NCCL timeout in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:197\n", "slow_rank_or_io"),
    (f"[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/scratch/jit/{'AB2C' * 13}/triton_0.source'\n", "jit_cache_shared"),
])  # fmt: skip
def test_line_that_names_its_fault_is_the_answer(found, line, cause):
    assert found(line)[0] == cause


@pytest.mark.parametrize("line", [
    "vm:5728:5728 [2] NCCL INFO NCCL_TOPO_FILE set by environment to /etc/topo.xml\n",
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, internal error\n",
    "[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/data/shard/train_0.source'\n",
])  # fmt: skip
def test_line_that_is_near_to_it_is_not(found, line):
    assert not {"env_var_misconfig", "slow_rank_or_io", "jit_cache_shared"} & set(found(line)[1])


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        ("uncorrectable ECC error encountered", "xid_hardware"),
        ("an illegal memory access was encountered", "rank_failed"),
    ],
)
def test_heading_above_a_traceback_is_not_what_failed(tmp_path, raised, cause):
    log = tmp_path / "job.log"
    heading = (
        "Error executing job with overrides: ['trainer.nnodes=4']\nTraceback (most recent call"
        ' last):\n  File "a.py", line 3, in fit\n'
    )
    gone = (
        "[rank1]:[E227 10:16:02.1 ProcessGroupNCCL.cpp:1834] [Rank 1] NCCL error: remote process"
        " exited or there was a network error, NCCL version 2.21.5\n"
    )
    log.write_text(f"{heading}RuntimeError: CUDA error: {raised}\n{gone}", encoding="utf-8")
    first = diagnose([str(log)])["causes"][0]
    assert (first["cause"], first["evidence"][0]["line"]) == (cause, 4)


@pytest.mark.parametrize(
    ("between", "caught"),
    [
        ("During handling of the above exception, another exception occurred:", True),
        ("step 3", False),
    ],
)
def test_exception_that_the_program_caught_did_not_end_it(tmp_path, between, caught):
    log = tmp_path / "job.log"
    gone = (
        "[rank1]:[E227 10:16:02.1 ProcessGroupNCCL.cpp:1834] [Rank 1] NCCL error: remote process"
        " exited or there was a network error, NCCL version 2.21.5\n"
    )
    log.write_text(
        f"KeyError: 'cache'\n\n{between}\n\nRuntimeError: CUDA error: uncorrectable ECC error"
        f" encountered\n{gone}",
        encoding="utf-8",
    )
    found = {one["cause"] for one in diagnose([str(log)])["causes"] if one["severity"] != "info"}
    assert found == {"xid_hardware"} | (set() if caught else {"rank_failed"})
