"""A recorded NVML session: an object with nvidia-ml-py's function names that answers from a
recording (see recording.py)."""

from __future__ import annotations

import os
import signal
import time

from .names import ALL_LINKS, FIELDS, FUNCTION_NOT_FOUND, INVALID_ARGUMENT, MEMORY_V2, NOT_SUPPORTED
from .recording import is_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .calls import Entry

FIELD_NAMES = {number: name for name, number in FIELDS.items()}
LINK_ERRORS = {
    "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY": "error:0",
    "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY": "error:1",
    "NVML_FI_DEV_NVLINK_ERROR_DL_CRC": "error:2",
}
VERSIONS = {MEMORY_V2: "v2"}


class RecordedError(Exception):
    """Stands for pynvml.NVMLError; value is NVML's code."""

    def __init__(self, value: Any, text: str | None = None) -> None:
        super().__init__(text or f"error {value}")
        self.value = value


class Struct:
    """Stands for a ctypes structure."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)


class RecordedHandle:
    """Stands for a device handle."""

    def __init__(self, index: int, device: dict[str, Any]) -> None:
        self.index = index
        self.device = device


class RecordedSession:
    """Answers nvidia-ml-py's functions by name from what load_recording returned."""

    NVMLError = RecordedError
    first_handle_ms = None
    first_handle_s = 0.0

    def __init__(self, recording: dict[str, Any]) -> None:
        self.recording = recording
        self.missing = frozenset(recording["missing"])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: self._answer(name, arguments)

    # ---- calls whose answer is not simply looked up

    def nvmlInit(self) -> None:
        self._behave("nvmlInitWithFlags", "")
        if "nvmlInitWithFlags" in self.recording["system"]:
            _value(self.recording["system"]["nvmlInitWithFlags"]["v"])

    def nvmlDeviceGetCount(self) -> int:
        return len(self.recording["devices"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> RecordedHandle:
        self._behave("nvmlDeviceGetHandleByIndex_v2", str(index))
        device = self.recording["devices"][index]
        _value(device.get("handle"))
        return RecordedHandle(index, device)

    def nvmlDeviceGetFieldValues(self, handle: Any, wanted: Iterable[Entry]) -> list[Struct]:
        self._behave("nvmlDeviceGetFieldValues", str(handle.index))
        if "fields" not in handle.device:
            raise RecordedError(FUNCTION_NOT_FOUND, "Function Not Found")
        return [
            field_value(handle.device, *(entry if isinstance(entry, tuple) else (entry, None)))
            for entry in wanted
        ]

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> Any:
        return self._of_link("nvmlDeviceGetNvLinkState", "state", handle, link)

    def nvmlDeviceGetNvLinkVersion(self, handle: Any, link: int) -> Any:
        return self._of_link("nvmlDeviceGetNvLinkVersion", "version", handle, link)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> Any:
        return self._of_link(
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            handle,
            link,
        )

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:
        return self._of_link(
            "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo", handle, link
        )

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: Any, link: int, counter: int) -> Any:
        return self._of_link("nvmlDeviceGetNvLinkErrorCounter", f"error:{counter}", handle, link)

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> Any:
        return self._of_pair("nvmlDeviceGetTopologyCommonAncestor", "ancestor", one, other)

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, which: int) -> Any:
        return self._of_pair("nvmlDeviceGetP2PStatus", f"p2p:{which}", one, other)

    # ---- looking up

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        handle, answers = None, self.recording["system"]
        if arguments and isinstance(arguments[0], RecordedHandle):
            handle, answers = arguments[0], arguments[0].device
            arguments = arguments[1:]
        key = ":".join([name] + [VERSIONS.get(argument, str(argument)) for argument in arguments])
        self._behave(_c_name(key), "" if handle is None else str(handle.index))
        if key not in answers:
            raise RecordedError(FUNCTION_NOT_FOUND, "Function Not Found")
        return _value(answers[key]["v"])

    def _of_link(self, call: str, key: str, handle: RecordedHandle, link: int) -> Any:
        self._behave(call, str(handle.index))
        links = handle.device.get("nvlink", [])
        if link >= len(links):
            raise RecordedError(NOT_SUPPORTED, "Not Supported")
        if key not in links[link]:
            raise RecordedError(FUNCTION_NOT_FOUND, "Function Not Found")
        return _value(links[link][key]["v"])

    def _of_pair(self, call: str, key: str, one: RecordedHandle, other: RecordedHandle) -> Any:
        self._behave(call, f"{one.index},{other.index}")
        answers = self.recording["pairs"].get(f"{one.index}-{other.index}", {})
        if key not in answers:
            raise RecordedError(FUNCTION_NOT_FOUND, "Function Not Found")
        return _value(answers[key]["v"])

    def _behave(self, name: str, arguments: str) -> None:
        """Delays, stalls, crashes or lacks the function, as the recording specifies."""
        for answer, seconds in self.recording["slow"].items():
            if _is_named(answer, name, arguments):
                time.sleep(seconds)
        for answer in self.recording["stall"]:
            while _is_named(answer, name, arguments):
                time.sleep(3600)
        for answer in self.recording["crash"]:
            if _is_named(answer, name, arguments):
                os.kill(os.getpid(), signal.SIGSEGV)
        if name in self.missing:
            raise RecordedError(FUNCTION_NOT_FOUND, "Function Not Found")


def base_name(name: str) -> str:
    """nvmlDeviceGetMemoryInfo of nvmlDeviceGetMemoryInfo_v2: a recording's entry for a call holds
    for each of its versions."""
    return name[:-3] if name[-3:-1] == "_v" else name


def _is_named(answer: str, name: str, arguments: str) -> bool:
    """Whether an entry "name" or "name(3)" is for this call."""
    function, _, rest = answer.replace(" ", "").partition("(")
    return base_name(function) == base_name(name) and (not rest or rest == arguments + ")")


def _c_name(key: str) -> str:
    """The C function behind a recording's key, which is what missing and stall name."""
    return {
        "nvmlDeviceGetMemoryInfo:v2": "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    }.get(key, key.split(":")[0])


def _value(value: Any) -> Any:
    if is_error(value):
        raise RecordedError(value["nvml_error"], value.get("text"))
    if isinstance(value, dict):
        return Struct(value)
    if isinstance(value, list):
        return [Struct(item) if isinstance(item, dict) else item for item in value]
    return value


def field_value(device: dict[str, Any], number: int, scope: int | None) -> Struct:
    """What nvmlDeviceGetFieldValues answers for one field: a structure with nvmlReturn and
    value.ullVal. scope: a link, ALL_LINKS or None."""
    name = FIELD_NAMES.get(number)
    field = device.get("fields", {}).get(f"{name}:{scope}") or device.get("fields", {}).get(name)
    links = device.get("nvlink", [])
    if field is None:
        code, value = INVALID_ARGUMENT, 0
    else:
        code, value = field["ret"], field["ull"]
    if code == 0 and name == "NVML_FI_DEV_NVLINK_LINK_COUNT":
        value = len(links)
    if code == 0 and name in LINK_ERRORS and scope is not None:
        asked = links if scope == ALL_LINKS else links[scope : scope + 1]
        answers = [link[LINK_ERRORS[name]]["v"] for link in asked if LINK_ERRORS[name] in link]
        value = sum(answer for answer in answers if not is_error(answer))
    return Struct({"nvmlReturn": code, "value": Struct({"ullVal": value})})
