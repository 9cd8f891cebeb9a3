"""NVLink states from NVML, read by a child process, because a driver in trouble may never
answer."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any

from .own_file import OWN_WORDS
from .processes import die_with_parent

NVML_S = 10.0  # at the start, while torch is imported
NVML_AGAIN_S = 3.0
ASKED = b"asked\n"  # the child has found the driver's library, and calls it
NVLINK_CAPABILITY = 2  # NVML_P2P_CAPS_INDEX_NVLINK; status 0 is NVML_P2P_STATUS_OK
# NVML_FI_DEV_NVLINK_*: https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html,
# each by link. Errors up to Hopper; Blackwell has none of these three (change log of that API) and
# has NVLINK5_FIELDS instead.
FIELDS = {
    138: "data sent (KiB)",
    139: "data received (KiB)",
    161: "replay errors",
    162: "recovery errors",
    163: "CRC errors",
}
NVLINK5_FIELDS = {
    206: "malformed packet errors", 207: "buffer overrun errors", 208: "receive errors",
    211: "link integrity errors", 215: "link recovery events",
    221: "symbol errors",
}  # fmt: skip
# nvmlNvLinkErrorCounter_t, for a driver that knows none of the fields: the counters of `nvidia-smi
# nvlink -e`. Its counters 3 (CRC data) and 4 (ECC data) rise on every link of a healthy H200
# (docs/decisions/0014): https://github.com/DataDog/datadog-agent/pull/55966
OLDER = {0: "replay errors", 1: "recovery errors", 2: "CRC errors"}
NVLINK_SPEED = 164  # NVML_FI_DEV_NVLINK_GET_SPEED, MB/s by link
MOST_LINKS = 18
# nvmlMemoryErrorType_t
COUNTED_ERRORS = ((0, "corrected memory errors"), (1, "uncorrected memory errors"))
SINCE_LOADED = 0  # NVML_VOLATILE_ECC


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong), ("kind", ctypes.c_uint),
        ("code", ctypes.c_uint), ("value", ctypes.c_ulonglong),
    )  # fmt: skip


class NvmlQuestion:
    """A child that queries NVML; answer() waits for it, but no longer than the limit since its
    start."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 -- open until it was answered
        self.mark = tempfile.TemporaryFile()  # noqa: SIM115
        argv = [sys.executable, "-S", *OWN_WORDS, "nvml"]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.mark,
            preexec_fn=die_with_parent,
        )

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Once: {"pairs", "counters", "links", "problem"}: pairs of UUIDs that NVLink connects or
        None, the others by name and UUID, why parts are missing."""
        try:
            self.process.wait(max(0.1, limit_s - (time.monotonic() - self.began)))
            return dict(json.loads(written(self.output)))
        except subprocess.TimeoutExpired:
            problem = "NVML did not answer within %.0f s: the driver hangs" % limit_s
            if ASKED not in written(self.mark):  # nobody asked it: the interpreter is that slow
                problem = "the program that reads NVML did not start within %.0f s" % limit_s
            self.process.kill()
        except ValueError:
            problem = "NVML ended its caller with code %s" % self.process.returncode
        return nothing_read(problem)


def written(file: IO[bytes]) -> bytes:
    """What the child has written into a file."""
    file.seek(0)
    return file.read()


def nothing_read(problem: str | None = None) -> dict[str, Any]:
    """An answer without any values."""
    return {"pairs": None, "counters": {}, "links": {}, "problem": problem}


def read_nvml() -> dict[str, Any]:
    """Collects the answer, in the child. Without the library it is empty."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return nothing_read()
    os.write(2, ASKED)
    code = call(library, "nvmlInit_v2")
    if code:
        return nothing_read("nvmlInit answered %d" % code)
    handles = nvml_handles(library)
    counters, links = {}, {}
    for index, (handle, uuid) in enumerate(handles):
        links[uuid] = gpu_links(library, handle)
        counters.update(gpu_counters(library, handle, "GPU %d" % index))
        counters.update(link_counters(library, handle, "GPU %d" % index))
    return {
        "pairs": joined_pairs(library, handles),
        "counters": counters,
        "links": links,
        "problem": None,
    }


