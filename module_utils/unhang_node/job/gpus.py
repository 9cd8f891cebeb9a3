"""Looks at the GPUs twice through NVML: utilisation, clocks, power, throttle reasons, traffic, and
who has memory on them."""

from __future__ import annotations

import time

from ..base.nvml.calls import Asking, Lost
from ..base.nvml.gpu_fields import RECOVERY, read_fabric, read_recovery_action, sysfs_address
from ..base.nvml.live import begin_warming
from ..base.nvml.names import ALL_LINKS, FIELDS, THROTTLE_REASONS, error_name
from ..base.section import Unread
from ..facts.sources.nvml_session import open_handles, open_live_session
from .finding import MORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.section import SourcePiece

CLOCK_SM = 1
SENT, RECEIVED = (
    FIELDS["NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"],
    FIELDS["NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"],
)
IDLE = "gpu_idle"


def read_gpu_looks(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section nvml: gpus [{index, uuid, looks: [...]}] as gpus_1 and gpus_2, the first and
    the second look. Raises Absent without a GPU."""
    unread = Unread()
    asking, handles = open_gpus(ctx, unread, "gpus_1", unread)
    began_s, begun = time.time(), time.monotonic()
    for number in (1, 2):
        for index, handle in sorted(handles.items()):
            about = asking.about(f"gpus_{number}[{index}].", f"GPU {index}", handle=handle)
            try:
                yield "nvml", {f"gpus_{number}": [look_at_gpu(about, index)]}, [], MORE
            except Lost as problem:
                yield "nvml", {f"gpus_{number}": [{"index": index, "lost": str(problem)}]}, [], MORE
        yield "nvml", {f"at_{number}_s": round(began_s + time.monotonic() - begun, 3)}, [], MORE
        if number == 1:
            ctx.mark("the time between two looks", ctx.options["gap_s"] + 1)
            time.sleep(ctx.options["gap_s"])
    yield "nvml", {}, unread.rows


def open_gpus(
    ctx: Context, unread: Unread, name: str, answers: Unread
) -> tuple[Asking, dict[int, Any]]:
    """(who asks the driver, {number: handle} of its GPUs). Those that do not answer become rows of
    `name` in unread; answers: takes what a board does not report. Raises Absent, OSError."""
    session = open_live_session(ctx, begin_warming(ctx))
    ctx.mark("nvmlInitWithFlags")
    try:
        session.nvmlInit()
    except session.NVMLError as problem:
        raise OSError(f"{error_name(problem.value)} from nvmlInitWithFlags") from None
    asking = Asking(session, ctx.mark, answers)
    handles, lost, _ = open_handles(ctx, asking)
    for index, why in lost.items():
        unread.add(f"{name}[{index}]", "error", why)
    return asking, handles


def look_at_gpu(asking: Asking, index: int) -> dict[str, Any]:
    """One look at one GPU; null for what the driver or the board does not report. Raises Lost."""
    handle = asking.handle
    energy = asking.ask(None, "nvmlDeviceGetTotalEnergyConsumption", handle)
    fields = asking.fields((RECOVERY, (SENT, ALL_LINKS), (RECEIVED, ALL_LINKS)))
    links = {entry: answer for entry, answer in fields.items() if entry != RECOVERY}
    pci = asking.ask("pci_address", "nvmlDeviceGetPciInfo", handle)
    return {
        "index": index,
        "uuid": asking.ask("uuid", "nvmlDeviceGetUUID", handle),
        "pci_address": None if pci is None else sysfs_address(pci.busId),
        "recovery_action": read_recovery_action(asking, fields),
        "nvlink_domain": (read_fabric(asking, note=None) or {}).get("cluster"),
        **work_of_gpu(asking),
        "energy_j": energy and energy / 1000.0,
        "temperature_c": asking.ask("temperature_c", "nvmlDeviceGetTemperature", handle, 0),
        "nvlink_kib": [value if code == 0 else None for code, value in links.values()] or None,
        "pcie_kib_s": [
            asking.ask(None, "nvmlDeviceGetPcieThroughput", handle, way) for way in (0, 1)
        ],
    }


def work_of_gpu(asking: Asking) -> dict[str, Any]:
    """The part of a look that costs little, for samples: the driver measures PCIe's throughput for
    20 ms in each direction. Raises Lost."""
    busy = asking.ask("utilization_percent", "nvmlDeviceGetUtilizationRates", asking.handle)
    power = asking.ask("power_w", "nvmlDeviceGetPowerUsage", asking.handle)
    return {
        "utilization_percent": busy and busy.gpu,
        "memory_activity_percent": busy and busy.memory,
        "power_w": power and power / 1000.0,
        "clock_sm_mhz": asking.ask(
            "clock_sm_mhz", "nvmlDeviceGetClockInfo", asking.handle, CLOCK_SM
        ),
        "throttle": _throttle(asking),
        "processes": _processes(asking),
    }


def _throttle(asking: Asking) -> list[str] | None:
    bits = asking.ask_first(
        "throttle",
        ("nvmlDeviceGetCurrentClocksEventReasons", asking.handle),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", asking.handle),
    )
    return (
        None
        if bits is None
        else [name for bit, name in THROTTLE_REASONS if bits & bit and name != IDLE]
    )


def _processes(asking: Asking) -> list[list[int | None]] | None:
    """[[pid, MiB]] with compute contexts on the GPU."""
    name = "nvmlDeviceGetComputeRunningProcesses"
    found = asking.ask_first(
        "processes", (name + "_v3", asking.handle), (name + "_v2", asking.handle)
    )
    if found is None:
        return None
    return [
        [row.pid, None if row.usedGpuMemory in (None, 2**64 - 1) else row.usedGpuMemory >> 20]
        for row in found[:256]
    ]
