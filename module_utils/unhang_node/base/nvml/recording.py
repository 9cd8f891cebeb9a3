"""Recorded NVML answers in a file, call by call, and small files that override a few answers of
another.

A full recording is what a machine answered:

    {"system":  {"nvmlSystemGetDriverVersion": ANSWER, ...},
     "devices": [{"nvmlDeviceGetName": ANSWER, "nvmlDeviceGetTemperature:0": ANSWER (arguments after
     colons),
                  "nvlink": [{"state": ANSWER, "version": ANSWER,
                  "nvmlDeviceGetNvLinkRemoteDeviceType": ANSWER,
                              "nvmlDeviceGetNvLinkRemotePciInfo": ANSWER, "error:0": ANSWER, ...},
                              ...],
                  "fields": {"NVML_FI_DEV_...": {"ret": 0, "type": 1, "ull": 18}, ...}}, ...],
     "pairs":   {"0-1": {"ancestor": ANSWER, "p2p:0": ANSWER, ...}, ...}}
    ANSWER = {"v": value, "us": microseconds that the call took}; an error is {"v": {"nvml_error":
    3, "text": "Not Supported"}}.

A derived one names its base and contains only what differs:

    {"base": "../h200x8/nvml.json",       relative to this file
     "device_count": 16,                  fewer: the last ones are left out; more: copies with their
     own UUID, PCI address and minor number
     "system": {...}, "all_devices": {...}, "devices": {"3": {...}} or a list by index (null: as it
     is),
     "pairs": {"all": {...}, "0-1": {...}},                   a pair speaks for both directions
     "missing": ["nvmlDeviceGetGpuFabricInfoV"],              functions that this driver does not
     have
     "stall": ["nvmlDeviceGetMemoryInfo(3)", "nvmlInitWithFlags"],  calls that never return; no
     parentheses: for every device;
                                                                                   a stall counts
                                                                                   for a function in
                                                                                   each version
                                                                                   (_v2)
     "crash": "nvmlDeviceGetName(0)",                         a call that ends the process with
     SIGSEGV
     "slow": {"nvmlDeviceGetHandleByIndex_v2(0)": 1.5}}       seconds that a call takes

In a derived one a plain value stands for {"v": value}, an object without "v" is merged into the
value (error objects replace it), "nvlink" is a list by index or an object {"all": {...}, "3":
{...}}, "nvlink_count" sets how many links there are, a field takes a plain number, and a device may
have "handle": {"nvml_error": 15, "text": "GPU is lost"}. A call that no recording answers is a
function that the driver does not have.
"""

from __future__ import annotations

import copy
import os
import stat as stat_bits

from ..parse.values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_BASES = 16
LIMIT_BYTES = 64 * 1024 * 1024  # eight GPUs take half a megabyte


def load_recording(path: str) -> dict[str, Any]:
    """{system, devices: [...], pairs, missing: [..], stall: [..], crash: [..], slow: {..}} of a
    recording with its bases merged in.

    Raises OSError; ValueError with file and place when the file is no recording.
    """
    chain, seen = [], path
    while True:
        try:
            layer = parse_json(_read_text(seen))
        except ValueError as problem:
            raise ValueError(f"{seen}: {problem}") from None
        if not isinstance(layer, dict):
            raise ValueError(
                f"{seen} must hold an object with devices or base, and holds {type(layer).__name__}"
            )
        chain.append(layer)
        if "base" not in layer:
            break
        if len(chain) > MAX_BASES:
            raise ValueError(f"{path}: more than {MAX_BASES} bases one on another")
        if not isinstance(layer["base"], str):
            raise ValueError(
                f"{seen} must give a file name as base, and gives {type(layer['base']).__name__}"
            )
        seen = os.path.join(os.path.dirname(seen), layer["base"])
    recording: dict[str, Any] = {
        "system": {},
        "devices": [],
        "pairs": {},
        "missing": [],
        "stall": [],
        "crash": [],
        "slow": {},
    }
    for layer in reversed(chain):
        recording = apply_layer(recording, layer)
    return recording


