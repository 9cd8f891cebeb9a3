"""What an earlier run left (memory, stores), devices that are not there, and networks that do not fit: each with a log in which the rule must be silent."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

BARRIER = (
    "2026-02-11 07:14:33,190 INFO Waiting in store based barrier to initialize process group for rank: 2, key: store_based_barrier_key:1 "
    "(world_size=4, worker_count={joined}, timeout=0:30:00)\n"
)
LAUNCHED = "[kim@{host} run]$ torchrun --nproc_per_node=8 --nnodes={nodes} --node_rank={rank} --rdzv_endpoint=gpu-a:29500 train.py\n"
EXCHANGE = (
    "[rank{rank}]:[E503 11:51:00.14 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, "
    "OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600023 milliseconds before timing out.\n"
)
REFUSED = "RuntimeError: CUDA out of memory. Tried to allocate {wanted} (GPU 2; 10.76 GiB total capacity; 1.02 GiB already allocated; 26.88 MiB free; "
RESERVED = "1.14 GiB reserved in total by PyTorch)\n"
FAILED = "mxnet.base.MXNetError: [10:02:13] src/storage/./pooled_storage_manager.h:161: cudaMalloc failed: out of memory\n"
LOAD = "| 34%   41C    P8    20W / 250W |  {used}MiB / 10989MiB |      0%      Default |\n"
NO_PROCESS = "|  No running processes found                                                 |\n"
SLICE = "  MIG 2g.10gb Device {n}: (UUID: MIG-GPU-11111111-2222-3333-4444-555555555555/{n}/0)\n"
ORDINAL = "RuntimeError: cuda runtime error (101) : invalid device ordinal at torch/csrc/cuda/Module.cpp:33\n"
LINKS = (
    "2: ens5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {host} qdisc mq state UP mode DEFAULT group default qlen 1000\n"
    "4: docker_gwbridge: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {bridge} qdisc noqueue state UP mode DEFAULT group default\n"
)
BOOTSTRAP = "# reporter: two servers freeze at the start\nspark-a:97:97 [0] NCCL INFO Bootstrap: Using enp1s0f0np0:192.168.177.11<0>\n"
LISTENER = 'LISTEN 0      128     {address}:40117      0.0.0.0:*    users:(("python3.12",pid=5120,fd=64))\n'
SET = "{host}:52:52 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =ens2f0,\n"
NO_INTERFACE = SET + "{host}:52:52 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n"
UP = "$ ip -br -4 a\nens2f0           UP             198.51.100.3/24\n"


def _causes(tmp_path, text):
    log = tmp_path / "job.log"
    log.write_text(text, encoding="utf-8")
    return [cause["cause"] for cause in diagnose([str(log)])["causes"] if cause["severity"] != "info"]


@pytest.mark.parametrize(("joined", "stale"), [(31, True), (4, False), (3, False)])
def test_store_with_more_workers_than_the_world_is_of_an_earlier_run(tmp_path, joined, stale):
    assert ("stale_store" in _causes(tmp_path, BARRIER.format(joined=joined))[:1]) is stale


@pytest.mark.parametrize(
    ("nodes", "second", "ranks"),
    [(2, "gpu-b", (0, 0)), (2, "gpu-b", (0, 1)), (2, "gpu-a", (0, 0)), (1, "gpu-b", (0, 0))],
    ids=["twice", "each its own", "started again", "two jobs of one node"],
)
def test_two_hosts_with_one_node_number_are_a_wrong_launch(tmp_path, nodes, second, ranks):
    text = LAUNCHED.format(host="gpu-a", nodes=nodes, rank=ranks[0]) + LAUNCHED.format(host=second, nodes=nodes, rank=ranks[1])
    twice = nodes == 2 and second == "gpu-b" and ranks == (0, 0)
    assert ("launch_mismatch" in _causes(tmp_path, text)[:1]) is twice


def test_number_that_was_corrected_is_no_wrong_launch(tmp_path):
    text = "".join(LAUNCHED.format(host=host, nodes=2, rank=rank) for host, rank in (("gpu-a", 0), ("gpu-b", 0), ("gpu-b", 1)))
    assert "launch_mismatch" not in _causes(tmp_path, text)


@pytest.mark.parametrize(
    ("op", "sizes", "differ"),
    [("ALLTOALL", (0, 884736), True), ("ALLTOALL", (4096, 884736), False), ("ALLREDUCE", (0, 884736), True), ("ALLTOALL", (0, 0), False)],
)
def test_rank_that_takes_part_with_nothing_disagrees_with_the_others(tmp_path, op, sizes, differ):
    text = "".join(EXCHANGE.format(rank=rank, op=op, numel=numel) for rank, numel in enumerate(sizes))
    assert ("rank_desync_app" in _causes(tmp_path, text)[:1]) is differ


@pytest.mark.parametrize(("wanted", "first"), [("88.00 MiB", "orphan_processes_hold_gpu"), ("92.00 GiB", "oom")])
def test_memory_of_others_is_the_cause_unless_the_request_is_larger_than_that(tmp_path, wanted, first):
    assert _causes(tmp_path, REFUSED.format(wanted=wanted) + RESERVED)[0] == first


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (FAILED + LOAD.format(used=10903) + NO_PROCESS, "orphan_processes_hold_gpu"),
        (FAILED + LOAD.format(used=611) + NO_PROCESS, "oom"),
        (LOAD.format(used=10903) + NO_PROCESS + FAILED, "oom"),
    ],
    ids=["full afterwards", "empty afterwards", "full before"],
)
def test_full_gpu_without_a_process_after_the_failure_is_held_by_another(tmp_path, text, first):
    assert _causes(tmp_path, text)[0] == first


def test_second_device_of_a_job_on_mig_slices_is_not_there(tmp_path):
    assert _causes(tmp_path, SLICE.format(n=0) + SLICE.format(n=1) + ORDINAL)[0] == "mig_unsupported"
    assert _causes(tmp_path, ORDINAL)[0] == "rank_device_mapping"


@pytest.mark.parametrize(
    ("told", "host", "bridge", "found"),
    [("two VMs", 1460, 1500, True), ("two VMs", 1500, 1500, False), ("two VMs", 9000, 1500, False), ("a VM", 1460, 1500, False)],
)
def test_network_of_containers_with_larger_packets_than_the_hosts(tmp_path, told, host, bridge, found):
    text = f"# reporter: {told} with 8 L4 each, it stops at the first barrier\n" + LINKS.format(host=host, bridge=bridge)
    assert ("mtu_mismatch" in _causes(tmp_path, text)[:1]) is found


@pytest.mark.parametrize(("address", "found"), [("192.168.1.57", True), ("192.168.177.11", False), ("127.0.0.1", False)])
def test_listener_in_another_network_than_nccl_has_chosen_its_address_by_itself(tmp_path, address, found):
    assert ("wrong_interface" in _causes(tmp_path, BOOTSTRAP + LISTENER.format(address=address))[:1]) is found


def test_interface_that_another_host_uses_is_missing_on_this_one(tmp_path):
    named = NO_INTERFACE.format(host="ps-x") + UP
    assert _causes(tmp_path, named)[0] == "env_var_misconfig"
    assert _causes(tmp_path, "srv-a:25:25 [0] NCCL INFO Bootstrap : Using ens2f0:198.51.100.3<0>\n" + named)[0] == "wrong_interface"
