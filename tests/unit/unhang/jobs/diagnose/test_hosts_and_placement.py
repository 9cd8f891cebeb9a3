"""Rules over several hosts or processes: networks that hosts do not share, plugins of some hosts only, one GPU for all, a GPU for each task."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

BOOTSTRAP = "{host}:71:71 [0] NCCL INFO Bootstrap : Using {interface}:{address}<0>\n"
NETWORK = "{host}:71:80 [0] NCCL INFO Using network {name}\n"
REFUSED = "w2:71:80 [0] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.20.0.4<45511> failed : Connection refused\n"
WAITS = (
    "[rank1]:[E418 11:41:09.4 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600037 milliseconds before timing out.\n"
)
APP = "{pid}, 00000000:{bus}:00.0, 411 MiB\n"


def _reasons(tmp_path, text):
    """(cause, why) of all evidence that the diagnosis lists."""
    log = tmp_path / "job.log"
    log.write_text(text, encoding="utf-8")
    return {(cause["cause"], line["says"].split(",")[0]) for cause in diagnose([str(log)])["causes"] for line in cause["evidence"]}


@pytest.mark.parametrize(("second", "failed", "shown"), [
    ("172.17.0.3", REFUSED, True),
    ("10.20.0.9", REFUSED, False),
    ("172.17.0.3", "", False),
    ("198.51.100.7", REFUSED, False),
])  # fmt: skip
def test_hosts_that_meet_in_different_private_networks_and_cannot_connect_chose_wrong(tmp_path, second, failed, shown):
    text = BOOTSTRAP.format(host="w1", interface="eno1", address="10.20.0.4") + BOOTSTRAP.format(host="w2", interface="docker0", address=second) + failed
    assert any(cause == "wrong_interface" and why.startswith("ranks of different hosts meet over") for cause, why in _reasons(tmp_path, text)) == shown


@pytest.mark.parametrize(("host", "name", "shown"), [("w2", "SHARP", True), ("w2", "IB", False), ("w1", "SHARP", False)])
def test_hosts_that_name_different_networks_have_different_plugins(tmp_path, host, name, shown):
    text = NETWORK.format(host="w1", name="IB") + NETWORK.format(host=host, name=name) + WAITS
    assert (
        any(cause == "net_plugin_not_loaded" and why.startswith("hosts of one job use different networks") for cause, why in _reasons(tmp_path, text)) == shown
    )


@pytest.mark.parametrize(("second", "shown"), [("3B", True), ("AF", False)])
def test_processes_that_all_hold_one_gpu_and_no_other_did_not_choose_theirs(tmp_path, second, shown):
    text = APP.format(pid=5120, bus="3B") + APP.format(pid=5121, bus=second) + WAITS
    assert any(cause == "rank_device_mapping" and why.startswith("2 processes hold GPU 00000000:3B") for cause, why in _reasons(tmp_path, text)) == shown


def test_processes_that_hold_one_gpu_in_a_job_that_runs_are_no_evidence(tmp_path):
    assert _reasons(tmp_path, APP.format(pid=5120, bus="3B") + APP.format(pid=5121, bus="3B")) == set()


@pytest.mark.parametrize(("way", "shown"), [("SHM/direct/direct", True), ("P2P/CUMEM", False)])
def test_tasks_that_see_one_gpu_each_and_go_through_host_memory_are_confined_too_narrowly(tmp_path, way, shown):
    text = "#SBATCH --gpus-per-task=1\n" + "".join(f"w1:{70 + rank}:80 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] via {way}\n" for rank in range(2)) + WAITS
    assert any(cause == "container_gpu_access" and why == "each task sees one GPU only" for cause, why in _reasons(tmp_path, text)) == shown


@pytest.mark.parametrize(("call", "limit", "shown"), [("ibv_create_cq", "64", True), ("ibv_open_device", "64", False), ("ibv_create_cq", "unlimited", False)])
def test_queues_that_cannot_be_made_under_a_low_limit_of_locked_memory_are_the_limits(tmp_path, call, limit, shown):
    log = tmp_path / "job.log"
    log.write_text(f"c4:71:80 [0] misc/ibvwrap.cc:127 NCCL WARN Call to {call} failed\n$ ulimit -l\n{limit}\n", encoding="utf-8")
    assert (diagnose([str(log)])["causes"][0]["cause"] == "memlock_ulimit") == shown


@pytest.mark.parametrize(("tasks", "ranks", "shown"), [(8, 8, True), (1, 8, False), (8, 1, False)])
def test_tasks_that_each_start_a_launcher_for_the_whole_node_take_each_others_port(tmp_path, tasks, ranks, shown):
    taken = "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, code: -98, name: EADDRINUSE\n"
    text = f"#SBATCH --ntasks-per-node={tasks}\nsrun torchrun --nnodes 4 --nproc_per_node {ranks} train.py\n{taken}"
    found = {cause for cause, why in _reasons(tmp_path, text) if why.startswith("each of several tasks on a node starts a launcher")}
    assert found == ({"launch_mismatch"} if shown else set())


DONE = "n1:{pid}:90 [{gpu}] NCCL INFO comm 0x7f1a rank {rank} nranks 2 cudaDev {gpu} busId 20000{gpu} - Init COMPLETE\n"


@pytest.mark.parametrize(("gpus", "then", "shown"), [((0, 1), 2, True), ((0, 1), 1, False), ((1, 1), 1, False)])
def test_process_that_changes_its_gpu_between_communicators_had_a_guessed_one(tmp_path, gpus, then, shown):
    text = "".join(DONE.format(pid=70 + rank, gpu=gpu, rank=rank) for rank, gpu in enumerate(gpus))
    text += f"n1:71:95 [{then}] NCCL INFO threadThresholds 8/8/64 | 24/8/64 | 8/8/64\nncclSystemError: System call (socket, malloc, munmap, etc) failed.\n"
    assert any(cause == "rank_device_mapping" and why.startswith("process 71 used") for cause, why in _reasons(tmp_path, text)) == shown


def test_process_of_several_gpus_changes_none(tmp_path):
    text = "".join(DONE.format(pid=70, gpu=gpu, rank=gpu) for gpu in range(2)) + "n1:70:95 [1] NCCL INFO threadThresholds 8/8/64 | 24/8/64 | 8/8/64\n"
    assert not any(why.startswith("process 70 used") for _, why in _reasons(tmp_path, text))


@pytest.mark.parametrize(("machines", "cause"), [(2, "launch_mismatch"), (1, "port_in_use")])
def test_launch_on_two_machines_without_a_hostfile_is_two_jobs(tmp_path, machines, cause):
    log = tmp_path / "job.log"
    log.write_text(
        f"$ accelerate launch --num_processes 8 --num_machines {machines} --machine_rank 0 a.py\n"
        "[WARNING] [runner.py:196:fetch_hostfile] Unable to find hostfile, will proceed with training with local resources only.\n"
        "RuntimeError: The server socket has failed to bind to [::]:23456 (errno: 98 - Address already in use).\n",
        encoding="utf-8",
    )
    assert diagnose([str(log)])["causes"][0]["cause"] == cause


@pytest.mark.parametrize(("rule", "provider", "shown"), [("to 0.0.0.0/0", "efa", True), ("to itself", "efa", False), ("to 0.0.0.0/0", "tcp", False)])
def test_rule_for_addresses_does_not_let_efa_pass(tmp_path, rule, provider, shown):
    text = (
        f"n1:7:9 [0] NCCL INFO NET/OFI Selected Provider is {provider} (found 4 nics)\n"
        "n1:7:9 [0] NCCL WARN NET/OFI Unable to insert remote address into address vector for device 1. RC: 0\n"
        f"# reporter: the security group lets everything out {rule}\n"
    )
    assert any(cause == "firewall_ports" and "rule is for addresses" in why for cause, why in _reasons(tmp_path, text)) == shown


@pytest.mark.parametrize(("rank", "shown"), [(1, True), (0, False)])
def test_rank_that_has_another_gpu_in_its_second_communicator_had_a_guessed_one(tmp_path, rank, shown):
    text = DONE.format(pid=71, gpu=1, rank=1) + DONE.format(pid=71, gpu=2, rank=rank) + "ncclSystemError: System call (socket, malloc, munmap, etc) failed.\n"
    assert any(cause == "rank_device_mapping" and why.startswith("process 71 used") for cause, why in _reasons(tmp_path, text)) == shown


@pytest.mark.parametrize(("second", "shown"), [("1", True), ("2", False), ("0-63", False)])
def test_workers_that_print_one_and_the_same_core_share_it(tmp_path, second, shown):
    text = f"core affinity for PID 884147: 1\ncore affinity for PID 884145: {second}\n"
    assert (("cpu_affinity", "several processes are bound to one and the same CPU") in _reasons(tmp_path, text)) == shown
