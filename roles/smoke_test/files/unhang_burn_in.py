"""The burn-in's payload: keeps all GPUs of a node at full load and compares every result with the exact one, bit by bit.

    python3 unhang_burn_in.py node --plan JSON     refuses where a GPU is in use; else starts one worker for each GPU, and reads sensors meanwhile
    python3 unhang_burn_in.py node --device cpu --duration 10      tries the same with small sizes on the CPU

One file that needs only torch and the standard library, Python >= 3.8. It measures and never judges: it prints events as lines of JSON, each with `e` (kind);
`unhang smoke --burn-in` makes the verdict from them.

Assembled by tools/payload/build.py from tools/payload/parts: change it there.
"""

# fmt: off
from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import faulthandler
import fcntl
import json
import mmap
import os
import re
import select
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# burn_dcgm.py: NVIDIA's own diagnosis, `dcgmi diag -j`, before the load begins. Its output is sent unchanged; the controller parses it --------------

DCGM_LONG_S = 600.0  # a burn-in of ten minutes or more runs level 2, which takes about two minutes; a shorter one level 1, which takes seconds
DCGM_LIMIT_S = {1: 90.0, 2: 300.0}
DCGM_POLITE_S, DCGM_CHECK_S = 3.0, 0.05  # on SIGTERM dcgmi stops the diagnosis in its host engine; on SIGKILL it does not
MOST_ANSWER_BYTES = 96 * 1024  # the line with the answer must be shorter than the longest that the controller reads


def dcgm_level(duration_s: float) -> int:
    """The level of diagnosis that fits a burn-in of this duration. https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html"""
    return 2 if duration_s >= DCGM_LONG_S else 1