def _read_text(path: str) -> str:
    """A regular file of at most LIMIT_BYTES. Raises OSError; ValueError for a device, a FIFO
    (neither is waited for) and a larger file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat_bits.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("this is a device, a FIFO or a folder, not a regular file")
    with os.fdopen(descriptor, "rb") as source:
        content = source.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise ValueError(f"the recording is larger than {LIMIT_BYTES} bytes")
    return content.decode("utf-8")


def apply_layer(recording: dict[str, Any], layer: dict[str, Any]) -> dict[str, Any]:
    """The recording with one layer's differences; neither argument is changed."""
    merged = copy.deepcopy(recording)
    for name, answer in layer.get("system", {}).items():
        merged["system"][name] = _merge_answer(merged["system"].get(name), answer)
    if isinstance(layer.get("devices"), list) and not merged["devices"]:
        merged["devices"] = [{} for _ in layer["devices"]]
    count = layer.get("device_count", len(merged["devices"]))
    before = len(merged["devices"])
    del merged["devices"][count:]
    for index in range(before, count):
        merged["devices"].append(_copied_device(merged["devices"], index))
    merged["devices"] = [
        _merge_device(device, layer.get("all_devices") or {}) for device in merged["devices"]
    ]
    merged["devices"] = [
        _merge_device(device, _by_index(layer.get("devices"), index) or {})
        for index, device in enumerate(merged["devices"])
    ]
    merged["pairs"] = _merge_pairs(merged["pairs"], layer.get("pairs", {}), count)
    for name in ("missing", "stall", "crash"):
        listed = layer.get(name, [])
        merged[name] = merged[name] + ([listed] if isinstance(listed, str) else list(listed))
    merged["slow"].update(layer.get("slow", {}))
    return merged


def is_error(value: Any) -> bool:
    """True for {"nvml_error": code, "text": ...}."""
    return isinstance(value, dict) and "nvml_error" in value


def _by_index(changes: Any, index: int) -> Any:
    if isinstance(changes, dict):
        return changes.get(str(index))
    return changes[index] if changes and index < len(changes) else None


def _merge_answer(answer: dict[str, Any] | None, change: Any) -> Any:
    """An ANSWER with a change in full or short form."""
    if isinstance(change, dict) and "v" in change:
        return change
    value = (answer or {}).get("v")
    if (
        isinstance(change, dict)
        and not is_error(change)
        and isinstance(value, dict)
        and not is_error(value)
    ):
        change = dict(value, **change)
    return dict(answer or {}, v=change)


def _merge_device(device: dict[str, Any], changes: Any) -> dict[str, Any]:
    merged = dict(device)
    for name, change in changes.items():
        if name == "fields":
            merged["fields"] = dict(device.get("fields", {}))
            for field, value in change.items():
                merged["fields"][field] = (
                    value
                    if isinstance(value, dict)
                    else {"ret": 0, "type": 3, "ull": value, "dbl": None}
                )
        elif name == "nvlink":
            merged["nvlink"] = _merge_links(merged.get("nvlink", []), change)
        elif name == "nvlink_count":
            links = list(merged.get("nvlink", []))[:change]
            merged["nvlink"] = links + [
                copy.deepcopy(links[-1]) if links else {} for _ in range(change - len(links))
            ]
        elif name == "handle":
            merged["handle"] = change
        else:
            merged[name] = _merge_answer(device.get(name), change)
    return merged


def _merge_links(links: Any, changes: Any) -> list[Any]:
    if isinstance(changes, list) and not links:
        links = [{} for _ in changes]
    merged = []
    for index, before in enumerate(links):
        link = dict(before)
        for change in (
            changes.get("all") if isinstance(changes, dict) else None,
            _by_index(changes, index),
        ):
            for name, answer in (change or {}).items():
                link[name] = _merge_answer(link.get(name), answer)
        merged.append(link)
    return merged


def _merge_pairs(pairs: dict[str, Any], changes: Any, count: int) -> dict[str, Any]:
    merged = {}
    example = next(iter(pairs.values()), None)
    for a in range(count):
        for b in range(count):
            if a == b:
                continue
            name, mirror = f"{a}-{b}", f"{b}-{a}"
            pair = dict(pairs.get(name) or example or {})
            for change in (changes.get("all"), changes.get(name, changes.get(mirror))):
                for call, answer in (change or {}).items():
                    pair[call] = _merge_answer(pair.get(call), answer)
            if pair:
                merged[name] = pair
    return merged


def _copied_device(devices: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """A copy of one of the devices that differs from each of them where two GPUs always differ."""
    device = copy.deepcopy(devices[index % len(devices)]) if devices else {}
    address = f"{0:08X}:{0x80 + index:02X}:00.0"
    place = {
        "busIdLegacy": address[4:],
        "domain": 0,
        "bus": 0x80 + index,
        "device": 0,
        "busId": address,
    }
    for name in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v3"):
        device[name] = _merge_answer(device.get(name), place)
    device["nvmlDeviceGetUUID"] = {"v": f"GPU-{0xC0000000 + index:08x}-0000-4000-8000-{index:012x}"}
    for name in ("nvmlDeviceGetMinorNumber", "nvmlDeviceGetIndex"):
        device[name] = {"v": index}
    return device
