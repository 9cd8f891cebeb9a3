"""What a container was given, libraries in front of CUDA, processes that nobody started, and scans that fill a store's memory."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text


def points(text: str, cause: str) -> float:
    return next((one["points"] for one in diagnose_text(text)["causes"] if one["cause"] == cause), 0.0)


def first(text: str) -> str | None:
    causes = diagnose_text(text)["causes"]
    return causes[0]["cause"] if causes else None


UNKNOWN = "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES\n"


@pytest.mark.parametrize(
    ("entered", "listed", "cause"),
    [
        ("$ podman run --rm -it --device nvidia.com/gpu=all ml:1 bash\n", "/dev/nvidia0  /dev/nvidiactl\n", "container_gpu_access"),
        ("", "/dev/nvidia0  /dev/nvidiactl\n", "kernel_module_not_loaded"),
    ],
)
def test_missing_uvm_device_is_a_matter_of_the_container_only_inside_one(entered, listed, cause):
    assert first(entered + "$ ls /dev/nvidia*\n" + listed + UNKNOWN) == cause


OLD = "c1: Test CUDA failure common.cu:892 'CUDA driver version is insufficient for CUDA runtime version'\n"


@pytest.mark.parametrize(
    ("start", "cause"),
    [
        ("$ docker run --rm -it -v /data:/data trainer:12 bash\n", "container_gpu_access"),
        ("$ docker run --rm -it --gpus all trainer:12 bash\n", "cuda_driver_too_old"),
        ("$ docker run --rm -it --runtime=nvidia trainer:12 bash\n", "cuda_driver_too_old"),
        ("", "cuda_driver_too_old"),
    ],
)
def test_old_driver_in_a_container_without_gpus_is_no_old_driver(start, cause):
    assert first(start + OLD) == cause


HIDDEN = "WARNING [custom_all_reduce.py:165] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.\n"


@pytest.mark.parametrize(("preloaded", "more"), [("/usr/local/vgpu/libvgpu.so\n", True), ("", False)])
def test_library_in_front_of_cuda_hides_peers(preloaded, more):
    assert (points("$ cat /etc/ld.so.preload\n" + preloaded + HIDDEN, "cuda_interposer_hang") >= 4) is more


JAX = """Traceback (most recent call last):
  File "train.py", line 9, in main
    jax.distributed.initialize(coordinator_address=address, num_processes=count, process_id=number)
jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:
:{{"description":"Error received from peer ipv4:{host}:7777","grpc_message":"Barrier timed out. Barrier_id: PjRT_Client_Connect."}}
"""


@pytest.mark.parametrize(("host", "cause"), [("127.0.0.1", "launch_mismatch"), ("10.0.0.7", "firewall_ports")])
def test_coordinator_on_the_same_host_is_behind_no_firewall(host, cause):
    assert first(JAX.format(host=host)) == cause


SHORT = "terminate called after throwing an instance of 'std::bad_alloc'\n"
SHORT += "kernel: Memory cgroup out of memory: Killed process 811 (python) total-vm:2098812220kB, anon-rss:131020412kB\n"


@pytest.mark.parametrize(
    ("said", "cause"),
    [("# reporter: it ends whenever the security team runs nmap\n", "foreign_connections"), ("# reporter: it ends whenever the loader starts\n", "oom")],
)
def test_memory_that_a_scan_takes_belongs_to_the_scan(said, cause):
    assert first(said + SHORT) == cause


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("# reporter: passes with NCCL_RAS_ENABLE=0", True),
        ("NCCL INFO NCCL_RAS_ENABLE set by environment to 0.", False),
        ("# reporter: works with an older NCCL", True),
        ("# reporter: fails with an older NCCL", False),
    ],
)
def test_what_works_without_ras_or_with_another_nccl_is_a_fault_of_nccl(line, counts):
    assert (points(f"Fatal Python error: Segmentation fault\n{line}\n", "nccl_bug") >= 3) is counts


@pytest.mark.parametrize(("name", "more"), [("Unknown Error", True), ("[Not Found]", True), ("python", False)])
def test_process_that_nvidia_smi_cannot_name_holds_the_memory(name, more):
    text = f"RuntimeError: CUDA error: out of memory\n|    0     31794    C   {name}                                 35371MiB |\n"
    assert (points(text, "orphan_processes_hold_gpu") >= 5) is more


@pytest.mark.parametrize(
    ("gpu", "refused", "found"),
    [
        ("# reporter: a VM on vSphere with two vGPUs\n", "RuntimeError: CUDA error: operation not supported\n", True),
        ("|   0  GRID A100D-80C      On  | 00000000:02:00.0 Off |\n", "n:9:9 [1] init.cc:426 NCCL WARN Cuda failure 801 'operation not supported'\n", True),
        ("|   0  NVIDIA A100-SXM4-80GB  On  | 00000000:02:00.0 Off |\n", "RuntimeError: CUDA error: operation not supported\n", False),
        ("# reporter: a VM on vSphere with two vGPUs\n", "RuntimeError: CUDA error: invalid device ordinal\n", False),
        ("# reporter: Volcano's vgpu plugin shares the GPUs\n", "RuntimeError: CUDA error: operation not supported\n", False),
    ],
)
def test_operation_that_cuda_refuses_on_a_virtual_gpu_is_a_feature_that_it_lacks(gpu, refused, found):
    assert (points(gpu + refused, "vgpu_unsupported_feature") >= 4) is found