def run_dcgm(level: int, limit_s: float, stopped: Callable[[], bool]) -> dict[str, Any] | None:
    """{level, code, seconds, answer: its JSON or a text}, None without dcgmi. code: None where unhang had to end it, because of its deadline or a stop."""
    program = shutil.which("dcgmi")
    if program is None:
        return None
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            asked = subprocess.Popen(
                [program, "diag", "-r", str(level), "-j"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as problem:
            return {"level": level, "code": None, "seconds": 0.0, "answer": "%s: %s" % (program, problem.strerror)}
        code = await_dcgm(asked, began + limit_s, stopped)
        output.seek(0)
        text = output.read(16 * MOST_ANSWER_BYTES).decode("utf-8", "replace")
    return {"level": level, "code": code, "seconds": round(time.monotonic() - began, 1), "answer": answered(text)}


def await_dcgm(asked: subprocess.Popen[bytes], until: float, stopped: Callable[[], bool]) -> int | None:
    """Its exit code, or None where unhang had to end it: SIGTERM first, then SIGKILL."""
    while asked.poll() is None and time.monotonic() < until and not stopped():
        time.sleep(DCGM_CHECK_S)
    if asked.poll() is not None:
        return asked.returncode
    asked.terminate()
    try:
        asked.wait(DCGM_POLITE_S)
    except subprocess.TimeoutExpired:
        os.killpg(asked.pid, signal.SIGKILL)
        asked.wait(DCGM_POLITE_S)
    return None


def answered(text: str) -> Any:
    """The JSON in a text; the end of the text where it holds no JSON or too much."""
    start = text.find("{")
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text[start:]) if start >= 0 else None
        if found is not None and len(json.dumps(found)) <= MOST_ANSWER_BYTES:
            return found
    return text.strip()[-2000:]


# processes.py: Watches processes from outside, and ends them ----------------------------------------------------------------------------------------

def process_state(pid: int) -> tuple[str, str]:
    """(state letter, wchan) of a process, ("gone", "") when there is none."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as source:
            state = source.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone", ""
    wchan = ""
    with contextlib.suppress(OSError), open("/proc/%d/wchan" % pid, encoding="ascii") as source:
        wchan = source.read().strip("0\n")
    return state, wchan


def die_with_parent() -> None:
    """Runs in a child before exec: the kernel kills the child when its parent ends, however the parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def signal_name(code: int) -> str | None:
    """SIGKILL for -9, None for an ordinary exit."""
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return "signal %d" % -code


def session_members(session: int) -> list[int]:
    """pids that have this session id, in the order of their start."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as source:
                fields = source.read().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    found.append((int(fields[19]), int(name)))
    return [pid for _, pid in sorted(found)]


def session_commands(session: int) -> list[str]:
    """Command lines of a session's processes, the latest started last."""
    found = []
    for pid in session_members(session):
        with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as source:
            command = source.read().replace(b"\0", b" ").strip().decode("utf-8", "replace")
            if command:
                found.append(command[:200])
    return found


def end_session(pid: int) -> None:
    """Sends SIGKILL to a session: to its process group, and to every process with its session id."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    for member in session_members(pid):
        with contextlib.suppress(OSError):
            os.kill(member, signal.SIGKILL)


# nvml.py: NVLink states from NVML, read by a child process, because a driver in trouble may never answer --------------------------------------------

NVML_S = 10.0  # at the start, while torch is imported
NVML_AGAIN_S = 3.0
NVLINK_CAPABILITY = 2  # NVML_P2P_CAPS_INDEX_NVLINK; status 0 is NVML_P2P_STATUS_OK
# NVML_FI_DEV_NVLINK_*: https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html, each by link. Errors up to Hopper; Blackwell has none of these
# three (change log of that API) and has NVLINK5_FIELDS instead.
FIELDS = {138: "data sent (KiB)", 139: "data received (KiB)", 161: "replay errors", 162: "recovery errors", 163: "CRC errors"}
NVLINK5_FIELDS = {
    206: "malformed packet errors", 207: "buffer overrun errors", 208: "receive errors", 211: "link integrity errors", 215: "link recovery events",
    221: "symbol errors",
}  # fmt: skip
# nvmlNvLinkErrorCounter_t, for a driver that knows none of the fields: the counters of `nvidia-smi nvlink -e`. Its counters 3 (CRC data) and 4 (ECC data) rise
# on every link of a healthy H200 (docs/decisions/0014): https://github.com/DataDog/datadog-agent/pull/55966
OLDER = {0: "replay errors", 1: "recovery errors", 2: "CRC errors"}
NVLINK_SPEED = 164  # NVML_FI_DEV_NVLINK_GET_SPEED, MB/s by link
MOST_LINKS = 18
COUNTED_ERRORS = ((0, "corrected memory errors"), (1, "uncorrected memory errors"))  # nvmlMemoryErrorType_t
SINCE_LOADED = 0  # NVML_VOLATILE_ECC


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong), ("latency", ctypes.c_longlong), ("kind", ctypes.c_uint),
        ("code", ctypes.c_uint), ("value", ctypes.c_ulonglong),
    )  # fmt: skip


class NvmlQuestion:
    """A child that queries NVML; answer() waits for it, but no longer than the limit since its start."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 -- open until it was answered
        argv = [sys.executable, "-S", os.path.abspath(__file__), "nvml"]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Once: {"pairs", "counters", "links", "problem"}: pairs of UUIDs that NVLink connects or None, the others by name and UUID, why parts are missing."""
        problem = "NVML did not answer within %.0f s: the driver hangs" % limit_s
        try:
            self.process.wait(max(0.1, limit_s - (time.monotonic() - self.began)))
            self.output.seek(0)
            return dict(json.loads(self.output.read()))
        except subprocess.TimeoutExpired:
            self.process.kill()
        except ValueError:
            problem = "NVML ended its caller with code %s" % self.process.returncode
        return nothing_read(problem)


def nothing_read(problem: str | None = None) -> dict[str, Any]:
    """An answer without any values."""
    return {"pairs": None, "counters": {}, "links": {}, "problem": problem}


def read_nvml() -> dict[str, Any]:
    """Collects the answer, in the child. Without the library it is empty."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return nothing_read()
    code = call(library, "nvmlInit_v2")
    if code:
        return nothing_read("nvmlInit answered %d" % code)
    handles = nvml_handles(library)
    counters, links = {}, {}
    for index, (handle, uuid) in enumerate(handles):
        links[uuid] = gpu_links(library, handle)
        counters.update(gpu_counters(library, handle, "GPU %d" % index))
        counters.update(link_counters(library, handle, "GPU %d" % index))
    return {"pairs": joined_pairs(library, handles), "counters": counters, "links": links, "problem": None}


def call(library: Any, name: str, *arguments: Any) -> int:
    """The return code of a call; 13 (function not found) where the library is too old to have the function."""
    function = getattr(library, name, None)
    return function(*arguments) if function else 13


def nvml_handles(library: Any) -> list[tuple[Any, str]]:
    """[(handle, UUID)] in NVML's order."""
    count, handles = ctypes.c_uint(), []
    call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if call(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0 and call(library, "nvmlDeviceGetUUID", handle, text, 96) == 0:
            handles.append((handle, text.value.decode("ascii", "replace")))
    return handles


def joined_pairs(library: Any, handles: list[tuple[Any, str]]) -> list[list[str]]:
    """[[uuid, uuid]] of GPUs that NVLink connects, directly or through switches."""
    pairs, status = [], ctypes.c_int()
    for place, (first, name) in enumerate(handles):
        for second, other in handles[place + 1 :]:
            if call(library, "nvmlDeviceGetP2PStatus", first, second, NVLINK_CAPABILITY, ctypes.byref(status)) == 0 and status.value == 0:
                pairs.append([name, other])
    return pairs


def active_links(library: Any, handle: Any) -> list[int]:
    """Numbers of the NVLinks that are up."""
    active, state = ctypes.c_uint(), "nvmlDeviceGetNvLinkState"
    return [link for link in range(MOST_LINKS) if call(library, state, handle, link, ctypes.byref(active)) == 0 and active.value]


def gpu_links(library: Any, handle: Any) -> dict[str, int]:
    """{nvlinks, nvlink_mb_s, pcie_generation, pcie_width}: the links of this GPU; 0 for missing values."""
    links = active_links(library, handle)
    speed = FieldValue(NVLINK_SPEED, links[0] if links else 0)
    read = bool(links) and call(library, "nvmlDeviceGetFieldValues", handle, 1, ctypes.byref(speed)) == 0 and speed.code == 0
    found = {"nvlinks": len(links), "nvlink_mb_s": speed.value & 0xFFFFFFFF if read else 0}
    for name, function in (("pcie_generation", "nvmlDeviceGetMaxPcieLinkGeneration"), ("pcie_width", "nvmlDeviceGetMaxPcieLinkWidth")):
        value = ctypes.c_uint()
        found[name] = value.value if call(library, function, handle, ctypes.byref(value)) == 0 else 0
    return found


def gpu_counters(library: Any, handle: Any, gpu: str) -> dict[str, int]:
    """{"GPU 0 PCIe replays": 0, "GPU 0 corrected memory errors": 0}: the GPU's own counters."""
    counters, replays = {}, ctypes.c_uint()
    if call(library, "nvmlDeviceGetPcieReplayCounter", handle, ctypes.byref(replays)) == 0:
        counters["%s PCIe replays" % gpu] = replays.value
    for kind, name in COUNTED_ERRORS:
        count = ctypes.c_ulonglong()
        if call(library, "nvmlDeviceGetTotalEccErrors", handle, kind, SINCE_LOADED, ctypes.byref(count)) == 0:
            counters["%s %s" % (gpu, name)] = count.value
    return counters


def link_counters(library: Any, handle: Any, gpu: str) -> dict[str, int]:
    """{"GPU 0 link 3 replay errors": 0}; links that are not active are left out."""
    links = active_links(library, handle)
    counters = field_counters(library, handle, gpu, links, FIELDS)
    if not any(name.endswith("errors") for name in counters):
        counters.update(field_counters(library, handle, gpu, links, NVLINK5_FIELDS))
    older = {} if any(name.endswith("errors") for name in counters) else OLDER
    for link in links:
        for number, name in older.items():
            count = ctypes.c_ulonglong()
            if call(library, "nvmlDeviceGetNvLinkErrorCounter", handle, link, number, ctypes.byref(count)) == 0:
                counters["%s link %d %s" % (gpu, link, name)] = count.value
    return counters


def field_counters(library: Any, handle: Any, gpu: str, links: list[int], fields: Mapping[int, str]) -> dict[str, int]:
    """The same for these field values: {number: name}."""
    wanted = [(field, link) for link in links for field in fields]
    values = (FieldValue * len(wanted))(*[FieldValue(field, link) for field, link in wanted])
    if not wanted or call(library, "nvmlDeviceGetFieldValues", handle, len(wanted), values) != 0:
        return {}
    read = [one for one in values if one.code == 0 and one.kind != 0]  # type 0 is a double, and no counter is one; type 1 has 32 bits
    return {"%s link %d %s" % (gpu, one.scope, fields[one.field]): one.value & 0xFFFFFFFF if one.kind == 1 else one.value for one in read}


# burn_sensors.py: NVML's sensors under load: power, clocks, temperatures, throttling reasons; and settings that must not change ---------------------

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


# burn_guard.py: Checks whether a burn-in may begin here, and that it leaves the GPUs as they were ---------------------------------------------------

def visible_gpus(chosen: str | None, present: int) -> int:
    """How many GPUs the workers will see. chosen: CUDA_VISIBLE_DEVICES."""
    return len([one for one in chosen.split(",") if one.strip()]) if chosen else present


def refusals(plan: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Why no burn-in can run here: there is no GPU, or one is in use."""
    if plan["device"] != "cuda":
        return []
    if before["problem"] or not before["settings"]:
        return ["expected GPUs, found none: %s" % (before["problem"] or "NVML knows of no GPU")]
    reasons = []
    for number, row in enumerate(before["settings"]):
        if row["processes"]:
            reasons.append("GPU %d: expected nobody on it, found processes %s" % (number, ", ".join(map(str, row["processes"]))))
        elif (row["used_bytes"] or 0) > OCCUPIED_BYTES:
            reasons.append("GPU %d: expected free memory, found %d MiB in use by somebody whom NVML does not show here" % (number, row["used_bytes"] >> 20))
    return reasons


def settled(limit_s: float) -> dict[str, Any]:
    """The settings after the driver has freed the workers' memory, which takes it a moment."""
    until = time.monotonic() + limit_s
    while True:
        after = settings_now(limit_s)
        gone = not any(row["processes"] or (row["used_bytes"] or 0) > OCCUPIED_BYTES for row in after["settings"])
        if gone or after["problem"] or time.monotonic() > until:
            return after
        time.sleep(0.2)


# roots.py: Root of the system's own files: /, or another folder for a recorded machine --------------------------------------------------------------

def rooted(path: str) -> str:
    """UNHANG_SMOKE_ROOT in front of an absolute path."""
    return os.path.join(os.environ.get("UNHANG_SMOKE_ROOT") or "/", path.lstrip("/"))


# counters.py: Counters of network interfaces and RDMA ports, and how much they rose -----------------------------------------------------------------

COUNTED_OF = re.compile(r"(?:GPU \d+ link \d+|GPU \d+|\S+ port \d+|\S+) (.+)")  # the part before a counter's own name
NET = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors", "tx_carrier_errors")


def net_counters() -> dict[str, int]:
    """{name: count}: "eth0 rx_bytes", "mlx5_0 port 1 symbol_error"; all ports of all devices."""
    counts: dict[str, int] = {}
    net, rdma = rooted("/sys/class/net"), rooted("/sys/class/infiniband")
    for name in _names(net):
        _read_all(counts, name, os.path.join(net, name, "statistics"), NET)
    for name in _names(rdma):
        for port in _names(os.path.join(rdma, name, "ports")):
            for kind in ("counters", "hw_counters"):
                folder = os.path.join(rdma, name, "ports", port, kind)
                _read_all(counts, "%s port %s" % (name, port), folder, _names(folder))
    return counts


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read_all(counts: dict[str, int], name: str, folder: str, counters: Iterable[str]) -> None:
    for counter in counters:
        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, counter), encoding="ascii") as source:
            counts["%s %s" % (name, counter)] = int(source.read())


def peers_of(moved: Iterable[str], read: Iterable[str]) -> dict[str, int]:
    """{kind of a counter: how many of it were read} for each kind of which at least one rose: {"replay errors": 144, "symbol_error": 8}."""
    wanted = {found.group(1) for found in map(COUNTED_OF.match, moved) if found}
    kinds = [found.group(1) for found in map(COUNTED_OF.match, read) if found]
    return {kind: kinds.count(kind) for kind in sorted(wanted)}


def changed(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The counters that rose, and by how much."""
    return {name: after[name] - before.get(name, 0) for name in sorted(after) if after[name] != before.get(name, 0)}


# burn_looks.py: Counters of NVLink, PCIe and memory errors, read before, during and after the load --------------------------------------------------

COUNTERS_S = 60.0  # between readings under load
MOST_LOOKS = 24  # beyond that, every second reading is dropped: all readings go out in one line, and its reader accepts at most half a megabyte


class Looks:
    """rows: [{when, counted_s, read, problem, moved: {name: rise since the first reading}, peers: {kind: how many were read}}]."""

    def __init__(self, there: bool) -> None:
        self.there = there
        self.rows: list[dict[str, Any]] = []
        self.first: dict[str, int] = {}
        self.began = self.last = time.monotonic()
        self.question: NvmlQuestion | None = None

    def take(self, when: str, limit_s: float) -> None:
        """Takes one reading and waits for it."""
        if self.there:
            self.keep(NvmlQuestion().answer(limit_s), when)

    def take_if_due(self) -> None:
        """Reads the counters from time to time in a child process, without waiting for it."""
        now = time.monotonic()
        if not self.there or now - self.last < COUNTERS_S:
            return
        if self.question is None:
            self.question = NvmlQuestion()
        elif self.question.process.poll() is not None or now - self.question.began > NVML_S:
            self.keep(self.question.answer(0.1), "during")
            self.question, self.last = None, now

    def keep(self, answer: dict[str, Any], when: str) -> None:
        """Keeps only counters that rose, and how many counters of each such kind exist."""
        now, counters = time.monotonic(), answer["counters"]
        if when == "before":
            self.first, self.began = counters, now
        moved = changed(self.first, counters)
        self.rows.append({
            "when": when, "counted_s": round(now - self.began, 1), "read": len(counters), "problem": answer["problem"], "moved": moved,
            "peers": peers_of(moved, counters),
        })  # fmt: skip
        if len(self.rows) > MOST_LOOKS:
            del self.rows[1:-1:2]


# burn_tally.py: Readings of many minutes in little memory: sums and extremes by GPU and by the GPU's work at that time ------------------------------

READINGS = ("power_w", "sm_mhz", "memory_mhz", "temperature_c", "memory_temperature_c", "pcie_generation", "pcie_width")


class Tally:
    """rows: {(GPU's UUID, phase): {"samples", "power_w": [sum, least, most, count], ..., "reasons": {reason: samples}}}."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self.energy: dict[str, list[float]] = {}

    def add(self, uuid: str, phase: str, reading: dict[str, Any], at: float) -> None:
        """Adds one reading of one GPU. at: seconds."""
        row = self.rows.setdefault((uuid, phase), {"samples": 0, "reasons": {}})
        row["samples"] += 1
        for name in READINGS:
            value = reading.get(name)
            if value is not None:
                total, least, most, count = row.get(name) or (0.0, value, value, 0)
                row[name] = (total + value, min(least, value), max(most, value), count + 1)
        for reason in reading.get("reasons") or ():
            row["reasons"][reason] = row["reasons"].get(reason, 0) + 1
        if reading.get("energy_j") is not None and phase not in ("before", "after", "start"):
            first = self.energy.setdefault(uuid, [at, reading["energy_j"], at, reading["energy_j"]])
            first[2:] = [at, reading["energy_j"]]

    def report(self) -> list[dict[str, Any]]:
        """[{uuid, phase, samples, power_w: {mean, least, most}, ..., reasons}]."""
        rows = []
        for (uuid, phase), row in sorted(self.rows.items()):
            found: dict[str, Any] = {"uuid": uuid, "phase": phase, "samples": row["samples"], "reasons": row["reasons"]}
            for name in READINGS:
                total, least, most, count = row.get(name) or (0.0, None, None, 0)
                found[name] = {"mean": round(total / count, 2), "least": least, "most": most} if count else None
            rows.append(found)
        return rows

    def mean_power(self) -> dict[str, float]:
        """{UUID: W} under load, from the GPU's own energy counter."""
        return {uuid: round((last - first) / (end - begin), 2) for uuid, (begin, first, end, last) in self.energy.items() if end > begin}


# events.py: Writes events as lines of JSON ----------------------------------------------------------------------------------------------------------

def emit(descriptor: int, kind: str, **fields: Any) -> None:
    """Writes one event as one line in one write. An error means that the reader is gone, and the agent handles that, not the rank."""
    line = json.dumps(dict(fields, e=kind, t=round(time.time(), 3)), default=str).encode() + b"\n"
    with contextlib.suppress(OSError):
        while line:
            line = line[os.write(descriptor, line) :]


PIECE_BYTES = 800  # srun mixes the lines of its tasks when they are longer than a kilobyte


def shorten_lines(name: str) -> Callable[[], None]:
    """From now on, standard output is written in numbered pieces, `~NAME.LINE PIECE/PIECES text`. Returns a function that ends this."""
    reader, writer = os.pipe()
    real = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)

    def relay() -> None:
        with os.fdopen(reader, "rb") as lines:
            for number, whole in enumerate(lines):
                line = whole.rstrip(b"\n")
                pieces = [line[at : at + PIECE_BYTES] for at in range(0, len(line), PIECE_BYTES)]
                for place, piece in enumerate(pieces):
                    with contextlib.suppress(OSError):
                        os.write(real, b"~%s.%d %d/%d %s\n" % (name.encode(), number, place + 1, len(pieces), piece))

    thread = threading.Thread(target=relay)
    thread.start()

    def finish() -> None:
        sys.stdout.flush()
        os.close(1)
        thread.join()
        os.dup2(real, 1)

    return finish


# leftovers.py: Removes folders of runs whose launcher or agent was killed before it could do so -----------------------------------------------------

PREFIX = "unhang-smoke-"
RECORD = "keep-until"
MARGIN_S = 3600.0  # after a run's own deadline: no launcher waits that long for results
UNTOLD_S = 86400.0  # for a folder whose agent ended before it recorded a time


def hold_folder(folder: str, seconds: float) -> None:
    """Keeps this folder for this time, and as long as this process runs: the descriptor stays open on purpose, and no rank inherits it."""
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH | fcntl.LOCK_NB)
    with contextlib.suppress(OSError), open(os.path.join(folder, RECORD), "w", encoding="ascii") as target:
        target.write("%d\n" % (time.time() + seconds + MARGIN_S))


def clear_leftovers(now: float) -> list[str]:
    """Removes this user's folders that are past their time, and returns their names. now: seconds since the epoch."""
    parent, cleared = tempfile.gettempdir(), []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(parent)):
            folder = os.path.join(parent, name)
            if name.startswith(PREFIX) and is_left_over(folder, now):
                shutil.rmtree(folder, ignore_errors=True)
                cleared.append(name)
    return cleared


def is_left_over(folder: str, now: float) -> bool:
    """Whether the folder belongs to this user, is past its time, and is not locked."""
    try:
        known = os.lstat(folder)
        if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.geteuid() or now < wanted_until(folder, known):
            return False
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return False
    return True


def wanted_until(folder: str, known: os.stat_result) -> float:
    """Seconds since the epoch. Raises OSError, ValueError for an empty record."""
    try:
        with open(os.path.join(folder, RECORD), encoding="ascii") as source:
            return float(source.read(64))
    except FileNotFoundError:
        return known.st_mtime + UNTOLD_S


# limits.py: Times and sizes that more than one part needs -------------------------------------------------------------------------------------------

VERSION = 1
STEP_S = 10.0  # a step (one collective) that takes longer has stalled; collecting evidence included, the verdict exists within 20 s
GRACE_S = 3.0  # for the peers of a dead rank to notice its end
SLOW_BYTES_S = 0.5e9  # the bandwidth that a large message needs at least, even on the slowest network that is used for training
START_S = 30.0  # for an interpreter to start and read this file, until its first event
EVIDENCE_S = 4.0  # for ranks to answer with stacks and recordings
SELF_END_S = 20.0  # a rank that nothing has ended by then ends itself, from a thread that needs no interpreter
STOPPED_S = 3.0  # how long a process may be in state T before it counts as stalled
POLL_S = 0.1
LINE_BYTES = 256 * 1024
MOST_READS = 10_000  # of pipes, before the loop that reads them ends


# mapped.py: Which libraries a process has mapped, and its settings ----------------------------------------------------------------------------------

SHOWN_VARIABLES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "LD_PRELOAD", "LD_LIBRARY_PATH", "UCX_", "FI_")


