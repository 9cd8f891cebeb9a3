"""A CUDA context that comes about while torch is imported.

Eight ranks that make theirs at once wait for the driver for twice as long as for the import (docs/benchmarks.md).
"""

from __future__ import annotations

import ctypes
import os
import threading


def begin_context(index: int) -> threading.Thread:
    """Makes the context of GPU `index` in a thread that holds no lock of Python's. What goes wrong torch meets again, and says in its own words."""
    maker = threading.Thread(target=retain_context, args=(index,), daemon=True)
    maker.start()
    return maker


def retain_context(index: int) -> bool:
    """Whether the GPU's primary context is there, which is the one that torch uses; it stays as long as the process."""
    # Before drivers of CUDA 12.2 every kernel of torch would be loaded at once. torch sets the same, too late for a context that is there already.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return False
    return bool(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0)
