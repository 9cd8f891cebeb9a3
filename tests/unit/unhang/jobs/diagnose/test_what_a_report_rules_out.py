"""What a report denies or rules out is no evidence for it: sentences with a negation, limits and
memory that are there, and attempts that changed nothing."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

FULL = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a"
    " total capacity of 140.06 GiB of which 44.56 MiB is free. "
)


def loud(text):
    return [
        cause["cause"] for cause in diagnose_text(text)["causes"] if cause["severity"] != "info"
    ]


@pytest.mark.parametrize(
    "report",
    [
        "It hangs at the start on 8 GPUs. ls /dev/shm shows eight different prefixes.",
        (
            "It hangs. I changed the NCCL image from 2.18.3 to 2.20.5, the prefixes of the ranks"
            " are the same."
        ),
        "After the first epoch everything changes to another rank.",
    ],
)
def test_part_of_a_longer_word_is_no_effect(report):
    assert diagnose_text(f"{report}\n")["causes"] == []


def test_hint_of_torch_to_a_variable_is_no_setting():
    busy = "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
    hint = "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n"
    assert [one["cause"] for one in diagnose_text(busy + hint)["causes"]] == ["rank_device_mapping"]


def test_equal_parts_of_a_full_gpu_are_held_by_ranks_that_took_the_same_one():
    equal = (
        "Process 81231 has 17.92 GiB memory in use. Process 81232 has 17.44 GiB memory in use."
        " Process 81233 has 17.40 GiB memory in use.\n"
    )
    assert loud(FULL + equal) == ["rank_device_mapping"]
    assert loud(FULL + equal.replace("17.44", "3.11")) == ["oom"]


def test_name_that_does_not_resolve_is_neither_a_firewall_nor_an_interface():
    unknown = (
        "[W socket.cpp:755] [c10d] The IPv4 network addresses of (a.example, 40417) cannot be"
        " retrieved (gai error: -2 - Name or service not known).\n"
    )
    late = (
        "[W1122 10:14:02 socket.cpp:755] [c10d] The client socket has failed to connect to"
        " [a.example]:40417 (errno: 110 - Connection timed out).\n"
    )
    assert loud(late + unknown)[:1] == ["dns_hostname"] and "firewall_ports" not in loud(
        late + unknown
    )
    assert "firewall_ports" in loud(late)
    assert "firewall_ports" not in loud(f"$ torchrun --nnodes=1 train.py\n{late}")