def mapped_libraries(prefix: str, maps: str = "/proc/self/maps") -> list[str]:
    """Paths of mapped files whose name begins with `prefix`, in the order of the map."""
    found = []
    with contextlib.suppress(OSError), open(maps, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 5)[-1]
            if path.startswith("/") and os.path.basename(path).startswith(prefix) and path not in found:
                found.append(path)
    return found


def build_id(path: str) -> str | None:
    """The GNU build id of a 64-bit little-endian ELF file in hex, or None."""
    try:
        with open(path, "rb") as library:
            head = library.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return None
            table, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            library.seek(table)
            rows = library.read(size * min(count, 128))
            for at in range(0, len(rows) - 55, size):
                kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", rows, at)
                if kind == 4 and length <= 65536:  # PT_NOTE
                    library.seek(offset)
                    found = _gnu_note(library.read(length))
                    if found:
                        return found
    except (OSError, struct.error):
        pass
    return None


def _gnu_note(notes: bytes) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name, length, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[content : content + length].hex()
        at = content + (length + 3 & ~3)
    return None


def nccl_in_process() -> list[dict[str, Any]]:
    """[{path, version, build_id}] of every libnccl that is really mapped; the version comes from the library itself."""
    answers = []
    for path in mapped_libraries("libnccl.so"):
        number = ctypes.c_int(0)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
        answers.append({"path": path, "version": nccl_version(number.value), "build_id": build_id(path)})
    return answers


def nccl_version(number: int) -> str | None:
    """22809 -> 2.28.9; 2708 -> 2.7.8 (the older numbering); None for 0."""
    if not number:
        return None
    major = 10000 if number >= 10000 else 1000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


def shown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that control how ranks communicate and which devices they see."""
    return {name: environment[name] for name in sorted(environment) if name.startswith(SHOWN_VARIABLES)}


def nccl_conf_lines() -> list[list[str]]:
    """[path, line] of NCCL's own configuration files, where they are readable."""
    rows = []
    for path in ("/etc/nccl.conf", os.path.expanduser("~/.nccl.conf"), os.environ.get("NCCL_CONF_FILE") or ""):
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8", errors="replace") as lines:
            rows += [[path, line.strip()[:200]] for line in list(lines)[:100] if line.strip() and not line.lstrip().startswith("#")]
    return rows


def boot_id() -> str:
    """An id of the machine that does not depend on its name; two containers of one machine have the same."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return socket.gethostname()


def read_driver() -> str | None:
    """The loaded NVIDIA driver's version, or None."""
    with contextlib.suppress(OSError), open(rooted("/sys/module/nvidia/version"), encoding="ascii") as source:
        return source.read().strip()
    return None


# watched.py: Processes that an agent monitors: each in its own session, with a pipe for events, and ended together with the agent -------------------

class Watched:
    """A process as its agent sees it. events: pipe that it writes events to; buffer: an incomplete line; output: its last lines; code: its exit code."""

    def __init__(self, process: subprocess.Popen[bytes], events: int) -> None:
        self.process, self.events = process, events
        self.code: int | None = None
        self.buffer = b""
        self.output: list[str] = []


def start_process(argv: list[str], environment: Mapping[str, str], begin: Callable[[], None]) -> tuple[subprocess.Popen[bytes], int]:
    """(the process, the pipe of its events). argv: `--events` and the pipe's other end are added. begin: runs in the child before exec."""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [*argv, "--events", str(writer)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=[writer], start_new_session=True, preexec_fn=begin,
        )  # fmt: skip
    finally:
        os.close(writer)
    return process, reader


def listen_to(child: Watched, selector: selectors.BaseSelector) -> None:
    """Registers the pipes, so that the selector reports events and output of the processes."""
    assert child.process.stdout is not None
    for descriptor in (child.events, child.process.stdout.fileno()):
        os.set_blocking(descriptor, False)
    selector.register(child.events, selectors.EVENT_READ, child)
    selector.register(child.process.stdout, selectors.EVENT_READ, child)


