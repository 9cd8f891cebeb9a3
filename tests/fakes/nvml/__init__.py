"""A libnvidia-ml.so.1 in C that answers from a profile, and profiles written from recordings.

    library = build_fake_nvml(folder)                       # folder/libnvidia-ml.so.1, built with
    gcc
    write_profile("tests/fixtures/h200x8/nvml.json", out)   # any recording, derived ones too
    LD_LIBRARY_PATH=folder UNHANG_FAKE_NVML_PROFILE=out python3 ...

Without the variable the library reads /etc/unhang-fake-nvml.profile: replace that file whole (write
beside it, rename). It is read at a process's first nvmlInit.
"""

from __future__ import annotations

import os
import subprocess

from unhang_node.base.nvml.names import ALL_LINKS, FIELDS
from unhang_node.base.nvml.recorded import base_name, field_value
from unhang_node.base.nvml.recording import is_error, load_recording

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_nvml.c")
FIELDS_OF_LINKS = tuple(
    name
    for name in FIELDS
    if name.startswith(("NVML_FI_DEV_NVLINK_ERROR_DL_", "NVML_FI_DEV_NVLINK_GET_SPEED"))
)
# Python's name in a recording -> the function of the C library that nvidia-ml-py calls for it.
C_NAMES = {
    "nvmlDeviceGetMemoryInfo:v2": "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuFabricInfoV:v2": "nvmlDeviceGetGpuFabricInfoV",
}


def build_fake_nvml(folder):
    """Builds the library into `folder`; returns its path. Raises RuntimeError with gcc's
    message."""
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "libnvidia-ml.so.1")
    partial = f"{target}.{os.getpid()}"
    command = [
        "gcc",
        "-O1",
        "-Wall",
        "-Wextra",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wl,-soname,libnvidia-ml.so.1",
        "-o",
        partial,
        SOURCE,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gcc could not build the fake NVML: {done.stderr.strip()}")
    os.rename(partial, target)
    return target


def write_profile(recording_path, out):
    """Writes the recording's answers as a profile of the fake library to the path `out`; returns
    `out`."""
    recording = load_recording(recording_path)
    partial = f"{out}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as target:
        target.writelines(line + "\n" for line in profile_lines(recording))
    os.rename(partial, out)
    return out


def profile_lines(recording):
    """The lines of a profile, in the format that fake_nvml.c describes."""
    missing = set(recording["missing"])
    yield "system nvmlDeviceGetCount_v2 0 {}".format(len(recording["devices"]))
    for name, answer in recording["system"].items():
        yield from _line("system", name, answer, missing)
    for index, device in enumerate(recording["devices"]):
        yield from _device_lines(str(index), device, missing)
        yield from _field_lines(index, device, missing)
    for pair, answers in recording["pairs"].items():
        for key, answer in answers.items():
            name = (
                "nvmlDeviceGetTopologyCommonAncestor"
                if key == "ancestor"
                else key.replace("p2p:", "nvmlDeviceGetP2PStatus:")
            )
            yield from _line(pair, name, answer, missing)
    for kind in ("stall", "crash"):
        for call in recording[kind]:
            yield "{} {} {}".format(kind, *_call(call))
    for call, seconds in recording["slow"].items():
        yield "slow {} {} {}".format(round(seconds * 1000), *_call(call))


def _call(text):
    """ "name_v2(3)" as ("name", "3"); without parentheses the scope is "*"."""
    name, _, rest = text.partition("(")
    name = base_name(name)
    scope = rest.rstrip(")").replace(" ", "").replace(",", "-") if rest else "*"
    return name, "system" if name.startswith(("nvmlInit", "nvmlSystem")) else scope


def _device_lines(scope, device, missing):
    if "handle" in device:
        yield "{} nvmlDeviceGetHandleByIndex_v2 {}".format(scope, device["handle"]["nvml_error"])
    for name, answer in device.items():
        if name not in ("nvlink", "fields", "handle"):
            yield from _line(scope, C_NAMES.get(name, name), answer, missing)
    for number, link in enumerate(device.get("nvlink", [])):
        for key, answer in link.items():
            yield from _line(scope, link_name(key, number), answer, missing)
    for number in range(len(device.get("nvlink", [])), 18):  # links beyond the last one
        yield from _line(
            scope, f"nvmlDeviceGetNvLinkState:{number}", {"v": {"nvml_error": 3}}, missing
        )


def link_name(key, number):
    """The profile's name of one answer about a link."""
    if key.startswith("error:"):
        return f"nvmlDeviceGetNvLinkErrorCounter:{number}:{key[6:]}"
    names = {
        "state": "nvmlDeviceGetNvLinkState",
        "version": "nvmlDeviceGetNvLinkVersion",
        "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    }
    return f"{names.get(key, key)}:{number}"


def _field_lines(index, device, missing):
    if "nvmlDeviceGetFieldValues" in missing or "fields" not in device:
        return
    yield f"{index} nvmlDeviceGetFieldValues 0"
    links = [*range(len(device.get("nvlink", []))), ALL_LINKS]
    for name, number in FIELDS.items():
        for scope in [None, *(links if name in FIELDS_OF_LINKS else [])]:
            value = field_value(device, number, scope)
            key = f"field:{number}" if scope is None else f"field:{number}:{scope}"
            yield f"{index} {key} {value.nvmlReturn} 3 {value.value.ullVal}"


def _line(scope, name, answer, missing):
    value = answer["v"]
    if name.split(":")[0] in missing:
        return
    if is_error(value):
        yield "{} {} {}".format(scope, name, value["nvml_error"])
    elif _text(name, value) is not None:
        yield f"{scope} {name} 0 {_text(name, value)}"


def _text(name, value):
    """A value in the form that fake_nvml.c reads: numbers separated by blanks, in the order of the
    structure."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, dict, list)):
        return None
    if isinstance(value, (int, float)):
        return str(int(value))
    if isinstance(value, dict):
        if "busId" in value:
            keys = (
                "busId",
                "busIdLegacy",
                "domain",
                "bus",
                "device",
                "pciDeviceId",
                "pciSubSystemId",
            )
            return " ".join(str(value[key]) for key in keys)
        if "clusterUuid" in value:
            return "{} {} {} {} {}".format(
                bytes(value["clusterUuid"]).hex(),
                value["status"],
                value["cliqueId"],
                value["state"],
                value.get("healthMask", 0),
            )
        plain = [item for key, item in value.items() if key != "version"]
        return (
            " ".join(str(int(item)) for item in plain)
            if all(isinstance(item, int) for item in plain)
            else None
        )
    if "RunningProcesses" in name:
        rows = [
            (
                row["pid"],
                row.get("usedGpuMemory") if row.get("usedGpuMemory") is not None else 2**64 - 1,
            )
            for row in value
        ]
        return " ".join(
            [str(len(rows))] + ["{} {} 4294967295 4294967295".format(*row) for row in rows]
        )
    if "RetiredPages" in name:
        return " ".join(map(str, [len(value), *value]))
    return (
        " ".join(str(int(item)) for item in value)
        if all(isinstance(item, int) for item in value)
        else None
    )
