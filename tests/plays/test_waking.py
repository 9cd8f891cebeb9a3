"""The time limit of the first handle: long where a GPU sleeps, that of any call where the driver's
own files show the GPU awake."""

from __future__ import annotations

import pytest

from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.nvml.waking import SLEEPING_HANDLE_S, seconds_for_first_handle
from unhang_node.base.root import Root

AWAKE = (
    "Model: \t NVIDIA H200\nVideo BIOS: \t 96.00.a5.00.1a\n",
    "Runtime D3 status:          Disabled by default\nVideo Memory:               Active\n",
)
ASLEEP = (
    "Model: \t NVIDIA H200\nVideo BIOS: \t ??.??.??.??.??\n",
    "Runtime D3 status:          ?\nVideo Memory:               ?\n",
)
RESTING = (AWAKE[0], ASLEEP[1])
NO_POWER_FILE = (AWAKE[0], None)


def seconds(root, **options):
    return seconds_for_first_handle(
        Context(Root([str(root)]), {**DEFAULTS, **options}, ["gpus"], None)
    )


def node(tmp_path, *gpus, daemon=False):
    for number, (information, power) in enumerate(gpus):
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(information)
        if power is not None:
            (folder / "power").write_text(power)
    if daemon:
        (tmp_path / "run/nvidia-persistenced").mkdir(parents=True)
        (tmp_path / "run/nvidia-persistenced/nvidia-persistenced.pid").write_text("812\n")
    return tmp_path


@pytest.mark.parametrize(
    ("gpus", "daemon", "expected"),
    [
        ([AWAKE, AWAKE], False, 0.0),
        ([AWAKE, ASLEEP], False, SLEEPING_HANDLE_S),
        ([RESTING], False, SLEEPING_HANDLE_S),
        ([NO_POWER_FILE], False, SLEEPING_HANDLE_S),
        ([ASLEEP], True, 0.0),
        ([], False, 0.0),
    ],
)
def test_a_gpu_that_is_not_seen_awake_may_take_long(tmp_path, gpus, daemon, expected):
    assert seconds(node(tmp_path, *gpus, daemon=daemon)) == expected


def test_the_option_decides_where_it_is_set(tmp_path):
    assert seconds(node(tmp_path, ASLEEP), first_handle_s=7.0) == 7.0
    assert seconds(tmp_path, first_handle_s=9.0) == 9.0


def test_a_recording_never_sleeps(tmp_path):
    assert seconds(node(tmp_path, ASLEEP), nvml_recording="/some/file") == 0.0
