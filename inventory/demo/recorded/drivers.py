"""NVML recordings of the demo fleet. The H200 answers come from the captures under tests/fixtures,
the other models' are put together by hand.

Format: module_utils/unhang_node/nvml/recording.py. Written to disk by build.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[3] / "tests" / "fixtures"
MIB = 1 << 20
NOT_SUPPORTED = {"nvml_error": 3, "text": "Not Supported"}
ALLOWED, CHIPSET, SAME_SWITCH, HOST_BRIDGE, OTHER_NODE = 0, 1, 20, 30, 40
# What the reader asks for; a capture holds many more.
DEVICE_CALLS = (
    "nvmlDeviceGetPciInfo", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetUUID", "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetInforomImageVersion", "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMigMode", "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetComputeMode", "nvmlDeviceGetGspFirmwareVersion",
    "nvmlDeviceGetGspFirmwareMode", "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetClockInfo:1",
    "nvmlDeviceGetClockInfo:2", "nvmlDeviceGetMaxClockInfo:1", "nvmlDeviceGetMaxClockInfo:2",
    "nvmlDeviceGetTemperature:0",
    "nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetEccMode", "nvmlDeviceGetTotalEccErrors:0:0",
    "nvmlDeviceGetTotalEccErrors:0:1", "nvmlDeviceGetTotalEccErrors:1:0",
    "nvmlDeviceGetTotalEccErrors:1:1", "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRowRemapperHistogram", "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)  # fmt: skip
# Calls that only the capture of two GPUs of this model has.
TWO_GPU_CALLS = (
    "nvmlDeviceGetMemoryInfo:v2", "nvmlDeviceGetGpuFabricInfoV:v2",
    "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetTemperatureThreshold:1",
)  # fmt: skip
SYSTEM_CALLS = (
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetDriverVersion",
)
FIELD_STEMS = ("RETIRED_", "NVLINK_LINK_COUNT", "PCIE_REPLAY", "REMAPPED_")
LINK_CALLS = (
    "state",
    "version",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "error:0",
    "error:1",
    "error:2",
)


def answer(value: Any) -> dict[str, Any]:
    """One ANSWER of a recording."""
    return {"v": value}


def h200() -> dict[str, Any]:
    """Eight H200 as captured: the first in full, of the others what tells them apart."""
    eight, two = (
        json.loads((FIXTURES / name / "nvml.json").read_text()) for name in ("h200x8", "h200x2")
    )
    system = {name: answer(eight["system"][name]["v"]) for name in SYSTEM_CALLS}
    devices = [captured(device) for device in eight["devices"]]
    extra = {name: answer(two["devices"][0][name]["v"]) for name in TWO_GPU_CALLS}
    devices[0].update(extra)
    rest = {
        str(place): {name: each[name] for name in each if each[name] != devices[0].get(name)}
        for place, each in enumerate(devices)
        if place
    }
    pair = {
        name: answer(eight["pairs"]["0-1"][name]["v"])
        for name in ("ancestor", "p2p:0", "p2p:1", "p2p:2", "p2p:3")
    }
    return {
        "first": {"system": system, "devices": [devices[0]], "pairs": {}},
        "eight": {"device_count": 8, "devices": rest, "pairs": {"all": pair}},
    }


VBIOS = {"Tesla T4": "90.04.38.00.03"}
"""Where chip and generation do not show it."""


def captured(device: dict[str, Any]) -> dict[str, Any]:
    """One device of a capture, without the calls that nobody asks."""
    fields = {
        name: row
        for name, row in device["fields"].items()
        if any(name.startswith("NVML_FI_DEV_" + stem) for stem in FIELD_STEMS)
    }
    links = [
        {call: answer(link[call]["v"]) for call in LINK_CALLS if call in link}
        for link in device["nvlink"]
    ]
    return {name: answer(device[name]["v"]) for name in DEVICE_CALLS if name in device} | {
        "fields": fields,
        "nvlink": links,
    }


def model(
    name: str,
    architecture: int,
    capability: tuple[int, int],
    memory_mib: int,
    limit_w: int,
    generation: int,
    links: int,
    remote: int | None,
    data_centre: bool,
) -> dict[str, Any]:
    """A GPU model as its driver describes it. links: NVLinks, all up towards `remote` (0 GPU, 2
    switch), or down when that is None."""
    used = 0 if data_centre else 12 * MIB
    bar1_mib = 131072 if remote == 2 else 256  # boards with NVSwitch show all of a GPU's memory
    device = {
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetArchitecture": architecture,
        "nvmlDeviceGetCudaComputeCapability": list(capability),
        "nvmlDeviceGetVbiosVersion": VBIOS.get(name,
        "92.00.45.00.03" if data_centre else "94.02.5C.00.0A"),
        "nvmlDeviceGetBoardPartNumber": "900-21001-0000-000",
        "nvmlDeviceGetInforomImageVersion": "1001.0200.00.03",
        "nvmlDeviceGetBAR1MemoryInfo": {"bar1Total": bar1_mib * MIB,
        "bar1Free": (bar1_mib - 4) * MIB, "bar1Used": 4 * MIB},
        "nvmlDeviceGetUtilizationRates": {"gpu": 0, "memory": 0},
        "nvmlDeviceGetMigMode": [0, 0] if capability == (8, 0) else NOT_SUPPORTED,
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetComputeMode": 0,
        "nvmlDeviceGetGspFirmwareMode": [1 if architecture > 5 else 0, 1],
        "nvmlDeviceGetPcieReplayCounter": 0,
        "nvmlDeviceGetCurrPcieLinkGeneration": generation if data_centre else 1,
        "nvmlDeviceGetMaxPcieLinkGeneration": generation,
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": generation,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetMemoryInfo:v2": {"total": memory_mib * MIB, "reserved": 400 * MIB,
        "free": memory_mib * MIB - 400 * MIB - used, "used": used},
        "nvmlDeviceGetPowerManagementLimit": limit_w * 1000,
        "nvmlDeviceGetPowerManagementDefaultLimit": limit_w * 1000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [100000, limit_w * 1000],
        "nvmlDeviceGetPowerUsage": 24000,
        "nvmlDeviceGetCurrentClocksEventReasons": 1,
        "nvmlDeviceGetClockInfo:1": 210,
        "nvmlDeviceGetClockInfo:2": 405,
        "nvmlDeviceGetMaxClockInfo:1": 1410 if data_centre else 2100,
        "nvmlDeviceGetMaxClockInfo:2": 1593 if data_centre else 9751,
        "nvmlDeviceGetTemperature:0": 34,
        "nvmlDeviceGetTemperatureThreshold:1": 95,
        "nvmlDeviceGetRemappedRows": [0, 0, 0, 0] if capability == (8, 0) else NOT_SUPPORTED,
        "nvmlDeviceGetRowRemapperHistogram": {"max": 640, "high": 0, "partial": 0, "low": 0,
        "none": 0} if capability == (8, 0) else NOT_SUPPORTED,
        "nvmlDeviceGetEccMode": [1, 1] if data_centre else NOT_SUPPORTED,
        "nvmlDeviceGetSramEccErrorStatus": NOT_SUPPORTED,
        "nvmlDeviceGetGpuFabricInfoV:v2": NOT_SUPPORTED,
        "nvmlDeviceGetGpuFabricInfo": NOT_SUPPORTED,
        "nvmlDeviceGetComputeRunningProcesses_v3": [],
        "nvmlDeviceGetGraphicsRunningProcesses_v3": [],
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": [],
    } | {f"nvmlDeviceGetTotalEccErrors:{kind}:{span}": 0 for kind in (0, 1) for span in (0,
    1)}  # fmt: skip
    up = {
        "state": 1,
        "version": 4,
        "nvmlDeviceGetNvLinkRemoteDeviceType": remote,
        "error:0": 0,
        "error:1": 0,
        "error:2": 0,
    }
    link = {"state": 0} if remote is None else up
    remap = 0 if capability == (8, 0) else 3
    fields = {
        f"NVML_FI_DEV_REMAPPED_{part}": {"ret": remap, "type": 1, "ull": 0, "dbl": None}
        for part in ("COR", "UNC", "PENDING", "FAILURE")
    }
    fields |= {
        f"NVML_FI_DEV_RETIRED_{part}": {"ret": 3, "type": 1, "ull": 0, "dbl": None}
        for part in ("SBE", "DBE", "PENDING")
    }
    fields["NVML_FI_DEV_NVLINK_LINK_COUNT"] = {"ret": 0, "type": 1, "ull": links, "dbl": None}
    answers = {call: answer(value) for call, value in device.items()}
    return answers | {
        "fields": fields,
        "nvlink": [{call: answer(value) for call, value in link.items()} for _ in range(links)],
    }


def machine(
    driver: str,
    cuda: int,
    device: dict[str, Any],
    addresses: list[str],
    stem: str,
    read: int,
    ancestor: int,
) -> dict[str, Any]:
    """A recording of one machine with equal GPUs. read: P2P status of every pair; ancestor: their
    topology."""
    device = device | {"nvmlDeviceGetGspFirmwareVersion": answer(driver)}
    devices = [placed(device, place, address, stem) for place, address in enumerate(addresses)]
    rest = {
        str(place): {call: each[call] for call in each if each[call] != devices[0][call]}
        for place, each in enumerate(devices)
        if place
    }
    pair = {
        "ancestor": answer(ancestor),
        "p2p:0": answer(read),
        "p2p:1": answer(read),
        "p2p:2": answer(read),
        "p2p:3": answer(5),
    }
    first = {"system": system_calls(driver, cuda), "devices": [devices[0]], "pairs": {}}
    return {
        "first": first,
        "all": {"device_count": len(devices), "devices": rest, "pairs": {"all": pair}},
    }


def system_calls(driver: str, cuda: int) -> dict[str, Any]:
    """What NVML says of itself."""
    calls = {
        "nvmlSystemGetCudaDriverVersion_v2": cuda,
        "nvmlSystemGetNVMLVersion": f"{cuda // 1000}.{driver}",
        "nvmlSystemGetDriverVersion": driver,
    }
    return {call: answer(value) for call, value in calls.items()}


def placed(device: dict[str, Any], place: int, address: str, stem: str) -> dict[str, Any]:
    """A device with what tells it apart from its neighbours."""
    bus = int(address.split(":")[1], 16)
    where = {
        "busIdLegacy": address.upper(),
        "domain": 0,
        "bus": bus,
        "device": 0,
        "busId": "0000" + address.upper(),
    }
    own = {
        "nvmlDeviceGetUUID": f"GPU-{stem}{place:04x}-0000-4000-8000-000000000000",
        "nvmlDeviceGetMinorNumber": place,
        "nvmlDeviceGetPciInfo": where,
    }
    return device | {call: answer(value) for call, value in own.items()}


def processes(rows: list[tuple[int, int]]) -> dict[str, Any]:
    """Compute processes of one GPU and the memory that they take. rows: (pid, MiB)."""
    used = sum(size for _, size in rows) * MIB
    listed = [
        {
            "pid": pid,
            "usedGpuMemory": size * MIB,
            "gpuInstanceId": 4294967295,
            "computeInstanceId": 4294967295,
        }
        for pid, size in rows
    ]
    return {
        "nvmlDeviceGetComputeRunningProcesses_v3": listed,
        "nvmlDeviceGetMemoryInfo:v2": {"used": used},
    }