def add_output(child: Watched, piece: bytes) -> None:
    """The last lines that a process printed."""
    child.output = (child.output + piece.decode("utf-8", "replace").splitlines())[-40:]


def reap(children: Iterable[Watched]) -> None:
    """Records the processes that have ended."""
    for child in children:
        if child.code is None and child.process.poll() is not None:
            child.code = child.process.returncode


def end_politely(ask: Callable[[int], None]) -> None:
    """Signals only request a stop from now on. The launcher's death ends no process, and orphans of children become children of this process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: ask(number))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are ended with the other processes


# burn_agent.py: The burn-in's agent: refuses if a GPU is in use, starts a worker for each GPU, reads sensors, and ends all of them in every case ----

PREPARE_S, SILENT_S = 240.0, 90.0  # for a worker to be ready; without any event after that
ENDING_S, KILLED_S, HURRY_S = 3.0, 2.0, 1.5  # from SIGTERM to SIGKILL; from SIGKILL to the end; for NVML after a signal: together less than 10 s
PROGRESS_S = 10.0
DONE = ("count", "seconds", "work", "wrong", "slowest", "fastest")


class BurnChild(Watched):
    """One worker as its agent sees it. done: work done so far by type; message: the worker's own reason for ending."""

    def __init__(self, gpu: int, process: subprocess.Popen[bytes], events: int) -> None:
        super().__init__(process, events)
        self.gpu = gpu
        self.heard = time.monotonic()
        self.phase, self.ready = "start", False
        self.uuid: str | None = None
        self.message: str | None = None
        self.done: dict[str, dict[str, Any]] = {}


class BurnAgent:
    """plan: {device, nproc or None, duration_s, round_s, python, types, memory_bytes, drill, watch_stdin}."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.host = plan.get("host") or socket.gethostname()
        self.children: list[BurnChild] = []
        self.selector = selectors.DefaultSelector()
        self.stop: str | None = None
        self.trouble: str | None = None
        self.tally = Tally()
        self.sensors: Sensors | None = None
        self.uuids: list[str] = []
        self.began = time.monotonic()
        self.progress = self.began
        self.looks = Looks(plan["device"] == "cuda")

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this node."""
        emit(1, kind, host=self.host, **fields)

    def work(self) -> int:
        """0 the workers finished their work, 1 something failed, 2 refused."""
        self.event("burn_begin", device=self.plan["device"], duration_s=self.plan["duration_s"], machine=boot_id(), pid=os.getpid())
        before: dict[str, Any] = {"settings": [], "problem": None}
        if self.plan["device"] == "cuda":
            self.sensors = Sensors(PERIOD_S)
            before = first_answer(self.sensors, NVML_S)
            self.uuids = [row["uuid"] for row in before["settings"]]
        reasons = refusals(self.plan, before)
        if not reasons:
            self.ask_dcgm()
        if reasons or self.stop:
            self.close_sensors()
            self.event("refused", reasons=reasons or ["ended by %s before it began" % self.stop])
            return 2
        try:
            self.looks.take("before", NVML_S)
            visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), len(before["settings"]))
            self.start(self.plan.get("nproc") or visible)
            self.watch()
        except OSError as problem:
            self.trouble = "%s: %s" % (problem.filename or "", problem.strerror or problem)
        finally:
            self.end_workers()
        self.finish(before)
        return 1 if self.trouble or any(child.code for child in self.children) else 0

    def ask_dcgm(self) -> None:
        """Runs NVIDIA's own diagnosis, if installed. It uses the GPUs itself, so it runs before the load."""
        level = dcgm_level(self.plan["duration_s"])
        answer = run_dcgm(level, DCGM_LIMIT_S[level], lambda: bool(self.stop)) if self.plan["device"] == "cuda" else None
        if answer is not None:
            self.event("dcgm", **answer)
            settled(HURRY_S if self.stop else NVML_S)

    def finish(self, before: dict[str, Any]) -> None:
        """Reports the measurements, and the state of the GPUs now beside their state before."""
        after: dict[str, Any] = {"settings": [], "problem": None}
        self.close_sensors()
        if self.plan["device"] == "cuda":
            limit_s = HURRY_S if self.stop else NVML_S
            self.looks.take("after", limit_s)
            after = settled(limit_s)
        self.event(
            "burn_end", reason=self.stop, trouble=self.trouble, seconds=round(time.monotonic() - self.began, 1),
            workers=[
                {"gpu": child.gpu, "uuid": child.uuid, "code": child.code, "ready": child.ready, "phase": child.phase, "done": child.done}
                for child in self.children
            ],
            readings=self.tally.report(), power_w=self.tally.mean_power(), counters=self.looks.rows, before=before, after=after,
        )  # fmt: skip

    def start(self, nproc: int) -> None:
        """All workers, each in a session of its own."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            meeting = "tcp://127.0.0.1:%d" % probe.getsockname()[1]
        for gpu in range(nproc):
            self.children.append(self.start_worker(gpu, dict(self.plan, nproc=nproc, meeting=meeting)))
        if self.plan.get("watch_stdin"):
            os.set_blocking(0, False)
            self.selector.register(0, selectors.EVENT_READ, "stdin")

    def start_worker(self, gpu: int, plan: dict[str, Any]) -> BurnChild:
        """One worker with its pipe for events."""
        argv = [plan.get("python") or sys.executable, "-u", os.path.abspath(__file__), "worker", "--gpu", str(gpu)]
        environment = dict(
            os.environ, UNHANG_BURN_IN_PLAN=json.dumps(plan), CUDA_DEVICE_ORDER="PCI_BUS_ID", PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR"
        )
        process, events = start_process(argv, environment, die_with_parent)
        child = BurnChild(gpu, process, events)
        listen_to(child, self.selector)
        return child

    def watch(self) -> None:
        """Runs until all workers have ended, one of them fails or is silent, or a stop is requested."""
        while any(child.code is None for child in self.children) and not self.stop and not self.trouble:
            self.listen(POLL_S)
            self.read_sensors()
            self.looks.take_if_due()
            self.report_progress()
            reap(self.children)
            self.find_trouble()

    def find_trouble(self) -> None:
        """Sets trouble where a worker failed or has reported nothing for too long."""
        now = time.monotonic()
        failed = [child for child in self.children if child.code not in (None, 0)]
        silent = [child for child in self.children if child.code is None and now - child.heard > (SILENT_S if child.ready else PREPARE_S)]
        if failed:
            self.listen(POLL_S)
            self.trouble = "a worker failed"
        elif silent:
            self.trouble = "a worker is silent"
        for child in failed:
            self.event("worker_exit", gpu=child.gpu, code=child.code, signal=signal_name(child.code or 0), message=child.message, output=child.output[-10:])
        for child in silent if not failed else ():
            state, wchan = process_state(child.process.pid)
            self.event("silent", gpu=child.gpu, phase=child.phase, seconds=round(now - child.heard, 1), state=state, wchan=wchan)

    def listen(self, wait_s: float) -> bool:
        """Reads the workers' output, for at most wait_s. Returns whether there was any."""
        ready = self.selector.select(wait_s)
        for key, _ in ready:
            try:
                piece = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if key.data == "stdin":
                if not piece:
                    self.selector.unregister(0)
                    self.stop = self.stop or "the end of its launcher"
            elif not piece:
                self.selector.unregister(key.fileobj)
            elif key.fd == key.data.events:
                self.hear(key.data, piece)
            else:
                add_output(key.data, piece)
        return bool(ready)

    def hear(self, child: BurnChild, piece: bytes) -> None:
        """Handles complete events: progress is only recorded, because there are very many such events; all others are passed on."""
        *lines, child.buffer = (child.buffer + piece).split(b"\n")
        child.buffer = child.buffer[-LINE_BYTES:]
        child.heard = time.monotonic()
        for line in lines:
            event = json.loads(line)
            if event["e"] == "phase":
                child.phase = event["phase"]
                continue
            if event["e"] == "work":
                child.done[event["what"]] = {name: event[name] for name in DONE}
                continue
            child.uuid = event.get("uuid") or child.uuid
            child.ready = child.ready or event["e"] == "ready"
            child.message = event.get("message") or child.message
            with contextlib.suppress(OSError):
                os.write(1, line[:LINE_BYTES] + b"\n")

    def read_sensors(self) -> None:
        """Adds the sensors' readings to the tally, by the current work of each GPU."""
        phases = {child.uuid: child.phase for child in self.children}
        for line in self.sensors.lines() if self.sensors else ():
            for uuid, reading in zip(self.uuids, line["gpus"]):
                self.tally.add(uuid, phases.get(uuid, "start"), reading, line["at"])

    def report_progress(self) -> None:
        """Reports from time to time what all workers have done."""
        now = time.monotonic()
        if now - self.progress >= PROGRESS_S:
            self.progress = now
            rows = [row for child in self.children for row in child.done.values()]
            ready, count, wrong = sum(child.ready for child in self.children), sum(row["count"] for row in rows), sum(row["wrong"] for row in rows)
            self.event("progress", seconds=round(now - self.began), ready=ready, workers=len(self.children), results=count, wrong=wrong)

    def end_workers(self) -> None:
        """Asks workers to end, so that they can report their work; then sends SIGKILL. Survivors are named."""
        for number, limit_s in ((signal.SIGTERM, ENDING_S), (signal.SIGKILL, KILLED_S)):
            for child in self.children:
                if child.code is None and number == signal.SIGTERM:
                    with contextlib.suppress(OSError):
                        child.process.terminate()
                elif number == signal.SIGKILL:
                    end_session(child.process.pid)
            until = time.monotonic() + limit_s
            while time.monotonic() < until and any(child.code is None for child in self.children):
                self.listen(0.02)
                reap(self.children)
        for _ in range(MOST_READS):
            if not self.listen(0):
                break
        for child in self.children:
            if child.code is None:
                state, wchan = process_state(child.process.pid)
                self.event("worker_unkillable", gpu=child.gpu, pid=child.process.pid, state=state, wchan=wchan)

    def close_sensors(self) -> None:
        """Ends the child that reads the sensors."""
        if self.sensors:
            self.sensors.end()
            self.sensors = None


