"""NVML's constants that the reader needs, so that a recording is read without nvidia-ml-py.

Source: nvml.h of CUDA 13 (https://docs.nvidia.com/deploy/nvml-api/). A test compares each with
nvidia-ml-py.
"""

from __future__ import annotations

import re

FIELDS = {
    "NVML_FI_DEV_RETIRED_SBE": 29,
    "NVML_FI_DEV_RETIRED_DBE": 30,
    "NVML_FI_DEV_RETIRED_PENDING": 31,
    "NVML_FI_DEV_MEMORY_TEMP": 82,
    "NVML_FI_DEV_NVLINK_LINK_COUNT": 91,
    "NVML_FI_DEV_PCIE_REPLAY_COUNTER": 94,
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": 138,
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": 139,
    "NVML_FI_DEV_REMAPPED_COR": 142,
    "NVML_FI_DEV_REMAPPED_UNC": 143,
    "NVML_FI_DEV_REMAPPED_PENDING": 144,
    "NVML_FI_DEV_REMAPPED_FAILURE": 145,
    "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY": 161,
    "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY": 162,
    "NVML_FI_DEV_NVLINK_ERROR_DL_CRC": 163,
    "NVML_FI_DEV_NVLINK_GET_SPEED": 164,
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230,
}
ALL_LINKS = 0xFFFFFFFF  # scope of a field that sums it over all links
MEMORY_V2 = 0x02000028

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25

THROTTLE_REASONS = (
    (0x001, "gpu_idle"),
    (0x002, "applications_clocks"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal"),
    (0x040, "hw_thermal"),
    (0x080, "hw_power_brake"),
    (0x100, "display_clocks"),
)

ERROR_NAMES = {
    1: "NVML_ERROR_UNINITIALIZED",
    2: "NVML_ERROR_INVALID_ARGUMENT",
    3: "NVML_ERROR_NOT_SUPPORTED",
    4: "NVML_ERROR_NO_PERMISSION",
    6: "NVML_ERROR_NOT_FOUND",
    7: "NVML_ERROR_INSUFFICIENT_SIZE",
    8: "NVML_ERROR_INSUFFICIENT_POWER",
    9: "NVML_ERROR_DRIVER_NOT_LOADED",
    10: "NVML_ERROR_TIMEOUT",
    11: "NVML_ERROR_IRQ_ISSUE",
    12: "NVML_ERROR_LIBRARY_NOT_FOUND",
    13: "NVML_ERROR_FUNCTION_NOT_FOUND",
    14: "NVML_ERROR_CORRUPTED_INFOROM",
    15: "NVML_ERROR_GPU_IS_LOST",
    16: "NVML_ERROR_RESET_REQUIRED",
    17: "NVML_ERROR_OPERATING_SYSTEM",
    18: "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    19: "NVML_ERROR_IN_USE",
    20: "NVML_ERROR_MEMORY",
    21: "NVML_ERROR_NO_DATA",
    23: "NVML_ERROR_INSUFFICIENT_RESOURCES",
    25: "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    26: "NVML_ERROR_DEPRECATED",
    27: "NVML_ERROR_NOT_READY",
    28: "NVML_ERROR_GPU_NOT_FOUND",
    29: "NVML_ERROR_INVALID_STATE",
    999: "NVML_ERROR_UNKNOWN",
}


def error_name(code: int) -> str:
    """NVML_ERROR_NOT_SUPPORTED for 3."""
    return ERROR_NAMES.get(code, f"NVML error {code}")


CLUSTER = re.compile("[0-9a-f]{32}")


def domain_name(cluster: str) -> str:
    """The name of an NVLink domain, as a person and --group-limit have it. cluster: its UUID, as 32
    hexadecimal digits; "" for anything else that a node says."""
    return f"nvlink-{cluster[:12]}" if CLUSTER.fullmatch(cluster) else ""
