"""NVML's sensors under load: power, clocks, temperatures, throttling reasons; and settings that must not change."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from .nvml import FieldValue, call, nvml_handles
from .processes import die_with_parent

PERIOD_S = 0.5
MEMORY_TEMPERATURE = 82  # NVML_FI_DEV_MEMORY_TEMP
SM_CLOCK, MEMORY_CLOCK = 1, 2  # nvmlClockType_t
MOST_PROCESSES = 64
OCCUPIED_BYTES = 2**30  # more than an idle driver uses: a program uses the GPU that NVML does not show, such as one in another container
# nvmlClocksEventReasons*: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
REASONS = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
SETTINGS = (
    ("persistence_mode", "nvmlDeviceGetPersistenceMode"), ("compute_mode", "nvmlDeviceGetComputeMode"), ("power_limit_mw", "nvmlDeviceGetPowerManagementLimit"),
)  # fmt: skip


class MemoryInfo(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong),
    )  # fmt: skip


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which the functions of version 3 fill."""

    _fields_ = (("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint))


class Sensors:
    """A child process that reads NVML continuously; lines() returns its output since the last call."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        argv = [sys.executable, "-S", os.path.abspath(__file__), "sensors", "--period", str(period_s)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.rest = b""

    def lines(self) -> list[dict[str, Any]]:
        """What the child printed since the last call; nothing while the driver does not answer."""
        try:
            piece = os.read(self.output, 2**20)
        except BlockingIOError:
            return []
        *lines, self.rest = (self.rest + piece).split(b"\n")
        return [json.loads(line) for line in lines if line]

    def end(self) -> None:
        """Ends the child, without waiting for one that hangs in the driver."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)


def run_sensors(period_s: float) -> int:
    """Runs in the child: prints a line with the settings, then a line of readings each period, until the pipe is closed."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        sys.stdout.write(json.dumps({"settings": [], "problem": "libnvidia-ml.so.1 is not there"}) + "\n")
        return 0
    code = call(library, "nvmlInit_v2")
    handles = nvml_handles(library) if code == 0 else []
    sys.stdout.write(json.dumps({"settings": read_settings(library, handles), "problem": "nvmlInit answered %d" % code if code else None}) + "\n")
    sys.stdout.flush()
    while period_s > 0:
        line = {"at": round(time.monotonic(), 3), "gpus": [read_sensors(library, handle) for handle, _ in handles]}
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
        sys.stdout.flush()
        if select.select([0], [], [], period_s)[0]:
            break  # the agent is gone
    return 0


def read_settings(library: Any, handles: list[tuple[Any, str]]) -> list[dict[str, Any]]:
    """For each GPU: uuid, PCI address, settings, memory in use, processes, remapped rows. None for missing values."""
    rows = []
    for handle, uuid in handles:
        row: dict[str, Any] = {"uuid": uuid}
        for name, function in SETTINGS:
            row[name] = number_of(library, function, handle)
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        read = call(library, "nvmlDeviceGetEccMode", handle, ctypes.byref(current), ctypes.byref(pending)) == 0
        row["ecc"] = [current.value, pending.value] if read else None
        row["used_bytes"], row["processes"] = used_bytes(library, handle), processes_on(library, handle)
        row["remapped_rows"] = remapped_rows(library, handle)
        rows.append(row)
    return rows


def number_of(library: Any, function: str, handle: Any, *arguments: Any) -> int | None:
    """The result of a call that yields one unsigned number."""
    value = ctypes.c_uint()
    return value.value if call(library, function, handle, *arguments, ctypes.byref(value)) == 0 else None


def used_bytes(library: Any, handle: Any) -> int | None:
    """Memory in use, without the memory that the driver reserves for itself."""
    info = MemoryInfo(version=ctypes.sizeof(MemoryInfo) | 2 << 24)
    return info.used if call(library, "nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(info)) == 0 else None


def processes_on(library: Any, handle: Any) -> list[int]:
    """pids of processes with a context on this GPU, as far as NVML shows them here."""
    found = set()
    for function in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"):
        count, rows = ctypes.c_uint(MOST_PROCESSES), (ProcessInfo * MOST_PROCESSES)()
        if call(library, function, handle, ctypes.byref(count), rows) == 0:
            found |= {row.pid for row in rows[: count.value]}
    return sorted(found)


def remapped_rows(library: Any, handle: Any) -> dict[str, int] | None:
    """Rows of the memory that were remapped, whether a remapping waits for a reset, and whether one failed."""
    values = [ctypes.c_uint() for _ in range(4)]
    if call(library, "nvmlDeviceGetRemappedRows", handle, *[ctypes.byref(value) for value in values]) != 0:
        return None
    return dict(zip(("correctable", "uncorrectable", "pending", "failure"), [value.value for value in values]))


def read_sensors(library: Any, handle: Any) -> dict[str, Any]:
    """{power_w, energy_j, sm_mhz, memory_mhz, temperature_c, memory_temperature_c, reasons, pcie_generation, pcie_width}, None for missing values."""
    power, energy, reasons = number_of(library, "nvmlDeviceGetPowerUsage", handle), ctypes.c_ulonglong(), ctypes.c_ulonglong()
    metered = call(library, "nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(energy)) == 0
    held = [name for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
            if call(library, name, handle, ctypes.byref(reasons)) == 0]  # fmt: skip
    hot = FieldValue(MEMORY_TEMPERATURE, 0)
    memory_read = call(library, "nvmlDeviceGetFieldValues", handle, 1, ctypes.byref(hot)) == 0 and hot.code == 0
    clock = "nvmlDeviceGetClockInfo"
    return {
        "power_w": None if power is None else power / 1000.0, "energy_j": energy.value / 1000.0 if metered else None,
        "sm_mhz": number_of(library, clock, handle, SM_CLOCK), "memory_mhz": number_of(library, clock, handle, MEMORY_CLOCK),
        "temperature_c": number_of(library, "nvmlDeviceGetTemperature", handle, 0), "memory_temperature_c": hot.value & 0xFFFFFFFF if memory_read else None,
        "reasons": [name for bit, name in REASONS.items() if reasons.value & bit] if held else None,
        "pcie_generation": number_of(library, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_width": number_of(library, "nvmlDeviceGetCurrPcieLinkWidth", handle),
    }  # fmt: skip


def first_answer(sensors: Sensors, limit_s: float) -> dict[str, Any]:
    """{"settings", "problem"}: the first line of a child, which hangs if the driver does."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        select.select([sensors.output], [], [], 0.2)
        lines = sensors.lines()
        if lines:
            return lines[0]
        if sensors.process.poll() is not None and not sensors.lines():
            return {"settings": [], "problem": "NVML ended its caller with code %s" % sensors.process.returncode}
    return {"settings": [], "problem": "NVML did not answer within %.0f s: the driver hangs" % limit_s}


def settings_now(limit_s: float) -> dict[str, Any]:
    """The same, read in a child process of its own."""
    sensors = Sensors(0.0)
    try:
        return first_answer(sensors, limit_s)
    finally:
        sensors.end()
