"""Creates a CUDA context in a thread while torch is imported.

Eight ranks that create theirs at the same time wait for the driver twice as long as for the import
(docs/benchmarks.md).
"""

from __future__ import annotations

import ctypes
import os
import threading


def begin_context(index: int) -> threading.Thread:
    """Creates the context of GPU `index` in a thread that does not hold Python's lock. An error is
    not lost: torch meets it again and reports it."""
    maker = threading.Thread(target=retain_context, args=(index,), daemon=True)
    maker.start()
    return maker


def retain_context(index: int) -> bool:
    """Whether the GPU's primary context exists, which is the one that torch uses; it lives as long
    as the process."""
    # Drivers before CUDA 12.2 load every kernel of torch at once by default. torch sets this
    # variable too, but too late for a context that exists already.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return False
    return bool(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0)