def run_burn_agent(plan: dict[str, Any]) -> int:
    """Runs the agent with signal handlers installed: SIGTERM ends the workers too."""
    agent = BurnAgent(plan)
    own = os.path.dirname(os.path.abspath(__file__))
    if os.path.basename(own).startswith(PREFIX):
        hold_folder(own, plan["duration_s"] + PREPARE_S + max(DCGM_LIMIT_S.values()))
    end_politely(lambda number: setattr(agent, "stop", agent.stop or signal.Signals(number).name))
    return agent.work()


# board.py: The shared page of memory in which each rank records its current step for its agent ------------------------------------------------------

class Board:
    """A page of memory that a rank shares with its agent through a file: it can be read when the rank is stopped, hung or dead.

    Numbers: collectives entered and finished, when the step began, the step's deadline, the phase's deadline (CLOCK_MONOTONIC, s).
    """

    NUMBERS = struct.Struct("<qqddd")
    ASKED, ANSWERED, TEXT, SIZE = 48, 49, 64, 1024

    def __init__(self, path: str, create: bool = False) -> None:
        if create:
            with open(path, "wb") as fresh:
                fresh.write(b"\0" * self.SIZE)
        with open(path, "r+b") as shared:
            self.memory = mmap.mmap(shared.fileno(), self.SIZE)
        self.entered = self.done = 0
        self.phase, self.phase_until = "", 0.0

    def begin(self, phase: str, step: str, step_s: float, phase_until: float) -> None:
        """Records a step before it starts."""
        text = ("%s\n%s" % (phase, step)).encode()[: self.SIZE - self.TEXT - 1]
        self.memory[self.TEXT : self.TEXT + len(text) + 1] = text + b"\0"
        now = time.monotonic()
        self.NUMBERS.pack_into(self.memory, 0, self.entered, self.done, now, now + step_s, phase_until)

    def enter(self) -> None:
        """Records that this rank is about to enter its next collective."""
        self.entered += 1
        struct.pack_into("<q", self.memory, 0, self.entered)

    def leave(self) -> None:
        """Records that the collective has finished, on the device too."""
        self.done = self.entered
        struct.pack_into("<q", self.memory, 8, self.done)

    def read(self) -> dict[str, Any]:
        """The recorded values: phase, step, seq (entered), done, began, until, phase_until."""
        entered, done, began, until, phase_until = self.NUMBERS.unpack_from(self.memory, 0)
        text = bytes(self.memory[self.TEXT :]).split(b"\0", 1)[0].decode("utf-8", "replace")
        phase, _, step = text.partition("\n")
        return {"phase": phase, "step": step, "seq": entered, "done": done, "began": began, "until": until, "phase_until": phase_until}

    def flag(self, place: int, value: int | None = None) -> int:
        """Reads or sets one of the two flags (ASKED: the agent wants a dump; ANSWERED: it is written)."""
        if value is not None:
            self.memory[place] = value
        return self.memory[place]


# run.py: A rank's state: its rank number, its steps, its planned faults, and its exchange with the others outside the network under test ------------

MOST_STEPS, LEAST_STEP_S = 4, 0.1  # of the steps that are reported


