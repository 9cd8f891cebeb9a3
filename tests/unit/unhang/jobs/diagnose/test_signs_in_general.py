"""Signs that several lines give together: who holds a GPU, which kernel a module was built for, which NCCL is loaded, a firewall that is on."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.02 GiB is free. "


def first(text: str) -> str | None:
    causes = diagnose_text(text)["causes"]
    return causes[0]["cause"] if causes else None


@pytest.mark.parametrize(
    ("own", "cause"),
    [("75.10", "oom"), ("1.01", "orphan_processes_hold_gpu")],
)
def test_process_named_by_number_is_the_failed_one_if_its_allocator_holds_most(own, cause):
    assert first(f"{FULL}Process 12 has 78.08 GiB memory in use. Of the allocated memory {own} GiB is allocated by PyTorch, and 1 GiB is reserved") == cause


@pytest.mark.parametrize(("mib", "cause"), [("71234", "orphan_processes_hold_gpu"), ("1021", "oom")])
def test_large_process_without_a_name_holds_the_memory_that_is_missing(mib, cause):
    text = f"|    0   N/A  N/A   44120      C   [Not Found]      {mib}MiB |\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert first(text) == cause


@pytest.mark.parametrize(("running", "expected"), [("6.8.0-71-generic", True), ("6.8.0-60-generic", False)])
def test_module_built_for_another_kernel_is_not_loaded(running, expected):
    text = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        f"$ dkms status\nnvidia/550.90.07, 6.8.0-60-generic, x86_64: installed\n$ uname -r\n{running}"
    )
    points = next(one["points"] for one in diagnose_text(text)["causes"] if one["cause"] == "kernel_module_not_loaded")
    assert (points >= 4) is expected


@pytest.mark.parametrize(("built", "expected"), [("(2, 21, 5)", True), ("(2, 14, 3)", False)])
def test_torch_that_was_built_with_another_nccl_shows_a_conflict(built, expected):
    text = f"n1:8:9 [0] NCCL INFO NCCL version 2.14.3+cuda11.7\n>>> torch.cuda.nccl.version()\n{built}\nRuntimeError: NCCL error: unhandled system error"
    assert ("nccl_version_conflict" in [one["cause"] for one in diagnose_text(text)["causes"] if one["points"] >= 4]) is expected


@pytest.mark.parametrize(("state", "points"), [("running", 5), ("not running", 0)])
def test_firewall_that_is_on_counts_where_connections_fail(state, points):
    text = f"$ firewall-cmd --state\n{state}\nn1:8:9 [0] NCCL WARN socketStartConnect: Connect to 198.51.100.4<41000> failed : Connection timed out"
    without = "n1:8:9 [0] NCCL WARN socketStartConnect: Connect to 198.51.100.4<41000> failed : Connection timed out"
    one, other = (next(c["points"] for c in diagnose_text(it)["causes"] if c["cause"] == "firewall_ports") for it in (text, without))
    assert (one - other >= 2) is (points > 0)


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False)])
def test_rdma_that_a_variable_switches_off_is_a_matter_of_the_variable(value, expected):
    text = (
        f"n1:8:9 [0] NCCL INFO NCCL_IB_DISABLE set by environment to {value}.\nn1:8:9 [0] NCCL INFO NET/Socket : Using [0]bond0:198.51.100.3<0>\n"
        "# reporter: all-reduce between the nodes is very slow"
    )
    assert (first(text) == "env_var_misconfig") is expected


@pytest.mark.parametrize(("type_", "expected"), [("p5.48xlarge", True), ("g5.48xlarge", False)])
def test_instance_with_amazons_adapter_and_sockets_lacks_its_plugin(type_, expected):
    text = f"# reporter: two {type_}\nn1:8:9 [0] NCCL INFO NET/Socket : Using [0]ens5:198.51.100.3<0>\nn1:8:9 [0] NCCL INFO Using network Socket"
    assert ("net_plugin_not_loaded" in [one["cause"] for one in diagnose_text(text)["causes"] if one["points"] >= 4]) is expected


@pytest.mark.parametrize(("value", "expected"), [("mlx5_9", True), ("mlx5", False), ("=mlx5_1:1", False), ("^mlx5_9", False)])
def test_adapter_of_the_environment_that_the_machine_does_not_have_is_a_matter_of_the_variable(value, expected):
    text = (
        f"n1:8:9 [0] NCCL INFO NCCL_IB_HCA set to {value}\nn1:8:9 [0] NCCL INFO NET/IB : No device found.\n"
        "$ ibdev2netdev\nmlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 ==> ib1 (Up)\n"
    )
    assert (first(text) == "env_var_misconfig") is expected


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[Errno 28] No space left on device\n$ ls /dev/shm | wc -l\n41231\ntmpfs            126G  126G     0 100% /dev/shm\n", "shm_leftovers"),
        ("[Errno 28] No space left on device: '/data/run1/ckpt.pt'\n", "disk_full"),
    ],
)
def test_full_memory_of_segments_is_no_full_disk(text, cause):
    assert first(text) == cause
