"""Counters of NICs and NVLinks."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys

from .processes import die_with_parent


def net_counters():
    """{name: count} of every network interface and RDMA port: bytes, errors, drops, retries."""
    counts = {}
    places = [("/sys/class/net/%s/statistics", "/sys/class/net", ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"))]
    for root, kind in (("/sys/class/infiniband", "ports/1/counters"), ("/sys/class/infiniband", "ports/1/hw_counters")):
        places.append((root + "/%s/" + kind, root, None))
    for form, root, wanted in places:
        with contextlib.suppress(OSError):
            for name in os.listdir(root):
                folder = form % name
                with contextlib.suppress(OSError):
                    for counter in wanted or os.listdir(folder):
                        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, counter), encoding="ascii") as source:
                            counts["%s %s" % (name, counter)] = int(source.read())
    return counts


def nvlink_counters():
    """{counter: value} as nvidia-smi tells them, bounded; {} where there is none."""
    if not shutil.which("nvidia-smi"):
        return {}
    counts, gpu = {}, ""
    for words in (["nvidia-smi", "nvlink", "-e"], ["nvidia-smi", "nvlink", "-gt", "d"]):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "timeout": 3, "preexec_fn": die_with_parent}
            for line in subprocess.run(words, check=False, universal_newlines=True, **options).stdout.splitlines():
                head = re.match(r"GPU (\d+):", line)
                gpu = head.group(1) if head else gpu
                found = re.match(r"\s+Link (\d+): ([A-Za-z ]+): (\d+)", line)
                if found:
                    counts["GPU %s link %s %s" % (gpu, found.group(1), found.group(2).strip())] = int(found.group(3))
    return counts


def nvlink_pairs():
    """[[uuid, uuid]] of GPUs that NVLink joins, asked of NVML by a child, since a driver may never answer. None where there is no NVML."""
    if not os.path.isdir("/proc/driver/nvidia/gpus"):
        return None
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        words = [sys.executable, os.path.abspath(__file__), "nvlink"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "timeout": 10, "preexec_fn": die_with_parent}
        return json.loads(subprocess.run(words, check=False, **options).stdout)
    return None


def read_nvlink_pairs():
    """The same, in the child: NVML's P2P status for NVLink per pair. Raises OSError without the library."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if library.nvmlInit_v2():
        return None
    count, handles, pairs = ctypes.c_uint(), [], []
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0 and library.nvmlDeviceGetUUID(handle, text, 96) == 0:
            handles.append((handle, text.value.decode("ascii", "replace")))
    status = ctypes.c_int()
    for place, (first, name) in enumerate(handles):
        for second, other in handles[place + 1 :]:
            # index 2 is NVML_P2P_CAPS_INDEX_NVLINK, status 0 is NVML_P2P_STATUS_OK
            if library.nvmlDeviceGetP2PStatus(first, second, 2, ctypes.byref(status)) == 0 and status.value == 0:
                pairs.append([name, other])
    return pairs


def changed(before, after):
    """What of the counters moved, by how much."""
    return {name: after[name] - before.get(name, 0) for name in sorted(after) if after[name] != before.get(name, 0)}
