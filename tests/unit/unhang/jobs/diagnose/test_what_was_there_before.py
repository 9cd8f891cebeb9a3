"""What was there before the job: memory and segments of others, a launcher that starts ranks elsewhere, settings and files of another machine."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text


def points(text: str, cause: str) -> float:
    return next((one["points"] for one in diagnose_text(text)["causes"] if one["cause"] == cause), 0.0)


def first(text: str) -> str | None:
    causes = diagnose_text(text)["causes"]
    return causes[0]["cause"] if causes else None


@pytest.mark.parametrize(
    ("free", "listed", "cause"),
    [
        ("24.91", "118804, Engine::Worker_TP0, 22190 MiB", "orphan_processes_hold_gpu"),
        ("24.91", "118804, Engine::Worker_TP0, 1190 MiB", "oom"),
        ("45.91", "118804, Engine::Worker_TP0, 22190 MiB", "oom"),
    ],
)
def test_memory_in_use_before_a_server_has_allocated_is_held_by_the_processes_listed(free, listed, cause):
    line = f"ValueError: Free memory on device cuda:0 ({free}/47.38 GiB) on startup is less than desired GPU memory utilization (0.98, 46.40 GiB)."
    assert first(f"{line}\n{listed}\n") == cause


FULL = (
    "n1:8:9 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-a to 33030532 bytes, error: No space left on device (28)\n"
    "tmpfs            {size}   {size}     0 100% /dev/shm\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (FULL.format(size="32G") + "   2211 torch_\n", "shm_leftovers"),
        (FULL.format(size="32G") + "trainer-0   0/1   CrashLoopBackOff   118 (2m12s ago)   9h\n", "shm_leftovers"),
        (FULL.format(size="64M") + "trainer-0   0/1   CrashLoopBackOff   118 (2m12s ago)   9h\n", "shm_too_small"),
        (FULL.format(size="32G"), "shm_too_small"),
    ],
)
def test_large_shared_memory_that_is_full_after_restarts_holds_what_earlier_starts_left(text, cause):
    assert first(text) == cause


@pytest.mark.parametrize(("options", "expected"), [("--gpus all", True), ("--gpus all --shm-size 20g", False), ("--gpus all --ipc=host", False)])
def test_unexplained_system_error_in_a_container_with_the_default_of_shm(options, expected):
    text = f"$ docker run -d {options} server:1.0\nRuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n"
    assert (points(text, "shm_too_small") >= 2) is expected


CPUS = "Average:     all   12.31    0.00    0.42    0.03    0.00    0.01    0.02    0.00    0.00   {whole}\n" + "".join(
    f"Average:       {cpu}   1.20    0.00    2.60    0.00    0.00    0.00    0.00    0.00    0.00    {idle}\n"
    for cpu, idle in enumerate(("0.20", "99.40", "98.10"))
)


@pytest.mark.parametrize(("whole", "expected"), [("87.21", True), ("9.21", False)])
def test_one_busy_cpu_of_an_idle_machine_is_a_matter_of_affinity(whole, expected):
    assert (points(CPUS.format(whole=whole), "cpu_affinity") >= 4) is expected


@pytest.mark.parametrize(("host", "expected"), [("trainer-launcher-0", True), ("trainer-node-0-1", False)])
def test_ranks_on_a_host_that_is_not_listed_were_not_started_by_the_list(host, expected):
    text = (
        f"trainer-node-0-0 slots=2\ntrainer-node-0-1 slots=2\nhostname={host} rank=0 size=4 local_rank=0\n"
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!\n"
    )
    assert (points(text, "launch_mismatch") >= 6) is expected


@pytest.mark.parametrize(("line", "expected"), [("n1:8:9 [0] NCCL INFO NCCL_GRAPH_FILE set by environment to /opt/site/graph.xml", True), ("", False)])
def test_topology_that_fails_with_a_file_of_the_environment_is_a_matter_of_that_file(line, expected):
    text = f"{line}\nn1:8:9 [0] graph/search.cc:702 NCCL WARN Could not find node of type 0 id 4b000\nn1:8:9 [0] NCCL INFO graph/search.cc:732 -> 2\n"
    assert (first(text) == "env_var_misconfig") is expected


@pytest.mark.parametrize(("line", "expected"), [("CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", True), ("CUDA_HOME=/usr/local/cuda", False)])
def test_memory_that_cannot_be_mapped_under_mps_is_a_matter_of_mps(line, expected):
    assert (first(f"{line}\nrank 1: Mapping of buffer object failed (error 205)\n") == "mps_unreachable") is expected


@pytest.mark.parametrize(("peer", "expected"), [("scan-10-61-200-7.corp", True), ("198.51.100.9", False)])
def test_peer_outside_the_networks_of_the_job_may_be_a_stranger(peer, expected):
    text = (
        "n1:8:9 [0] NCCL INFO Bootstrap : Using eno1:198.51.100.2<0>\n"
        f"n1:8:9 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer {peer}<51214>\n"
    )
    assert (points(text, "foreign_connections") > 0) is expected


@pytest.mark.parametrize(("error", "severity"), [("RuntimeError: CUDA error: unspecified launch failure", "warning"), ("KeyError: 'input_ids'", "error")])
def test_exception_of_a_library_makes_a_failed_rank_a_warning_at_most(error, severity):
    text = (
        f'[rank2]: Traceback (most recent call last):\n[rank2]:   File "/w/train.py", line 12, in <module>\n[rank2]: {error}\n'
        "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:544] Connection closed by peer [198.51.100.3]:11843\n"
    )
    cause = diagnose_text(text)["causes"][0]
    assert (cause["cause"], cause["severity"]) == ("rank_failed", severity)
