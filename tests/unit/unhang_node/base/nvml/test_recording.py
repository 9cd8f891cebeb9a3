"""Recordings of NVML answers, and small files that differ from one."""

from __future__ import annotations

import json
import os

import pytest
from fakes.nvml_runs import H200X2, H200X8, write_recording

from unhang_node.base.nvml.recorded import RecordedError, RecordedSession
from unhang_node.base.nvml.recording import LIMIT_BYTES, load_recording


def session(path):
    return RecordedSession(load_recording(str(path)))


def test_a_full_recording_answers_call_by_call():
    nvml = session(H200X8)
    handle = nvml.nvmlDeviceGetHandleByIndex(3)
    assert nvml.nvmlDeviceGetCount() == 8
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA H200"
    assert nvml.nvmlDeviceGetTemperature(handle, 0) == 32 or isinstance(
        nvml.nvmlDeviceGetTemperature(handle, 0), int
    )
    assert nvml.nvmlDeviceGetMemoryInfo(handle).total == 150754820096
    with pytest.raises(RecordedError) as caught:
        nvml.nvmlDeviceGetFanSpeed(handle)
    assert caught.value.value == 3


def test_a_call_that_nobody_recorded_is_a_function_that_the_driver_has_not():
    nvml = session(H200X8)
    with pytest.raises(RecordedError) as caught:
        nvml.nvmlDeviceGetSomethingNew(nvml.nvmlDeviceGetHandleByIndex(0), 7)
    assert caught.value.value == 13


def test_short_forms_mean_what_they_look_like(tmp_path):
    changes = {
        "0": {
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMemoryInfo": {"used": 1},
            "nvmlDeviceGetUUID": {"v": "GPU-x"},
            "nvmlDeviceGetMigMode": {"nvml_error": 3, "text": "Not Supported"},
            "fields": {"NVML_FI_DEV_REMAPPED_UNC": 5},
        }
    }
    device = load_recording(str(write_recording(tmp_path, devices=changes)))["devices"][0]
    assert device["nvmlDeviceGetCurrPcieLinkWidth"]["v"] == 8
    assert device["nvmlDeviceGetMemoryInfo"]["v"] == {
        "total": 150754820096,
        "free": 150109880320,
        "used": 1,
    }
    assert device["nvmlDeviceGetUUID"] == {"v": "GPU-x"}
    assert device["nvmlDeviceGetMigMode"]["v"]["nvml_error"] == 3
    assert device["fields"]["NVML_FI_DEV_REMAPPED_UNC"]["ull"] == 5


def test_a_layer_changes_only_what_it_names(tmp_path):
    base, derived = (
        load_recording(str(H200X8)),
        load_recording(
            str(write_recording(tmp_path, devices={"2": {"nvmlDeviceGetName": "other"}}))
        ),
    )
    changed = [
        index for index, device in enumerate(derived["devices"]) if device != base["devices"][index]
    ]
    assert changed == [2]
    assert derived["pairs"] == base["pairs"]
    assert derived["system"] == base["system"]


def test_all_devices_come_before_the_single_one(tmp_path):
    path = write_recording(
        tmp_path, all_devices={"nvmlDeviceGetName": "A"}, devices={"1": {"nvmlDeviceGetName": "B"}}
    )
    assert [device["nvmlDeviceGetName"]["v"] for device in load_recording(str(path))["devices"]][
        :3
    ] == ["A", "B", "A"]


def test_bases_stand_one_on_another_relative_to_the_file_that_names_them(tmp_path):
    first = write_recording(tmp_path, device_count=4)
    (tmp_path / "inner").mkdir()
    second = tmp_path / "inner" / "second.json"
    second.write_text(
        json.dumps({"base": "../nvml.json", "all_devices": {"nvmlDeviceGetName": "A100"}})
    )
    recording = load_recording(str(second))
    assert first.exists()
    assert [device["nvmlDeviceGetName"]["v"] for device in recording["devices"]] == ["A100"] * 4


def test_a_recording_without_base_may_be_small(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(
        json.dumps(
            {
                "device_count": 2,
                "all_devices": {"nvmlDeviceGetName": "RTX A6000"},
                "pairs": {"0-1": {"p2p:0": 1, "ancestor": 40}},
            }
        )
    )
    nvml = session(path)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    assert [nvml.nvmlDeviceGetName(handle) for handle in handles] == ["RTX A6000"] * 2
    assert nvml.nvmlDeviceGetUUID(handles[0]) != nvml.nvmlDeviceGetUUID(handles[1])
    assert nvml.nvmlDeviceGetP2PStatus(handles[1], handles[0], 0) == 1


def test_stalls_and_missing_functions_add_up_over_the_layers(tmp_path):
    write_recording(tmp_path, H200X2, missing=["nvmlDeviceGetName"], stall="nvmlDeviceGetUUID(1)")
    second = tmp_path / "second.json"
    second.write_text(json.dumps({"base": "nvml.json", "missing": ["nvmlDeviceGetMigMode"]}))
    recording = load_recording(str(second))
    assert recording["missing"] == ["nvmlDeviceGetName", "nvmlDeviceGetMigMode"]
    assert recording["stall"] == ["nvmlDeviceGetUUID(1)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "an object"),
        ("{", "line 1"),
        ('{"base": "self.json"}', "more than 16 bases"),
    ],
    ids=["list", "cut short", "circle"],
)
def test_a_file_that_is_no_recording_says_where(tmp_path, text, message):
    path = tmp_path / "self.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_recording(str(path))
    assert "self.json" in str(caught.value)


def test_a_recording_that_never_ends_or_never_answers_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/zero", str(tmp_path / "fifo"), str(tmp_path)):
        with pytest.raises((ValueError, OSError), match=r"not a regular file|directory"):
            load_recording(path)


def test_a_recording_beyond_all_measure_is_refused(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as huge:
        huge.truncate(LIMIT_BYTES + 1)
    with pytest.raises(ValueError, match="larger than 67108864 bytes"):
        load_recording(str(path))


@pytest.mark.parametrize(
    "text", ['{"base": 7}', "[" * 100_000], ids=["base is no name", "too deep"]
)
def test_a_recording_of_the_wrong_shape_is_a_value_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"odd\.json"):
        load_recording(str(path))
