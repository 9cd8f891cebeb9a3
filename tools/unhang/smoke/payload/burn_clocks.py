"""A GPU's clock, power and temperature under load, and what holds its clock back, from NVML."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from .nvml import call, nvml_handles
from .run import Run

# nvmlClocksEventReasons*:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
# newer and older drivers
HELD = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
READINGS = {  # function, its arguments, unit; nvmlClockType_t 1 is the SM's
    "sm_mhz": ("nvmlDeviceGetClockInfo", (1,), 1.0),
    "power_w": ("nvmlDeviceGetPowerUsage", (), 1e-3),
    "temperature_c": ("nvmlDeviceGetTemperature", (0,), 1.0),
}  # fmt: skip


class Clocks:
    """Sums of all readings of this rank's GPU; without the library or the GPU there are none."""

    def __init__(self, run: Run) -> None:
        self.handle: Any = None
        self.samples = 0
        self.sums: dict[str, float] = {}
        self.held: dict[str, int] = {}
        with contextlib.suppress(OSError):
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            known = (
                run.torch.cuda.get_device_properties(run.device)
                if run.device.type == "cuda"
                else None
            )
            handles = nvml_handles(self.library) if call(self.library, "nvmlInit_v2") == 0 else []
            self.handle = next(
                (
                    handle
                    for handle, uuid in handles
                    if uuid == "GPU-%s" % getattr(known, "uuid", None)
                ),
                None,
            )

    def read(self) -> None:
        """Adds one reading. A driver that hangs here stalls the rank, which its agent reports."""
        if self.handle is None:
            return
        self.samples += 1
        for name, (function, arguments, unit) in READINGS.items():
            value = ctypes.c_uint()
            if call(self.library, function, self.handle, *arguments, ctypes.byref(value)) == 0:
                self.sums[name] = self.sums.get(name, 0.0) + value.value * unit
        reasons = ctypes.c_ulonglong()
        if any(call(self.library, name, self.handle, ctypes.byref(reasons)) == 0 for name in HELD):
            for bit, name in REASONS.items():
                self.held[name] = self.held.get(name, 0) + bool(reasons.value & bit)

    def report(self) -> dict[str, Any]:
        """Means of the readings, and for each reason the share of the readings in which it held the
        clock back."""
        count = max(1, self.samples)
        means = {name: round(total / count, 1) for name, total in self.sums.items()}
        return dict(
            means,
            held_back={name: round(times / count, 3) for name, times in self.held.items() if times},
        )
