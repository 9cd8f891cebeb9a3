"""What a report denies or rules out is no evidence for it: sentences with a negation, limits and memory that are there, and attempts that changed nothing."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

NO_PORT = "RuntimeError: Address already in use\n"
REFUSED = "[2025-06-16 17:17:39] n1:318:3584 [5] misc/ibvwrap.cc:183 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n"
BUFFERS = "n1:318:3584 [5] NCCL INFO NCCL_BUFFSIZE set by environment to {}.\n"
NO_FORK = "OSError: [Errno 12] Cannot allocate memory\n"
FULL = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 140.06 GiB of which 44.56 MiB is free. "


def loud(text):
    return [cause["cause"] for cause in diagnose_text(text)["causes"] if cause["severity"] != "info"]


@pytest.mark.parametrize(
    ("denied", "told", "cause"),
    [
        ("nvidia-smi on the second node shows no process at all.", "nvidia-smi shows no process, but 20 GB are in use.", "orphan_processes_hold_gpu"),
        ("The process list is empty.", "The process list is empty, and 20 GB of memory are still taken.", "orphan_processes_hold_gpu"),
        ("The firewall is off on both machines.", "With the firewall off it works.", "firewall_ports"),
        ("The security group allows all traffic.", "The firewall blocks the high ports.", "firewall_ports"),
    ],
)
def test_what_a_sentence_denies_is_no_evidence_for_it(denied, told, cause):
    hangs = "The job hangs at the start.\n"
    assert loud(hangs + denied) == []
    assert cause in loud(hangs + told)


@pytest.mark.parametrize(
    "report",
    [
        "It hangs at the start on 8 GPUs. ls /dev/shm shows eight different prefixes.",
        "It hangs. I changed the NCCL image from 2.18.3 to 2.20.5, the prefixes of the ranks are the same.",
        "After the first epoch everything changes to another rank.",
    ],
)
def test_part_of_a_longer_word_is_no_effect(report):
    assert diagnose_text(f"{report}\n")["causes"] == []


def test_hint_of_torch_to_a_variable_is_no_setting():
    busy = "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
    hint = "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n"
    assert [one["cause"] for one in diagnose_text(busy + hint)["causes"]] == ["rank_device_mapping"]


def test_name_that_does_not_resolve_is_neither_a_firewall_nor_an_interface():
    unknown = "[W socket.cpp:755] [c10d] The IPv4 network addresses of (a.example, 40417) cannot be retrieved (gai error: -2 - Name or service not known).\n"
    late = "[W1122 10:14:02 socket.cpp:755] [c10d] The client socket has failed to connect to [a.example]:40417 (errno: 110 - Connection timed out).\n"
    assert loud(late + unknown)[:1] == ["dns_hostname"] and "firewall_ports" not in loud(late + unknown)
    assert "firewall_ports" in loud(late)
    assert "firewall_ports" not in loud(f"$ torchrun --nnodes=1 train.py\n{late}")
    assert "firewall_ports" not in loud(f"It fails with one process too. No firewall on this machine.\n{late}")


def test_port_that_the_first_of_several_tasks_took_is_not_held_by_another_job():
    refused = "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
    alone = "".join(f"{task}: Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1\n" for task in range(4))
    assert loud(alone + refused)[:1] == ["launch_mismatch"] and "port_in_use" not in loud(alone + refused)
    assert loud(alone[: len(alone) // 4] + refused) == ["port_in_use"]


def test_test_of_bandwidth_that_ended_is_not_healthy_for_somebody_who_finds_it_slow():
    ended = "# Avg bus bandwidth    : 93.9\n"
    assert diagnose_text(ended)["outcome"]["word"] == "healthy"
    assert diagnose_text(f"Bus bandwidth drops to about half across two nodes.\n{ended}")["outcome"]["word"] == "no_end"


def test_locked_memory_without_a_limit_is_not_too_little():
    assert loud(REFUSED) == ["memlock_ulimit"]
    assert loud(f"{REFUSED}The container is started with --ulimit memlock=-1 and --shm-size 64g.\n") == []
    assert loud(f"{REFUSED}$ grep memlock /etc/security/limits.conf\n* soft memlock unlimited\n") == ["memlock_ulimit"]  # a file, not the process
    assert loud(f"{REFUSED}docker run --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 ...\n") == ["memlock_ulimit"]  # advice of an image


@pytest.mark.parametrize(("size", "named"), [("1073741824", True), ("8388608", False)])
def test_buffers_of_many_times_the_default_are_a_reason_for_refused_memory(size, named):
    assert ("env_var_misconfig" in loud(BUFFERS.format(size) + REFUSED)) is named
    assert "env_var_misconfig" not in loud(BUFFERS.format(size) + "the job hangs\n")


def test_host_with_much_free_memory_did_not_run_out_of_it():
    assert loud(NO_FORK) == ["oom"]
    assert loud(f"{NO_FORK}free -g shows more than 900 GB free on each of the nodes, so it is not that.\n") == []
    assert loud(f"{NO_FORK}There are only 12 GB free on the disk of the node.\n") == ["oom"]
    killed = "[ 91.2] Out of memory: Killed process 5192 (python) total-vm:221011240kB, anon-rss:142718332kB, file-rss:91200kB\n"
    assert loud(f"{killed}free -g shows more than 900 GB free on each of the nodes, so it is not that.\n") == ["oom"]


def test_port_that_is_in_use_whichever_is_chosen_is_taken_by_the_job_itself():
    assert loud(NO_PORT) == ["port_in_use"]
    assert loud(f"but changing the master_port does not help\n{NO_PORT}") == ["launch_mismatch"]
    assert loud(f"but with another port it works\n{NO_PORT}") == ["port_in_use"]


def test_equal_parts_of_a_full_gpu_are_held_by_ranks_that_took_the_same_one():
    equal = "Process 81231 has 17.92 GiB memory in use. Process 81232 has 17.44 GiB memory in use. Process 81233 has 17.40 GiB memory in use.\n"
    assert loud(FULL + equal) == ["rank_device_mapping"]
    assert loud(FULL + equal.replace("17.44", "3.11")) == ["oom"]
