"""Rules over addresses of launch and hosts, over settings that switch something off, and over what a person tried: each with near misses."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

BOOTSTRAP = "{host}:71:71 [0] NCCL INFO Bootstrap : Using eth1:{address}<0>\n"
REFUSED = "w2:71:80 [0] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to {address}<45511> failed : Connection refused\n"
SIZE = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=14022, OpType=ALLREDUCE, NumelIn={size}, NumelOut={size}, "
    "Timeout(ms)=600000) ran for 600037 milliseconds before timing out.\n"
)
CHOSEN = "main_process_ip: 10.77.10.61\n[INFO] [runner.py:463:main] Using IP address of 10.0.122.15 for node t-1\n"
HANGS = "# reporter: it hangs after some hundred steps\n"
STEPS = "step 310 loss 4.118 (0.41 s)\n"


@pytest.fixture
def answer(tmp_path):
    """text -> {cause: its standing} of the diagnosis, in the order of its ranks."""

    def of(text):
        log = tmp_path / "job.log"
        log.write_text(text, encoding="utf-8")
        return {cause["cause"]: cause for cause in diagnose([str(log)])["causes"]}

    return of


def _first(causes):
    return next(iter(causes), None)


def _says(causes, part):
    return any(part in line["says"] for cause in causes.values() for line in cause["evidence"])


@pytest.mark.parametrize(("second", "failed", "shown"), [
    ("172.19.0.3", REFUSED.format(address="172.19.0.3"), True),
    ("172.19.0.4", REFUSED.format(address="172.19.0.3"), False),
    ("172.19.0.3", "", False),
])  # fmt: skip
def test_hosts_that_give_one_address_for_themselves_meet_on_a_bridge(answer, second, failed, shown):
    causes = answer(BOOTSTRAP.format(host="w1", address="172.19.0.3") + BOOTSTRAP.format(host="w2", address=second) + failed)
    assert _says(causes, "both give 172.19.0.3 as their own address") == shown
    assert not shown or _first(causes) == "wrong_interface"


@pytest.mark.parametrize(("launch", "failed", "cause"), [
    ("$ torchrun --rdzv-endpoint=10.77.10.61:29500 a.py\n", "10.0.122.15", "wrong_interface"),
    ("main_process_ip: 10.77.10.61\n", "10.0.122.15", "wrong_interface"),
    (CHOSEN + "--master_addr=10.0.122.15\n", "10.0.122.15", "wrong_interface"),
    ("$ torchrun --rdzv-endpoint=10.77.10.61:29500 a.py\n", "10.77.10.61", "firewall_ports"),
    ("$ torchrun --rdzv-endpoint=10.77.10.61:29500 a.py\n", "10.77.4.9", "firewall_ports"),
    ("$ torchrun --rdzv-endpoint=10.77.10.61:29500 a.py\n", "198.51.100.9", "firewall_ports"),
    ("export MASTER_ADDR=10.0.122.15\nmain_process_ip: 10.77.10.61\n", "10.0.122.15", "firewall_ports"),
])  # fmt: skip
def test_connection_that_fails_outside_of_the_networks_of_the_launch_took_the_wrong_interface(answer, launch, failed, cause):
    assert _first(answer(launch + REFUSED.format(address=failed))) == cause


@pytest.mark.parametrize(("address", "hosts", "cause"), [
    ("127.0.1.1", "127.0.1.1\tdesk-b\n", "dns_hostname"),
    ("127.0.1.1", "", "wrong_interface"),
    ("127.0.0.1", "127.0.0.1\tlocalhost\n", "wrong_interface"),
])  # fmt: skip
def test_peer_that_gives_the_address_of_its_own_name_on_loopback_is_a_matter_of_names(answer, address, hosts, cause):
    causes = answer(f"[pair.cc:799] connect [{address}]:27715: Connection refused\n{hosts}")
    assert _first(causes) == cause and ("dns_hostname" in causes) == (address == "127.0.1.1")


@pytest.mark.parametrize("asked", ["gpu-a", "gpu-b"])
def test_host_whose_name_leads_nowhere_needs_no_firewall_to_be_silent(answer, asked):
    causes = answer(
        f"[W socket.cpp:464] [c10d] The IPv6 network addresses of ({asked}, 29500) cannot be retrieved (gai error: -2 - Name or service not known).\n"
        "[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to connect to (gpu-a, 29500).\n"
    )
    assert [line["says"] for line in causes["firewall_ports"]["against"]] == (["the name gpu-a does not resolve"] if asked == "gpu-a" else [])


@pytest.mark.parametrize(("sizes", "desync"), [((1, 500, 500), True), ((500, 500, 500), False)])
def test_rank_that_saved_and_waits_in_another_call_than_the_others_is_no_longer_at_work(answer, sizes, desync):
    text = "Saving model checkpoint to /ckpt/500\n" + "".join(SIZE.format(rank=rank, size=size) for rank, size in enumerate(sizes))
    assert (_first(answer(text)) == "rank_desync_app") == desync


@pytest.mark.parametrize(("branch", "call", "shown"), [
    ("    if accelerator.is_main_process:", "            accelerator.save_state(path)", True),
    ("    if dist.get_rank() == 0:", "        dist.barrier()", True),
    ("    if accelerator.is_main_process:", "    accelerator.save_state(path)", False),
    ("    if accelerator.is_main_process:", "        torch.save(model, path)", False),
    ("    if step == 0:", "        dist.barrier()", False),
])  # fmt: skip
def test_collective_in_a_branch_of_one_rank_is_found_in_the_code_that_is_shown(answer, branch, call, shown):
    assert _says(answer(f"{HANGS}{branch}\n        if step % 10 == 0:\n{call}\n"), "is in a branch that only one rank takes") == shown


@pytest.mark.parametrize(("line", "cause"), [
    ("# reporter: the same job with the MPI alltoall runs to the end\n", "nccl_bug"),
    ("# reporter: it works with gloo\n", "nccl_bug"),
    ("# reporter: with gloo it hangs too\n", "rank_desync_app"),
    ("", "rank_desync_app"),
])  # fmt: skip
def test_job_that_runs_over_another_library_calls_the_same_on_all_ranks(answer, line, cause):
    stall = "W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting\n"
    assert _first(answer(HANGS + line + STEPS + stall)) == cause


@pytest.mark.parametrize(("log", "shown"), [
    ("Upgrade: nvidia-utils-440:amd64 (440.64-0ubuntu3, 440.100-0ubuntu0.20.04.1)\n" + HANGS, True),
    ("2026-03-02 06:11:40 upgrade nvidia-utils-550:amd64 550.54.15-0ubuntu1 550.90.07-0ubuntu1\n" + HANGS, True),
    ("Upgrade: nvidia-container-toolkit:amd64 (1.17.0-1, 1.17.4-1)\n" + HANGS, False),
    ("Upgrade: nvidia-utils-440:amd64 (440.64-0ubuntu3, 440.100-0ubuntu0.20.04.1)\n", False),
])  # fmt: skip
def test_driver_that_the_package_manager_put_in_place_before_the_hang_is_suspected(answer, log, shown):
    assert ("driver_p2p_bug" in answer(log) and _says(answer(log), "the driver's packages went from")) == shown


@pytest.mark.parametrize(("setting", "way", "near", "shown"), [
    ("NCCL_P2P_LEVEL set by environment to LOC", "SHM/direct", "GPU0\t X \tNV12\tNV12\n", True),
    ("NCCL_P2P_DISABLE set by environment to 1.", "SHM/direct", "# reporter: all-reduce is very slow\n", True),
    ("NCCL_P2P_LEVEL set by environment to NVL", "SHM/direct", "GPU0\t X \tNV12\tNV12\n", False),
    ("NCCL_P2P_DISABLE set by environment to 1.", "SHM/direct", "GPU0\t X \tPHB\tPHB\n", False),
    ("NCCL_P2P_DISABLE set by environment to 1.", "SHM/direct", HANGS, False),
])  # fmt: skip
def test_setting_that_switches_off_what_joins_the_gpus_is_named(answer, setting, way, near, shown):
    causes = answer(f"n1:1:2 [0] NCCL INFO {setting}\nn1:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via {way}\n{near}")
    assert ("env_var_misconfig" in causes and causes["env_var_misconfig"]["severity"] != "info") == shown


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False)])
def test_launches_that_wait_for_their_kernel_inside_of_nccl_are_a_matter_of_the_setting(answer, value, shown):
    causes = answer(f"CUDA_LAUNCH_BLOCKING={value}\n{HANGS}#4  0x00007f1ef0b2d118 in ncclLaunchKernel () at enqueue.cc:1104\n")
    assert (_first(causes) == "env_var_misconfig") == shown


def test_loading_that_had_not_ended_at_a_monitored_barrier_is_slow_storage(answer):
    bar = "Loading safetensors checkpoint shards:  97% Completed | 186/191 [08:10<00:13,  2.64s/it]\n"
    barrier = "[rank9]:[E421 13:36:30.1 ProcessGroupGloo.cpp:143] [Rank 9]: Rank 1 failed to pass monitoredBarrier in 480000 ms\n"
    assert _first(answer(bar + barrier)) == "slow_rank_or_io" and _first(answer(bar.replace(" 97%", "100%") + barrier)) != "slow_rank_or_io"


@pytest.mark.parametrize(("size", "cause"), [("64M", "shm_too_small"), ("2.0G", "shm_too_small"), ("16G", "shm_leftovers")])
def test_large_shared_memory_that_is_full_is_no_matter_of_its_size(answer, size, cause):
    assert _first(answer(f"tmpfs            {size}   {size}     0 100% /dev/shm\n")) == cause


UNKNOWN = "ssh: Could not resolve hostname w-1.w: Name or service not known\n"
REACHED = "Warning: Permanently added '{host},198.51.100.28' (ECDSA) to the list of known hosts.\n"


@pytest.mark.parametrize(("log", "alarmed"), [
    (UNKNOWN + REACHED.format(host="w-1.w"), False),
    (UNKNOWN + REACHED.format(host="w-0.w"), True),
    (REACHED.format(host="w-1.w") + UNKNOWN, True),
])  # fmt: skip
def test_a_name_that_is_found_later_is_no_fault(answer, log, alarmed):
    causes = answer(log)
    assert any(cause["severity"] != "info" for cause in causes.values()) is alarmed
