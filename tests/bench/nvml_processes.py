"""Whether NVML answers several processes at the same time: the collector's dearest calls in one
process, and shared out among several.

    python3 tests/bench/nvml_processes.py [--rounds 9]

Each process opens its own session, for what a call costs is paid again in each. Prints Markdown:
the median until the last answer, of each way in turn, and its ratio to one process. Only the C
library is called, so the first row is also the least that any program pays for these answers.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import time
from typing import Any, NamedTuple

LINKS = 18
FIELDS_OF_A_GPU = (94, 142, 143, 144, 145)  # PCIe replays, remapped rows
LINK_ERRORS = (161, 162, 163)  # replay, recovery and CRC, summed over a GPU's links
ALL_LINKS = 0xFFFFFFFF


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("type", ctypes.c_uint), ("code", ctypes.c_uint), ("value", ctypes.c_ulonglong),
    )  # fmt: skip


class Share(NamedTuple):
    """What one process asks: the GPUs that it opens, those whose state and links it reads, and the
    pairs."""

    opened: list[int]
    devices: list[int]
    links: list[int]
    pairs: list[tuple[int, int]]


def ask_fields(library: Any, handle: Any, fields: tuple[int, ...], scope: int = 0) -> None:
    """One call for several fields."""
    rows = (FieldValue * len(fields))()
    for row, field in zip(rows, fields, strict=True):
        row.field, row.scope = field, scope
    library.nvmlDeviceGetFieldValues(handle, len(fields), rows)


def ask_device(library: Any, handle: Any) -> None:
    """A GPU's dearest facts."""
    one, other, counts, text = (
        ctypes.c_uint(),
        ctypes.c_uint(),
        (ctypes.c_ulonglong * 3)(),
        ctypes.create_string_buffer(96),
    )
    library.nvmlDeviceGetEccMode(handle, ctypes.byref(one), ctypes.byref(other))
    library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref((ctypes.c_uint * 2)()))
    library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(one))
    library.nvmlDeviceGetVbiosVersion(handle, text, len(text))
    library.nvmlDeviceGetBAR1MemoryInfo(handle, ctypes.byref(counts))
    for kind in (0, 1):
        library.nvmlDeviceGetTotalEccErrors(handle, kind, 1, ctypes.byref(counts))
    library.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(one))
    library.nvmlDeviceGetClockInfo(handle, 1, ctypes.byref(one))
    ask_fields(library, handle, FIELDS_OF_A_GPU)


def ask_links(library: Any, handle: Any) -> None:
    """State of each NVLink, and the sums of their errors."""
    for link in range(LINKS):
        library.nvmlDeviceGetNvLinkState(handle, link, ctypes.byref(ctypes.c_uint()))
    ask_fields(library, handle, LINK_ERRORS, ALL_LINKS)


def ask(share: Share) -> None:
    """One process's work, from opening the library. Raises RuntimeError when NVML cannot be
    used."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if code := library.nvmlInitWithFlags(0):
        raise RuntimeError(f"nvmlInitWithFlags: error {code}")
    handles = {}
    for gpu in share.opened:
        handles[gpu] = ctypes.c_void_p()
        if code := library.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(handles[gpu])):
            raise RuntimeError(f"nvmlDeviceGetHandleByIndex({gpu}): error {code}")
    for gpu in share.devices:
        ask_device(library, handles[gpu])
    for gpu in share.links:
        ask_links(library, handles[gpu])
    for one, other in share.pairs:
        library.nvmlDeviceGetP2PStatus(
            handles[one], handles[other], 0, ctypes.byref(ctypes.c_int())
        )


def in_child(work: Any, *given: Any) -> tuple[int, int]:
    """(process, pipe that it writes one byte to once it has its answers)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(*given)
            os.write(writing, b".")
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    return pid, reading


def timed(shares: list[Share]) -> float:
    """ms until the last process has its answers. Raises RuntimeError when one has none."""
    begun = time.perf_counter()
    children = [in_child(ask, share) for share in shares]
    answers = [os.read(pipe, 1) for _, pipe in children]
    took = (time.perf_counter() - begun) * 1000.0
    for pid, pipe in children:
        os.close(pipe)
        os.waitpid(pid, 0)
    if answers != [b"."] * len(shares):
        raise RuntimeError(
            "expected an answer of each process, found none of one of them: see above"
        )
    return took


def ways_of(count: int) -> dict[str, list[Share]]:
    """{name: shares} for so many GPUs."""
    gpus = list(range(count))
    pairs = [(one, other) for one in gpus for other in gpus if one < other]
    halves = [gpus[: count // 2], gpus[count // 2 :]]
    return {
        "one process": [Share(gpus, gpus, gpus, pairs)],
        "GPUs in one, links and pairs in another": [
            Share(gpus, gpus, [], []),
            Share(gpus, [], gpus, pairs),
        ],
        "half of everything in each of two": [
            Share(gpus, half, half, pairs[place::2]) for place, half in enumerate(halves)
        ],
        "a process for each GPU, one more for the pairs": [
            *(Share([gpu], [gpu], [gpu], []) for gpu in gpus),
            Share(gpus, [], [], pairs),
        ],
        "one process, init and handles alone": [Share(gpus, [], [], [])],
    }


def count_gpus() -> int:
    """How many there are, asked by a child: a session that was open before a fork would be
    shared."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            library, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
            if not library.nvmlInitWithFlags(0) and not library.nvmlDeviceGetCount_v2(
                ctypes.byref(count)
            ):
                os.write(writing, str(count.value).encode("ascii"))
        finally:
            os._exit(0)
    os.close(writing)
    output = os.read(reading, 16)
    os.close(reading)
    os.waitpid(pid, 0)
    return int(output or 0)


def main() -> int:
    """0 when all was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    count = count_gpus()
    if count < 2:
        sys.stdout.write(f"expected two GPUs or more, found {count}: nothing to share out\n")
        return 1
    ways = ways_of(count)
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, shares in ways.items():
            times.setdefault(name, []).append(timed(shares))
    alone = statistics.median(times["one process"])
    sys.stdout.write(
        f"| NVML calls on {count} GPUs | ms until the last answer | of one process |\n| --- | --- |"
        " --- |\n"
    )
    for name, found in times.items():
        sys.stdout.write(
            f"| {name} | {statistics.median(found):.1f} |"
            f" {statistics.median(found) / alone:.2f} |\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