class Failed(Exception):
    """A phase failed; the text has what was expected and what was found. more: fields of the event."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message)
        self.more = more


class Run:
    """State of a rank: its rank number, its plan, its board; torch and the process group once they exist."""

    def __init__(self, plan: dict[str, Any], place: tuple[int, int, int, int], descriptor: int, folder: str) -> None:
        self.plan, self.descriptor, self.folder = plan, descriptor, folder
        self.rank, self.world, self.local_rank, self.local_world = place
        self.board = Board(os.path.join(folder, "board-%d" % self.rank), create=True)
        self.stacks = open(os.path.join(folder, "stacks-%d" % self.rank), "w+", encoding="utf-8")  # noqa: SIM115 -- open as long as the process lives
        self.host = plan.get("host") or socket.gethostname()
        self.phases: tuple[str, ...] = ()
        self.phase, self.phase_until = "", 0.0
        self.torch: Any = None
        self.dist: Any = None
        self.store: Any = None
        self.device: Any = None
        self.backend: str | None = None
        self.groups: Any = None
        self.facts: dict[str, Any] = {}
        self.losses: Sequence[float] = ()
        self.seed, self.last_status = 0, "ok"
        self.steps: dict[str, float] = {}
        self.step_name, self.step_began = "", time.monotonic()

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this rank, in this phase."""
        emit(self.descriptor, kind, rank=self.rank, host=self.host, phase=self.phase, **fields)

    def step(self, name: str, limit_s: float | None = None) -> None:
        """Announces a step: from now on the agent measures its time. A timer in this process measures it too, and ends the process if the agent does not."""
        limit_s = limit_s or self.plan.get("step_timeout_s") or STEP_S
        limit_s = min(limit_s, max(0.5, self.phase_until - time.monotonic()))
        self.end_step(name)
        self.board.begin(self.phase, name, limit_s, self.phase_until)
        faulthandler.dump_traceback_later(limit_s + SELF_END_S, exit=True, file=self.stacks)

    def end_step(self, following: str = "") -> None:
        """Notes how long the step before took."""
        now = time.monotonic()
        self.steps[self.step_name] = self.steps.get(self.step_name, 0.0) + now - self.step_began
        self.step_name, self.step_began = following, now

    def longest_steps(self) -> dict[str, float]:
        """{step: seconds} of the phase's longest steps, which shows where its time was spent; then the counting starts again for the next phase."""
        self.end_step()
        longest = sorted(self.steps.items(), key=lambda step: -step[1])[:MOST_STEPS]
        self.steps = {}
        return {name: round(seconds, 3) for name, seconds in longest if seconds >= LEAST_STEP_S}

    def collective(self, name: str, call: Callable[[], Any], size_bytes: int = 0, expected_s: float | None = None) -> Any:
        """One collective, counted before it is entered and after it is over. Returns its result; the device has finished.

        Its limit is that of any collective plus the time that its size takes on a slow network, or plus three times the expected time, where one was measured.
        """
        base_s = self.plan.get("step_timeout_s") or STEP_S
        slow = SLOW_BYTES_S if self.backend == "nccl" else SLOW_BYTES_S / 5
        self.step(name, base_s + (size_bytes / slow if expected_s is None else 3 * expected_s))
        drill(self)
        self.board.enter()
        result = call()
        self.await_device()
        self.board.leave()
        return result

    def await_device(self) -> None:
        """Waits for the device."""
        if self.device is not None and self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def free_bytes(self) -> int:
        """Memory that this rank may use: of its GPU, or its share of the machine's."""
        if self.device is not None and self.device.type == "cuda":
            return int(self.torch.cuda.mem_get_info()[0])
        with open("/proc/meminfo", encoding="ascii") as lines:
            available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 1 << 30)
        return available // max(1, self.local_world)

    def scaled(self, elements: int, element_bytes: int, copies: int) -> int:
        """The number of elements that was requested, limited by memory (half of what is free) and by the plan's largest message."""
        room = min(self.free_bytes() // 2, copies * (self.plan.get("max_bytes") or 1 << 62)) // (copies * element_bytes)
        agreed = self.torch.tensor([min(elements, room)], dtype=self.torch.int64, device=self.device)
        self.collective("agree on the size", lambda: self.dist.all_reduce(agreed, op=self.dist.ReduceOp.MIN))
        return max(self.world, int(agreed) // self.world * self.world)


def drill(run: Run) -> None:
    """Runs a planned fault, so that the smoke test itself can be tested: `--drill RANK:FAULT[:PHASE]`. Once per run, except for lasting faults."""
    for fault in run.plan.get("drills") or ():
        if fault["rank"] != run.rank or fault.get("phase", "all_reduce") != run.phase:
            continue
        if fault["fault"] == "absent":
            while True:
                time.sleep(3600)
        elif fault["fault"] == "exit":
            os._exit(7)
        elif fault["fault"] == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault["fault"] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault["fault"] == "read":
            with contextlib.suppress(OSError), open(os.environ["UNHANG_DRILL_FILE"], "rb") as source:
                source.read(1)


def drilled(run: Run, fault: str) -> bool:
    """Whether this rank must show this lasting fault."""
    return any(one["rank"] == run.rank and one["fault"] == fault for one in run.plan.get("drills") or ())


def short_list(numbers: Sequence[int]) -> str:
    """3, 5, 8 and 40 more."""
    shown = ", ".join(map(str, numbers[:16]))
    return shown if len(numbers) <= 16 else "%s and %d more" % (shown, len(numbers) - 16)


def wait_for(run: Run, keys: list[str], limit_s: float) -> None:
    """Waits until the store has all keys."""
    until = time.monotonic() + limit_s
    for key in keys:
        while not run.store.check([key]):
            if time.monotonic() > until:
                raise Failed("expected %s in the store, found nothing within %.0f s" % (key, limit_s))
            time.sleep(0.02)


def arrive(run: Run, name: str) -> None:
    """Records at the store that this rank has arrived, whatever its result."""
    run.store.add("met/" + name, 1)


def await_all(run: Run, name: str) -> None:
    """Waits until all ranks have arrived, without the network under test. The waiting rank arrives first."""
    limit_s = run.phase_until - time.monotonic()
    run.step("wait for the others after %s" % name, limit_s)
    while run.store.add("met/" + name, 0) < run.world:
        time.sleep(0.02)


def meet(run: Run, name: str) -> None:
    """All ranks meet at the store."""
    arrive(run, name)
    await_all(run, name)


# pattern.py: Test data whose result is exactly known ------------------------------------------------------------------------------------------------

def pattern(torch: Any, device: Any, count: int, source: int, seed: int, bound: int, dtype: Any, start: int = 0) -> Any:
    """`count` whole numbers in [-bound, bound], scrambled from their place, the source rank and the seed: any rank can compute what any other rank sent.

    Whole numbers up to 256 are exact in bfloat16, and so are their sums: a result is either right or wrong, never approximately right.
    """
    place = torch.arange(start, start + count, dtype=torch.int64, device=device)
    mixed = (place + source * 1_000_003 + seed * 7_919) * 6364136223846793005 + 1442695040888963407
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return ((mixed >> 33).remainder(2 * bound + 1) - bound).to(dtype)


def reduced_pattern(torch: Any, run: Run, count: int, seed: int, dtype: Any, start: int = 0) -> Any:
    """The expected result of all_reduce: the sum over the inputs of all ranks."""
    total = torch.zeros(count, dtype=torch.int64, device=run.device)
    for source in range(run.world):
        total += summand(torch, run, count, source, seed, torch.int64, start)
    return total.to(dtype)


def summand(torch: Any, run: Run, count: int, source: int, seed: int, dtype: Any, start: int = 0) -> Any:
    """One rank's input of a sum. With more than 256 ranks only every k-th rank has a value other than zero at a place, so that the sum stays exact."""
    values = pattern(torch, run.device, count, source, seed, max(1, 256 // run.world), dtype, start)
    share = -(-run.world // 256)
    if share > 1:
        place = torch.arange(start, start + count, dtype=torch.int64, device=run.device)
        values = values * ((place + source) % share == 0).to(dtype)
    return values


def wrong_elements(torch: Any, found: Any, expected: Any) -> int:
    """How many elements differ; NaN differs from everything."""
    return int((found != expected).sum())


# burn_products.py: Matrix products whose results are known exactly, bit by bit ----------------------------------------------------------------------

class Kind(NamedTuple):
    """bound: of the inputs' magnitudes; shift: inputs are divided by 2^shift; limit: the accumulator is exact for whole numbers up to this; most_inner: length
    of a sum up to which bound keeps it within limit; share: of a round's time."""

    bound: int
    shift: int
    limit: int
    most_inner: int
    share: float


# float32 has 24 digits. Tensor cores of Hopper keep about 14 digits of a sum of FP8 products (DeepSeek-V3 Technical Report, https://arxiv.org/abs/2412.19437,
# 3.3.2): with sums below 2^13 nothing is lost there either. TF32 has 11 digits for inputs.
KINDS = {
    "bfloat16": Kind(60, 0, 2**24, 16384, 0.55),
    "float16": Kind(60, 4, 2**24, 16384, 0.2),
    "float8_e4m3fn": Kind(2, 0, 2**13, 4096, 0.06),
    "int8": Kind(127, 0, 2**31 - 1, 16384, 0.08),
    "tf32": Kind(60, 0, 2**24, 16384, 0.07),
    "float32": Kind(60, 0, 2**24, 16384, 0.04),
}
RESULTS = {"float8_e4m3fn": "bfloat16", "int8": "int32", "tf32": "float32"}  # where it differs from the type of the inputs
PERIOD = 256
MOST_LISTED = 8
BITS = {2: "int16", 4: "int32"}
UNSUPPORTED = (RuntimeError, AttributeError, NotImplementedError, TypeError, ValueError)  # what torch raises for a type that torch or the GPU does not support


class Product:
    """One product of one type, ready to be repeated. rows: of the square result; inner: length of the sums; total: sum of the result's 64-bit words."""

    def __init__(self, torch: Any, device: Any, name: str, rows: int, inner: int) -> None:
        self.torch, self.device, self.name, self.kind = torch, device, name, KINDS[name]
        self.rows, self.inner = rows, min(inner, self.kind.most_inner)
        self.period = min(PERIOD, rows)
        self.flops = 2.0 * rows * rows * self.inner
        left, right = self._block(1), self._block(2)
        most = float((left.abs() @ right.abs().t()).max())
        if most > self.kind.limit:
            raise AssertionError("%s: expected sums of magnitudes of at most %d, found %.0f" % (name, self.kind.limit, most))
        exact = (left @ right.t()) * 2.0 ** (-2 * self.kind.shift)
        expected = exact.to(getattr(torch, RESULTS.get(name, name)))
        # Each element of the CPU's block occurs (rows / period)^2 times in the whole result.
        self.total = wrapped(int(expected.view(torch.int64).sum()) * (rows // self.period) ** 2)
        self.expected = expected.to(device)
        self.left, self.right = self._whole(left), self._whole(right).t()
        if name == "float8_e4m3fn":
            self.one = torch.ones((), dtype=torch.float32, device=device)

    def _block(self, seed: int) -> Any:
        """`period` rows of whole numbers, float64, on the CPU."""
        values = pattern(self.torch, "cpu", self.period * self.inner, 0, seed, self.kind.bound, self.torch.float64)
        return values.reshape(self.period, self.inner)

    def _whole(self, block: Any) -> Any:
        kind = {"tf32": "float32"}.get(self.name, self.name)
        scaled = (block * 2.0**-self.kind.shift).to(self.torch.float32).to(self.device)
        return scaled.repeat(self.rows // self.period, 1).to(getattr(self.torch, kind))

    def run(self) -> Any:
        """Starts one product and does not wait for its result. Raises torch's error where torch or the GPU does not support the type."""
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = self.name == "tf32"
        if self.name == "int8":
            return torch._int_mm(self.left, self.right)
        if self.name != "float8_e4m3fn":
            return torch.matmul(self.left, self.right)
        found = torch._scaled_mm(self.left, self.right, scale_a=self.one, scale_b=self.one, out_dtype=torch.bfloat16, use_fast_accum=True)
        return found[0] if isinstance(found, tuple) else found

    def total_of(self, result: Any) -> Any:
        """The sum of the result's bits as 64-bit words, modulo 2^64, still on the device: one bit that differs always changes it."""
        return result.view(self.torch.int64).sum()

    def wrong_places(self, result: Any) -> tuple[int, list[dict[str, Any]]]:
        """How many elements differ from the expected ones in any bit, and the first of them."""
        torch, size = self.torch, result.element_size()
        bits = getattr(torch, BITS[size])
        blocks = result.view(bits).view(self.rows // self.period, self.period, self.rows // self.period, self.period)
        wanted = self.expected.view(bits)[None, :, None, :]
        different = (blocks != wanted).view(self.rows, self.rows)
        count = int(different.sum())
        listed = []
        for row, column in different.nonzero()[:MOST_LISTED].tolist() if count else ():
            found = int(result.view(bits)[row, column]) & (1 << 8 * size) - 1
            right = int(self.expected.view(bits)[row % self.period, column % self.period]) & (1 << 8 * size) - 1
            listed.append(wrong_place(result.data_ptr() + (row * self.rows + column) * size, found, right, 8 * size, "row %d, column %d" % (row, column)))
        return count, listed

    def flip(self, result: Any, place: int, bit: int) -> None:
        """For a drill: flips one bit of one element."""
        flat = result.view(getattr(self.torch, BITS[result.element_size()])).view(-1)
        flat[place] ^= 1 << bit


def wrong_place(address: int, found: int, right: int, width: int, where: str) -> dict[str, Any]:
    """{address, where, expected, found, bits}: the GPU's virtual address, both values as they are in memory, and the bits that differ."""
    form = "0x%%0%dx" % (width // 4)
    return {
        "address": "0x%x" % address, "where": where, "expected": form % right, "found": form % found,
        "bits": [bit for bit in range(width) if (found ^ right) >> bit & 1],
    }  # fmt: skip


def is_fault(problem: BaseException) -> bool:
    """Whether torch reports a GPU that failed, and not a type or a library that is missing."""
    return "CUDA error" in str(problem) and "CUBLAS_STATUS_NOT_SUPPORTED" not in str(problem)


def wrapped(value: int) -> int:
    """As a signed number of 64 bits, the type of torch's sums."""
    return (value + 2**63) % 2**64 - 2**63


def make_product(torch: Any, device: Any, name: str, rows: int, inner: int) -> tuple[Product | None, dict[str, Any]]:
    """(product or None, what to report of it): whether the GPU supports the type, how long a product takes, whether the first two results are as expected."""
    try:
        product = Product(torch, device, name, rows, inner)
        results = [product.run() for _ in range(2)]
        totals = [int(product.total_of(result)) for result in results]
        began = time.monotonic()
        int(product.total_of(product.run()))
        took = time.monotonic() - began
    except UNSUPPORTED as problem:
        if is_fault(problem):
            raise
        return None, {"type": name, "status": "absent", "why": " ".join(str(problem).split())[:200]}
    report: dict[str, Any] = {"type": name, "status": "ready", "digest": "%016x" % (totals[0] % 2**64), "one_s": round(took, 6), "inner": product.inner}
    if totals != [product.total] * 2:
        count, listed = product.wrong_places(results[0])
        report.update(status="inexact", wrong=count, places=listed, repeats=totals[0] == totals[1])
        return None, report
    return product, report


# burn_collectives.py: Collectives between the products: sums over all GPUs with exactly known results, and decisions that all ranks must share ------

BUFFERS = 8
BOUND = 100  # whole numbers; their sums over all GPUs, weighted by rank, stay far below 2^24 and are therefore exact in float32 in any order
MOST_WRONG = 8


class Collectives:
    """The process group of all workers, with this rank's data and the expected sums."""

    def __init__(self, torch: Any, device: Any, place: tuple[int, int], meeting: str, count: int) -> None:
        self.torch, self.device, (self.rank, self.world) = torch, device, place
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        self.count = count
        if self.world == 1:
            return
        limit = datetime.timedelta(seconds=300)
        torch.distributed.init_process_group(self.backend, init_method=meeting, rank=self.rank, world_size=self.world, timeout=limit)
        base = pattern(torch, device, count, 0, 3, BOUND, torch.float32)
        self.own = base * (self.rank + 1)
        self.expected = base * (self.world * (self.world + 1) // 2)
        self.buffers = [torch.empty_like(base) for _ in range(BUFFERS)]
        self.agree(False)

    def agree(self, end: bool) -> bool:
        """Whether any of the workers is to end."""
        if self.world == 1:
            return end
        flag = self.torch.full((1,), int(end), dtype=self.torch.int32, device=self.device)
        self.torch.distributed.all_reduce(flag, op=self.torch.distributed.ReduceOp.MAX)
        return bool(int(flag))

    def sum_up(self) -> None:
        """Fills all buffers with sums over the GPUs."""
        for buffer in self.buffers:
            buffer.copy_(self.own)
            self.torch.distributed.all_reduce(buffer)

    def flip(self, place: int, bit: int) -> None:
        """For a drill: flips one bit of one element of the last sum."""
        self.buffers[-1].view(self.torch.int32)[place] ^= 1 << bit

    def wrong_places(self) -> tuple[int, list[dict[str, Any]]]:
        """How many elements of the sums differ from the expected value, and the first of them."""
        bits = self.torch.int32
        total = 0
        listed: list[dict[str, Any]] = []
        counts = self.torch.stack([(buffer.view(bits) != self.expected.view(bits)).sum() for buffer in self.buffers]).tolist()
        for buffer, count in zip(self.buffers, counts):
            total += count
            if count:
                wrong = (buffer.view(bits) != self.expected.view(bits)).nonzero()[: MOST_WRONG - len(listed)]
                for (place,) in wrong.tolist():
                    values = [int(one.view(bits)[place]) & 2**32 - 1 for one in (buffer, self.expected)]
                    listed.append(wrong_place(buffer.data_ptr() + 4 * place, values[0], values[1], 32, "element %d" % place))
        return total, listed


# burn_memory.py: Patterns in the GPU's free memory: written, kept while the products run, and read back ---------------------------------------------

WORD_BYTES = 8
SLICE_WORDS = 2**24  # words that are filled or compared at a time, so that the comparison itself needs little memory
KEPT_FREE, LEAST_FREE = 0.04, 2 * 2**30  # share and bytes that stay free for the driver, NCCL and the temporary memory of the products
MOST_PLACES = 8
# Words of 64 bits by name; a pattern without a number here computes its words from their place. Its complement comes next, so every cell holds both.
PATTERNS = ("zeros", "alternating", "own place", "nibbles", "walking one", "scrambled")
WORDS = {"zeros": 0, "alternating": 0x5555555555555555, "nibbles": 0x0F0F0F0F0F0F0F0F}


class Memory:
    """Blocks of 64-bit words over the memory that was free. size: bytes of all blocks; held: (name, complement) of their pattern, or None."""

    def __init__(self, torch: Any, device: Any, block_bytes: int, most_bytes: int | None) -> None:
        self.torch, self.device = torch, device
        self.blocks: list[Any] = []
        self.held: tuple[str, bool] | None = None
        limit = most_bytes if most_bytes is not None else free_bytes(torch, device)
        try:
            while (len(self.blocks) + 1) * block_bytes <= limit:
                self.blocks.append(torch.empty(block_bytes // WORD_BYTES, dtype=torch.int64, device=device))
        except RuntimeError as problem:
            if "out of memory" not in str(problem):
                raise
        self.size = len(self.blocks) * block_bytes

    def fill(self, name: str, complement: bool) -> None:
        """Writes a pattern into all blocks."""
        for number, block in enumerate(self.blocks):
            for start, part in slices(block):
                part.copy_(words(self.torch, self.device, name, complement, number * block.numel() + start, part.numel()))
        self.held = (name, complement)

    def wrong_places(self) -> tuple[int, list[dict[str, Any]]]:
        """How many words differ from what was written, and the first of them."""
        counts = []
        for number, block in enumerate(self.blocks):
            for start, part in slices(block):
                counts.append((part != self.expected(number, start, part.numel())).sum())
        total = int(self.torch.stack(counts).sum()) if counts else 0
        return total, self.listed() if total else []

    def listed(self) -> list[dict[str, Any]]:
        """Reads the first wrong words again, one by one: a word that is right at the second reading was wrong on the way, not in the memory cell."""
        found: list[dict[str, Any]] = []
        for number, block in enumerate(self.blocks):
            for start, part in slices(block):
                wanted = self.expected(number, start, part.numel())
                for (place,) in (part != wanted).nonzero()[: MOST_PLACES - len(found)].tolist():
                    address = part.data_ptr() + place * WORD_BYTES
                    values = [int(one[place]) & 2**64 - 1 for one in (part, wanted)]
                    found.append(wrong_place(address, values[0], values[1], 64, "pattern %s%s" % (self.name, ", complement" if self.complement else "")))
        return found

    @property
    def name(self) -> str:
        """The pattern that the blocks hold."""
        return self.held[0] if self.held else ""

    @property
    def complement(self) -> bool:
        """Whether they hold its complement."""
        return bool(self.held and self.held[1])

    def expected(self, block: int, start: int, count: int) -> Any:
        """The expected content of a part of a block."""
        return words(self.torch, self.device, self.name, self.complement, block * self.blocks[0].numel() + start, count)

    def flip(self, place: int, bit: int) -> None:
        """For a drill: flips one bit of one word of the last block."""
        self.blocks[-1][place] ^= 1 << bit


def free_bytes(torch: Any, device: Any) -> int:
    """Bytes of this GPU's memory that may be used now."""
    free, total = torch.cuda.mem_get_info(device)
    return int(max(0, free - max(LEAST_FREE, KEPT_FREE * total)))


def slices(block: Any) -> list[tuple[int, Any]]:
    """(first word, part) for each part of a block."""
    return [(start, block[start : start + SLICE_WORDS]) for start in range(0, block.numel(), SLICE_WORDS)]


def words(torch: Any, device: Any, name: str, complement: bool, start: int, count: int) -> Any:
    """`count` words of a pattern from word `start` on."""
    if name in WORDS:
        return torch.full((1,), WORDS[name] ^ (-1 if complement else 0), dtype=torch.int64, device=device).expand(count)
    place = torch.arange(start, start + count, dtype=torch.int64, device=device)
    if name == "walking one":
        place = torch.ones_like(place) << (place % 63)
    elif name == "scrambled":
        place = (place ^ (place >> 29)) * -4658895280553007687
    return ~place if complement else place


# context.py: Creates a CUDA context in a thread while torch is imported -----------------------------------------------------------------------------

def begin_context(index: int) -> threading.Thread:
    """Creates the context of GPU `index` in a thread that does not hold Python's lock. An error is not lost: torch meets it again and reports it."""
    maker = threading.Thread(target=retain_context, args=(index,), daemon=True)
    maker.start()
    return maker


def retain_context(index: int) -> bool:
    """Whether the GPU's primary context exists, which is the one that torch uses; it lives as long as the process."""
    # Drivers before CUDA 12.2 load every kernel of torch at once by default. torch sets this variable too, but too late for a context that exists already.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return False
    return bool(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0)


# burn_worker.py: The burn-in's worker: one process for each GPU -------------------------------------------------------------------------------------

MOST_RESULTS = 16  # of products that wait for their check, so that a wrong one still exists and can be examined
BATCH_S = 0.5  # how long the products of one batch take before they are checked; a signal is handled after that
SIZES = {"cuda": (8192, 16384, 2**30, 2**26), "small": (4096, 8192, 2**28, 2**24), "cpu": (64, 64, 2**18, 2**12)}  # rows, inner, block bytes, summed elements
SMALL_BYTES = 36 * 2**30  # a GPU with less memory uses the small sizes: inputs, results and sums of the others need 12 GiB
DRILL_PLACE, DRILL_BIT = 77, 5
MEMORY, COLLECTIVE = "memory", "collective"
MOST_REPORTED = 20  # wrong results that are reported one by one; all of them are counted


class Stop(Exception):
    """A signal requested the end."""


class Worker:
    """plan: of the burn-in; number: of the GPU among those under test. done: work done so far, by type."""

    def __init__(self, plan: dict[str, Any], number: int, descriptor: int) -> None:
        self.plan, self.number, self.descriptor = plan, number, descriptor
        self.done: dict[str, dict[str, Any]] = {}
        self.round, self.reported, self.stopped = 0, 0, False
        drill = plan.get("drill") or {}
        self.drill = str(drill["where"]) if drill.get("gpu") == number else None
        import torch

        self.torch: Any = torch
        torch.set_num_threads(1 if plan["device"] == "cpu" else 4)
        self.device = torch.device("cuda", number) if plan["device"] == "cuda" else torch.device("cpu")
        size = self.device.type
        if size == "cuda" and torch.cuda.get_device_properties(self.device).total_memory < SMALL_BYTES:
            size = "small"
        self.rows, self.inner, self.block_bytes, self.count = SIZES[size]

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this GPU."""
        emit(self.descriptor, kind, gpu=self.number, round=self.round, **fields)

    def prepare(self) -> None:
        """Prepares device, types, process group and memory in this order: the memory patterns use all memory that is free then."""
        torch = self.torch
        about: dict[str, Any] = {"torch": torch.__version__, "uuid": None, "model": "cpu"}
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            known = torch.cuda.get_device_properties(self.device)
            about.update(uuid="GPU-%s" % getattr(known, "uuid", "unknown"), model=known.name, cuda=torch.version.cuda)
            # Partial sums of split products must be added in float32 too: in the type of the result they would be rounded.
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self.event("device", pid=os.getpid(), **about)
        self.products: list[tuple[Product, float]] = []
        for name in self.plan.get("types") or KINDS:
            self.check_signal()
            product, report = make_product(torch, self.device, name, self.rows, self.inner)
            self.event("type", **report)
            if product:
                self.products.append((product, report["one_s"]))
        self.group = Collectives(torch, self.device, (self.number, self.plan["nproc"]), self.plan["meeting"], self.count)
        if self.device.type == "cuda":
            self.make_room()
        self.memory = Memory(torch, self.device, self.block_bytes, self.plan.get("memory_bytes"))
        self.event("ready", memory_bytes=self.memory.size, types=[product.name for product, _ in self.products], collectives=self.group.world > 1)

    def make_room(self) -> None:
        """Makes torch allocate what results and comparisons need, before the patterns use the rest."""
        for product, _ in self.products:
            results = [product.run() for _ in range(MOST_RESULTS)]
            product.wrong_places(results[0])
            del results
        self.torch.cuda.synchronize()

    def check_signal(self) -> None:
        """Raises Stop."""
        if self.stopped:
            raise Stop

    def burn(self) -> None:
        """Repeats rounds until the time of one of the workers is over: writes a pattern, runs products, reads the pattern back, forms sums."""
        self.until = time.monotonic() + self.plan["duration_s"]
        ended = False
        while not ended:
            pattern_name = PATTERNS[self.round % len(PATTERNS)]
            self.keep_pattern(pattern_name, False)
            shares = sum(product.kind.share for product, _ in self.products)
            for product, one_s in self.products:
                self.work(product, one_s, self.plan["round_s"] * product.kind.share / shares)
            self.read_pattern()
            self.keep_pattern(pattern_name, True)
            self.read_pattern()
            self.sum_up()
            self.round += 1
            ended = self.group.agree(time.monotonic() >= self.until)
        self.event("worked")

    def work(self, product: Product, one_s: float, seconds: float) -> None:
        """Runs products of one type for this long, and checks them batch by batch."""
        self.event("phase", phase=product.name)
        began = now = time.monotonic()
        until = min(began + seconds, self.until)
        batch, count, wrong = max(1, min(MOST_RESULTS, int(BATCH_S / max(one_s, 1e-9)))), 0, 0
        while True:
            results = [product.run() for _ in range(batch)]
            if self.drill == product.name:
                product.flip(results[-1], DRILL_PLACE, DRILL_BIT)
                self.drill = None
            wrong += self.check(product, results)
            count += batch
            now = time.monotonic()
            self.check_signal()
            if now >= until:
                break
        self.note(product.name, count, now - began, count * product.flops, wrong)

    def check(self, product: Product, results: list[Any]) -> int:
        """Compares results: each by the sum of its bits, the last by all of its elements. Returns how many are wrong."""
        totals = self.torch.stack([product.total_of(result) for result in results]).tolist()
        wrong = 0
        for number, (result, total) in enumerate(zip(results, totals)):
            if total == product.total and number + 1 < len(results):
                continue
            elements, places = product.wrong_places(result)
            if elements or total != product.total:
                wrong += 1
                why = None if elements else "its elements are right when read again, the sum of its bits was not"
                self.report_wrong(product.name, elements, places, why)
        return wrong

    def report_wrong(self, name: str, elements: int, places: list[dict[str, Any]], why: str | None = None) -> None:
        """Reports a wrong result, up to the limit."""
        self.reported += 1
        if self.reported <= MOST_REPORTED:
            self.event("wrong", what=name, elements=elements, places=places, why=why)

    def note(self, name: str, count: int, seconds: float, work: float, wrong: int) -> None:
        """Adds to the work done and reports it. work: floating point operations, or bytes. slowest, fastest: rates of a phase, per second."""
        known = self.done.setdefault(name, {"count": 0, "seconds": 0.0, "work": 0.0, "wrong": 0, "slowest": None, "fastest": None})
        rate = work / max(seconds, 1e-9)
        for key, more in (("count", count), ("seconds", seconds), ("work", work), ("wrong", wrong)):
            known[key] += more
        known["slowest"] = min(rate, known["slowest"] or rate)
        known["fastest"] = max(rate, known["fastest"] or rate)
        self.event("work", what=name, **known)

    def keep_pattern(self, name: str, complement: bool) -> None:
        """Writes a pattern, which stays in memory."""
        self.event("phase", phase=MEMORY)
        self.memory.fill(name, complement)
        if self.drill == MEMORY and self.memory.blocks:
            self.memory.flip(DRILL_PLACE, DRILL_BIT)
            self.drill = None

    def read_pattern(self) -> None:
        """Reads the pattern back."""
        self.event("phase", phase=MEMORY)
        began = time.monotonic()
        elements, places = self.memory.wrong_places()
        if elements:
            self.report_wrong(MEMORY, elements, places, None if places else "right when read again: wrong on the way, not in the cell")
        self.note(MEMORY, 1, time.monotonic() - began, self.memory.size, int(elements > 0))
        self.check_signal()

    def sum_up(self) -> None:
        """Forms sums over all GPUs."""
        if self.group.world == 1:
            return
        self.event("phase", phase=COLLECTIVE)
        began = time.monotonic()
        self.group.sum_up()
        if self.drill == COLLECTIVE:
            self.group.flip(DRILL_PLACE, DRILL_BIT)
            self.drill = None
        elements, places = self.group.wrong_places()
        if elements:
            self.report_wrong(COLLECTIVE, elements, places)
        self.note(COLLECTIVE, 1, time.monotonic() - began, 4.0 * self.count * len(self.group.buffers), int(elements > 0))
        self.check_signal()


def run_worker(plan: dict[str, Any], number: int, descriptor: int) -> int:
    """0 when it worked to the end of its time or was asked to end, 1 when something failed. Wrong results are reported as events."""
    if plan["device"] == "cuda":
        begin_context(number)
    worker = Worker(plan, number, descriptor)
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "stopped", True))
    try:
        worker.prepare()
        worker.burn()
        return 0
    except Stop:
        worker.event("stopped")
        return 0
    except Exception as problem:  # torch raises different errors for a GPU that fell off the bus, an uncorrectable error, and a peer that is gone
        worker.event("failed", message="%s: %s" % (type(problem).__name__, " ".join(str(problem).split())[:500]), fault=is_fault(problem))
        return 1


# burn_main.py: The burn-in's payload: keeps all GPUs of a node at full load and compares every result with the exact one, bit by bit ----------------

PLAN: dict[str, Any] = {"device": "cuda", "nproc": None, "duration_s": 1800.0, "round_s": 30.0, "types": None, "memory_bytes": None, "drill": None}
CPU_PLAN: dict[str, Any] = {"nproc": 2, "round_s": 1.0, "memory_bytes": 2**20}


def burn_main(argv: list[str]) -> int:
    """0 all well, 1 something failed, 2 refused or wrong use."""
    parser = argparse.ArgumentParser(description="The burn-in's payload; `unhang smoke --burn-in` starts it.")
    parser.add_argument("what", choices=("node", "worker", "sensors", "nvml"))
    parser.add_argument("--plan", help="the plan as JSON, or @FILE")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--duration", type=float, help="seconds under load")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--events", type=int, default=1, help="descriptor for events")
    parser.add_argument("--output", help="write events to this file instead")
    parser.add_argument("--period", type=float, default=PERIOD_S)
    given = parser.parse_args(argv)
    if given.what == "sensors":
        return run_sensors(given.period)
    if given.what == "nvml":
        sys.stdout.write(json.dumps(read_nvml()) + "\n")
        return 0
    if given.what == "worker":
        return run_worker(json.loads(os.environ["UNHANG_BURN_IN_PLAN"]), given.gpu, given.events)
    plan = burn_plan(given)
    if given.output:
        os.dup2(os.open(given.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    return run_burn_agent(plan)


def burn_plan(given: argparse.Namespace) -> dict[str, Any]:
    """Values of the command line and the plan, which override those of the device."""
    text = given.plan or "{}"
    if text.startswith("@"):
        with open(text[1:], encoding="utf-8") as source:
            text = source.read()
    wanted = json.loads(text)
    wanted.update({name: value for name, value in (("device", given.device), ("duration_s", given.duration)) if value is not None})
    plan = dict(PLAN, **(CPU_PLAN if wanted.get("device") == "cpu" else {}))
    plan.update({name: value for name, value in wanted.items() if value is not None})
    plan["round_s"] = min(plan["round_s"], max(0.2, plan["duration_s"] / 3))  # so that each type and each pattern runs more than once
    return plan


if __name__ == "__main__":
    code = burn_main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: at its end the interpreter would wait for a process group that is broken.
    os._exit(code)