def call(library: Any, name: str, *arguments: Any) -> int:
    """The return code of a call; 13 (function not found) where the library is too old to have the
    function."""
    function = getattr(library, name, None)
    return function(*arguments) if function else 13


def nvml_handles(library: Any) -> list[tuple[Any, str]]:
    """[(handle, UUID)] in NVML's order."""
    count, handles = ctypes.c_uint(), []
    call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if (
            call(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0
            and call(library, "nvmlDeviceGetUUID", handle, text, 96) == 0
        ):
            handles.append((handle, text.value.decode("ascii", "replace")))
    return handles


def joined_pairs(library: Any, handles: list[tuple[Any, str]]) -> list[list[str]]:
    """[[uuid, uuid]] of GPUs that NVLink connects, directly or through switches."""
    pairs, status = [], ctypes.c_int()
    for place, (first, name) in enumerate(handles):
        for second, other in handles[place + 1 :]:
            if (
                call(
                    library,
                    "nvmlDeviceGetP2PStatus",
                    first,
                    second,
                    NVLINK_CAPABILITY,
                    ctypes.byref(status),
                )
                == 0
                and status.value == 0
            ):
                pairs.append([name, other])
    return pairs


def active_links(library: Any, handle: Any) -> list[int]:
    """Numbers of the NVLinks that are up."""
    active, state = ctypes.c_uint(), "nvmlDeviceGetNvLinkState"
    return [
        link
        for link in range(MOST_LINKS)
        if call(library, state, handle, link, ctypes.byref(active)) == 0 and active.value
    ]


def gpu_links(library: Any, handle: Any) -> dict[str, int]:
    """{nvlinks, nvlink_mb_s, pcie_generation, pcie_width}: the links of this GPU; 0 for missing
    values."""
    links = active_links(library, handle)
    speed = FieldValue(NVLINK_SPEED, links[0] if links else 0)
    read = (
        bool(links)
        and call(library, "nvmlDeviceGetFieldValues", handle, 1, ctypes.byref(speed)) == 0
        and speed.code == 0
    )
    found = {"nvlinks": len(links), "nvlink_mb_s": speed.value & 0xFFFFFFFF if read else 0}
    for name, function in (
        ("pcie_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
        ("pcie_width", "nvmlDeviceGetMaxPcieLinkWidth"),
    ):
        value = ctypes.c_uint()
        found[name] = (
            value.value if call(library, function, handle, ctypes.byref(value)) == 0 else 0
        )
    return found


def gpu_counters(library: Any, handle: Any, gpu: str) -> dict[str, int]:
    """{"GPU 0 PCIe replays": 0, "GPU 0 corrected memory errors": 0}: the GPU's own counters."""
    counters, replays = {}, ctypes.c_uint()
    if call(library, "nvmlDeviceGetPcieReplayCounter", handle, ctypes.byref(replays)) == 0:
        counters["%s PCIe replays" % gpu] = replays.value
    for kind, name in COUNTED_ERRORS:
        count = ctypes.c_ulonglong()
        if (
            call(
                library,
                "nvmlDeviceGetTotalEccErrors",
                handle,
                kind,
                SINCE_LOADED,
                ctypes.byref(count),
            )
            == 0
        ):
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
            if (
                call(
                    library,
                    "nvmlDeviceGetNvLinkErrorCounter",
                    handle,
                    link,
                    number,
                    ctypes.byref(count),
                )
                == 0
            ):
                counters["%s link %d %s" % (gpu, link, name)] = count.value
    return counters


def field_counters(
    library: Any, handle: Any, gpu: str, links: list[int], fields: Mapping[int, str]
) -> dict[str, int]:
    """The same for these field values: {number: name}."""
    wanted = [(field, link) for link in links for field in fields]
    values = (FieldValue * len(wanted))(*[FieldValue(field, link) for field, link in wanted])
    if not wanted or call(library, "nvmlDeviceGetFieldValues", handle, len(wanted), values) != 0:
        return {}
    # type 0 is a double, and no counter is one; type 1 has 32 bits
    read = [one for one in values if one.code == 0 and one.kind != 0]
    return {
        "%s link %d %s" % (gpu, one.scope, fields[one.field]): one.value & 0xFFFFFFFF
        if one.kind == 1
        else one.value
        for one in read
    }
