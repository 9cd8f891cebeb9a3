"""Opens the driver's NVML session and its GPUs; for whoever reads something of them."""

from __future__ import annotations

import time

from ...base.nvml.calls import Asking
from ...base.nvml.live import LiveSession
from ...base.nvml.names import error_name
from ...base.section import Absent
from ..sections.nvidia_devices import find_nvidia

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.context import Context
    from ...base.nvml.live import Warmth


def open_live_session(ctx: Context, warmth: Warmth | Exception | None) -> LiveSession:
    """A session of this machine's driver, not yet initialised. warmth: the result of
    live.begin_warming. Raises Absent, OSError."""
    if isinstance(warmth, Absent):
        gpus = gpus_on_bus(ctx)
        if gpus:
            raise OSError(
                f"{warmth}, yet the PCI bus has {len(gpus)} NVIDIA GPUs: no driver installed"
            )
    if isinstance(warmth, Exception):
        raise warmth
    if ctx.load_pynvml is None:
        raise Absent("no nvidia-ml-py was given")
    return LiveSession(ctx.load_pynvml(), warmth)


def gpus_on_bus(ctx: Context) -> list[str]:
    """PCI addresses of NVIDIA's GPUs, [] where the bus cannot be listed."""
    try:
        return find_nvidia(ctx.root)["gpus"]
    except OSError:
        return []


def open_handles(ctx: Context, asking: Asking) -> tuple[dict[int, Any], dict[int, str], float]:
    """({index: handle}, {index: why there is none}, monotonic seconds when the first handle was
    open) of every GPU that NVML counts."""
    allow_s = getattr(asking.session, "first_handle_s", 0.0)
    count, code = asking.try_ask("nvmlDeviceGetCount")
    if code:
        raise OSError(f"{error_name(code)} from nvmlDeviceGetCount_v2")
    handles, lost, first_s = {}, {}, time.monotonic()
    for index in range(count):
        ctx.mark(f"nvmlDeviceGetHandleByIndex_v2(GPU {index})", allow_s)
        try:
            handles[index] = asking.session.nvmlDeviceGetHandleByIndex(index)
        except asking.session.NVMLError as problem:
            lost[index] = f"{error_name(problem.value)} from nvmlDeviceGetHandleByIndex_v2"
        if index == 0:
            first_s = time.monotonic()
    return handles, lost, first_s
