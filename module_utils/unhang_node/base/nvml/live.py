"""A live NVML session through nvidia-ml-py, opened so that its slow parts overlap.

Importing nvidia-ml-py costs 20 to 95 ms of Python; NVML's init and first handles cost 25 to 115 ms
in the driver. A thread makes these calls, on the same library and by the same C functions, while
this one imports. nvidia-ml-py's own calls then cost microseconds (NVML counts inits, and the
handles exist). The same thread makes the first topology query (15 to 45 ms, spent reading sysfs
inside the library), which is waited for only when its answer is needed.
"""

from __future__ import annotations

import _thread
import ctypes
import time

from ..section import Absent
from .names import FUNCTION_NOT_FOUND, MEMORY_V2
from .waking import seconds_for_first_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context, MarkFunction

LIBRARY = "libnvidia-ml.so.1"
SRAM_STATUS_VERSION = 0x1000068
FABRIC_V2 = 0x02000024


def begin_warming(ctx: Context) -> Warmth | Exception | None:
    """A Warmth whose thread runs, or the exception raised when the library was opened: Absent if
    there is none, OSError if it cannot be loaded. None for a recording, or for a root that is not
    this machine's."""
    if ctx.options.get("nvml_recording") or not ctx.root.is_live:
        return None
    first_handle_s = seconds_for_first_handle(ctx)
    ctx.mark(f"dlopen {LIBRARY}")
    try:
        return Warmth(ctypes.CDLL(LIBRARY), ctx.mark, first_handle_s)
    except OSError as problem:
        if "cannot open shared object file" in str(problem) and LIBRARY + ":" in str(problem):
            return Absent(f"{LIBRARY} is not in the loader's paths")
        return problem


class Warmth:
    """Init, handles and first topology query, running in a thread. A call that fails here is
    repeated, and reported, by the session's own calls.

    first_handle_s: how long init and each first handle may take (0: as any call).
    """

    def __init__(self, library: Any, mark: MarkFunction, first_handle_s: float) -> None:
        self.library = library
        self.mark = mark
        self.first_handle_s = first_handle_s
        self.first_handle_ms: float | None = None
        self.call = "nvmlInitWithFlags"
        self.handles_done = _thread.allocate_lock()
        self.topology_done = _thread.allocate_lock()
        self.handles_done.acquire()
        self.topology_done.acquire()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        try:
            handles = self._open_handles()
        finally:
            self.handles_done.release()
        try:
            if len(handles) > 1 and hasattr(self.library, "nvmlDeviceGetTopologyCommonAncestor"):
                self.library.nvmlDeviceGetTopologyCommonAncestor(
                    handles[0], handles[1], ctypes.byref(ctypes.c_uint())
                )
        finally:
            self.topology_done.release()

    def _open_handles(self) -> list[Any]:
        names = ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2")
        if not all(hasattr(self.library, name) for name in names):
            return []
        self._mark_call("nvmlInitWithFlags")
        count, handles, begun = ctypes.c_uint(), [], time.monotonic()
        if self.library.nvmlInitWithFlags(0) or self.library.nvmlDeviceGetCount_v2(
            ctypes.byref(count)
        ):
            return []
        for index in range(count.value):
            self._mark_call(f"nvmlDeviceGetHandleByIndex_v2(GPU {index})")
            handle = ctypes.c_void_p()
            if self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                handles.append(handle)
            if index == 0:
                self.first_handle_ms = (time.monotonic() - begun) * 1000.0
        return handles

    def _mark_call(self, call: str) -> None:
        self.call = call
        self.mark(call, self.first_handle_s)

    def wait_for_handles(self) -> None:
        if not self.handles_done.acquire(False):
            # the main thread has set other marks meanwhile
            self.mark(self.call, self.first_handle_s)
            self.handles_done.acquire()
        self.handles_done.release()

    def wait_for_topology(self) -> None:
        with self.topology_done:
            pass


class LiveSession:
    """nvidia-ml-py's functions by their own names; those that take a structure to fill return it
    filled."""

    def __init__(self, pynvml: Any, warmth: Warmth | None = None) -> None:
        self.pynvml = pynvml
        self.warmth = warmth
        self.NVMLError = pynvml.NVMLError

    @property
    def first_handle_ms(self) -> float | None:
        """How long init and the first handle took in the driver, or None if the thread did not get
        that far."""
        return self.warmth.first_handle_ms if self.warmth else None

    @property
    def first_handle_s(self) -> float:
        """How long each first handle may take (0: as any call)."""
        return self.warmth.first_handle_s if self.warmth else 0.0

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.pynvml, name)
        except AttributeError:
            raise self.pynvml.NVMLError(FUNCTION_NOT_FOUND) from None

    def nvmlInit(self) -> None:
        if self.warmth:
            self.warmth.wait_for_handles()
        self.pynvml.nvmlInit()

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> Any:
        if self.warmth:
            self.warmth.wait_for_topology()
        return self.pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        # nvidia-ml-py before 11.520 has no argument for a version; only the first version of the
        # call is used then.
        if version == MEMORY_V2 and not hasattr(self.pynvml, "nvmlMemory_v2"):
            raise self.pynvml.NVMLError(FUNCTION_NOT_FOUND)
        return (
            self.pynvml.nvmlDeviceGetMemoryInfo(handle, version)
            if version
            else self.pynvml.nvmlDeviceGetMemoryInfo(handle)
        )

    def nvmlDeviceGetGpuFabricInfoV(self, handle: Any, _version: str) -> Any:
        status = self._struct("c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfoV_t")
        status.version = FABRIC_V2
        self.pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(status))
        return status

    def nvmlDeviceGetGpuFabricInfo(self, handle: Any) -> Any:
        status = self._struct("c_nvmlGpuFabricInfo_t")
        self.pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(status))
        return status

    def nvmlDeviceGetSramEccErrorStatus(self, handle: Any) -> Any:
        status = self._struct("c_nvmlEccSramErrorStatus_v1_t")
        status.version = SRAM_STATUS_VERSION
        self.pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
        return status

    def _struct(self, *names: str) -> Any:
        for name in names:
            if hasattr(self.pynvml, name):
                return getattr(self.pynvml, name)()
        raise self.pynvml.NVMLError(FUNCTION_NOT_FOUND)
