"""What a line says by itself: the rendezvous and not NCCL, a name without an address, a GPU's own
counter, an Xid of a program, a test that was slow."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

NO_ANSWER = (
    "[W socket.cpp:752] [c10d] The client socket has failed to connect to [{}]:29500 (errno: {}).\n"
)
NO_ADDRESS = (
    "[W socket.cpp:697] [c10d] The IPv{} network addresses of (mastr-01, 29500) cannot be retrieved"
    " (gai error: -2 - Name or service not known).\n"
)
TIMED_OUT = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while"
    " trying to connect to ({}, 29500).\n"
)
SMI = (
    "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |\n"
)
GPU = (
    "|   1  NVIDIA H100 80GB HBM3          On  |   00000000:3B:00.0 Off |                {:>4} |\n"
)
TEST = """{devices}#       size         count      type   redop    root     time   algbw   busbw #wrong
{rows}# Out of bounds values : 0 OK
# Avg bus bandwidth    : {average}
"""
DEVICE = (
    "#  Rank {rank:2} Group  0 Pid     12 on      gpu01 device {rank:2} [0x1{rank}] NVIDIA H100"
    " {more}80GB HBM3\n"
)
ROW = "{size:>12}        262144     float     sum      -1    100.0    {busbw}    {busbw}      0\n"


def first_of(text):
    answer = diagnose_text(text)
    return answer["outcome"]["word"], next(
        ((cause["title"], cause["certainty"], cause["where"]) for cause in answer["causes"]), None
    )


@pytest.mark.parametrize(
    ("host", "error"),
    [("node-1", "110 - Connection timed out"), ("10.99.0.5", "113 - No route to host")],
)
def test_a_rendezvous_without_an_answer_is_not_called_nccl(host, error):
    word, (title, certainty, _) = first_of(NO_ANSWER.format(host, error) + TIMED_OUT.format(host))
    assert (word, certainty) == ("cause", "likely") and "rendezvous at MASTER_ADDR" in title


def test_a_name_without_any_address_does_not_resolve_and_one_without_ipv6_is_left_open():
    word, (title, certainty, named) = first_of(
        NO_ADDRESS.format(6) + NO_ADDRESS.format(4) + TIMED_OUT.format("mastr-01")
    )
    assert (word, title, certainty) == (
        "cause",
        "The master's name does not resolve",
        "likely",
    ) and "host mastr-01" in named
    assert first_of(NO_ADDRESS.format(6) + TIMED_OUT.format("mastr-01"))[1][:2] == (
        "The master's name has no IPv6 address, or does not resolve",
        "possible",
    )


def test_uncorrected_errors_in_the_table_of_nvidia_smi_are_no_healthy_machine():
    word, (title, _, named) = first_of(SMI + GPU.format(12))
    assert (
        word != "healthy"
        and title.startswith("A GPU, its memory")
        and named == ["GPU or device at PCI 00000000:3B:00.0"]
    )
    assert [first_of(SMI + GPU.format(count))[1] for count in (0, "N/A", "Off")] == [None] * 3


@pytest.mark.parametrize(
    ("temperature", "load", "is_healthy"),
    [(93, 0, False), (81, 4, False), (80, 0, True), (93, 98, True), (45, 0, True)],
)
def test_a_gpu_that_is_hot_without_work_is_a_cause(temperature, load, is_healthy):
    load_row = (
        f"| N/A   {temperature}C    P0              60W /  400W |   70000MiB /  81920MiB |    "
        f" {load:>2}%      Default |\n"
    )
    _, cause = first_of(SMI + GPU.format(0) + load_row)
    assert (cause is None) is is_healthy
    assert is_healthy or cause[0] == "A GPU without work is as hot as one under load"


def test_both_ranks_on_one_gpu_are_named():
    assert first_of("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 19000\n")[1][
        2
    ] == ["rank 0", "rank 1"]


@pytest.mark.parametrize("code", [43, 80, 151])
def test_an_xid_without_a_cause_is_a_failure_and_leads_to_its_meaning(code):
    outcome = diagnose_text(
        f"[1000.0] NVRM: Xid (PCI:0000:3b:00): {code}, pid=4242, name=python, Ch 00000008\n"
    )["outcome"]
    assert outcome["word"] == "failure" and f"unhang explain xid {code}" in outcome["why"]


def collectives(busbw, average, size=1 << 27, gpus=8, more=""):
    devices = "".join(DEVICE.format(rank=rank, more=more) for rank in range(gpus))
    return diagnose_text(
        TEST.format(devices=devices, rows=ROW.format(size=size, busbw=busbw), average=average)
    )


def test_a_test_of_collectives_whose_processes_ran_alone_is_not_healthy():
    answer = collectives("0.00", "0")
    assert answer["outcome"]["word"] == "no_end" and "ran by itself" in answer["outcome"]["why"]
    assert "libmpi" in answer["collect_next"][0]


def test_a_test_far_below_what_its_gpus_reach_is_slow_and_others_are_left_alone():
    slow = collectives("3.46", "2.58")
    assert (
        slow["outcome"]["word"] == "no_end"
        and "3.46 GB/s are far below the 345" in slow["outcome"]["why"]
    )
    assert not any(
        "DistributedSampler" in step or "py-spy" in step for step in slow["collect_next"]
    )
    healthy = [
        collectives("346.0", "200.1"),
        collectives("3.46", "2.58", size=1 << 20),
        collectives("3.46", "2.58", gpus=3),
        collectives("30.1", "20.0", more="PCIe "),
    ]
    assert {answer["outcome"]["word"] for answer in healthy} == {"healthy"}


def test_what_is_no_pytorch_is_not_asked_for_its_wrappers():
    told = (
        "The simulation crashes with 4 GPUs\n\nOur Kokkos code ends with an error about a bad"
        " address in its halo exchange, on two GPUs it does not.\n"
    )
    steps = diagnose_text(told)["collect_next"]
    assert steps and not any("model.module" in step for step in steps)


OOM = (
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.70 GiB total capacity; 21.31 GiB"
    " already allocated)"
)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (f"2026-01-02 10:00:00,123 - ERROR - 未捕获的异常: {OOM}", "oom"),
        (f"训练无法继续 RuntimeError: {OOM}", "oom"),
        (f"rank 3: no heartbeat, {OOM}", "oom"),
        ("NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.", "xid_hardware"),
    ],
)
def test_line_of_a_program_is_that_fault_whatever_stands_before_it(line, cause):
    assert diagnose_text(f"{line}\n")["causes"][0]["cause"] == cause
