"""The number of calls of NVML: each call on H200 takes up to 4 ms in the driver, and all wait for
one lock, so threads gain nothing."""

from __future__ import annotations

from collections import Counter

from fakes.nvml_runs import H200X8, write_recording

from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.root import Root
from unhang_node.facts.sources import nvml

GPUS, LINKS, PAIRS = 8, 18, 28
PER_GPU_AT_MOST = 55  # handle, identity, state, processes
PER_LINK = {"nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemoteDeviceType"}
PER_PAIR = {"nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"}


def calls(sections, recording=H200X8, **options):
    """({call: how often}, pieces) of one reading of the recorded eight GPUs."""
    counted = Counter()

    def mark(text, _allow_s=0.0):
        counted[text.partition("(")[0]] += text.startswith("nvml")

    options = dict(DEFAULTS, nvml_recording=str(recording), **options)
    pieces = list(
        nvml.read(
            Context(
                Root([str(H200X8.parents[1] / "roots" / "h200x8")]),
                options,
                sections,
                None,
                mark=mark,
            ),
            None,
        )
    )
    return +counted, pieces


def test_a_link_is_asked_two_things_and_a_pair_two_in_one_direction():
    counted, _pieces = calls(("gpus", "interconnect", "driver"))
    assert {name for name, count in counted.items() if count == GPUS * LINKS} == PER_LINK
    assert {name for name, count in counted.items() if count == PAIRS} == PER_PAIR
    assert counted["nvmlDeviceGetNvLinkVersion"] == GPUS
    assert counted["nvmlDeviceGetFieldValues"] == 3 * GPUS
    assert sum(counted.values()) <= GPUS * (PER_GPU_AT_MOST + LINKS * len(PER_LINK)) + PAIRS * len(
        PER_PAIR
    )


def test_what_a_board_fixes_is_asked_of_one_gpu():
    counted, _pieces = calls(("gpus",))
    once = (
        "nvmlDeviceGetPowerManagementDefaultLimit",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        "nvmlDeviceGetTemperatureThreshold",
    )
    assert [counted[name] for name in once] == [1, 1, 2]
    assert counted["nvmlDeviceGetMaxClockInfo"] == 2
    assert not (PER_LINK | PER_PAIR) & set(counted)


def test_each_gpu_has_the_serial_number_of_its_board():
    _counted, pieces = calls(("gpus",))
    serials = {row.get("serial") for piece in pieces for row in piece[1].get("devices") or ()}
    assert serials >= {f"165000000000{number}" for number in range(GPUS)}


RETIRED = {
    f"NVML_FI_DEV_RETIRED_{name}": value for name, value in (("SBE", 2), ("DBE", 7), ("PENDING", 0))
}
FAILED = 999


def devices(pieces):
    return {
        row["index"]: row
        for _section, fields, *_rest in pieces
        for row in fields.get("devices") or ()
    }


def test_a_failed_call_of_one_gpu_hides_no_retired_pages_of_the_others(tmp_path):
    failing = {"fields": {**RETIRED, "NVML_FI_DEV_RETIRED_SBE": {"ret": FAILED, "ull": 0}}}
    _counted, pieces = calls(
        ("gpus",), write_recording(tmp_path, devices={"0": failing, "1": {"fields": RETIRED}})
    )
    read = devices(pieces)
    assert [read[index]["retired_pages"] for index in (0, 1)] == [
        None,
        {"single_bit": 2, "double_bit": 7, "pending": False},
    ]


def test_a_failed_call_of_one_gpu_hides_no_limits_of_the_others(tmp_path):
    failing = {"nvmlDeviceGetPowerManagementDefaultLimit": {"nvml_error": FAILED}}
    counted, pieces = calls(("gpus",), write_recording(tmp_path, devices={"0": failing}))
    read = devices(pieces)
    assert [read[index]["power_limit_default_w"] for index in (0, 1, 2)] == [None, 700.0, 700.0]
    assert counted["nvmlDeviceGetPowerManagementDefaultLimit"] == 2


def test_a_default_clock_that_newer_drivers_deprecate_is_absent(tmp_path):
    deprecated = {"nvmlDeviceGetDefaultApplicationsClock:1": {"nvml_error": 26}}
    _counted, pieces = calls(("gpus",), write_recording(tmp_path, devices={"0": deprecated}))
    assert "clocks.sm_default_mhz', 'status': 'absent'" in str(pieces)
