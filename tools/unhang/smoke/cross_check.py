"""Compares our bandwidth with that of nccl-tests, where it is installed:
https://github.com/NVIDIA/nccl-tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf", "broadcast": "broadcast_perf",
    "all_to_all": "alltoall_perf",
}  # fmt: skip
LIMIT_S = 60
# nccl-tests has all GPUs in one process, where NCCL copies straight between users' buffers. Ranks
# of a training have a process each and go by buffers of NCCL: alike is compared with alike.
# https://github.com/NVIDIA/nccl/blob/master/src/transport/p2p.cc
ONE_PROCESS = {"NCCL_P2P_DIRECT_DISABLE": "1"}
_ROW = re.compile(
    r"^\s*(\d+)\s+\d+\s+float\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s", re.MULTILINE
)


def parse_busbw(output: str) -> dict[int, float]:
    """Size in bytes -> out-of-place busbw (GB/s) of a table of nccl-tests."""
    return {int(found[1]): float(found[4]) for found in _ROW.finditer(output)}


def cross_check(
    rows: Sequence[Mapping[str, Any]],
    gpus: int,
    environment: Mapping[str, str],
    library: str | None,
) -> list[dict[str, Any]]:
    """{op, size_bytes, busbw_gb_s, nccl_tests_gb_s, ratio} for the largest size of each operation
    whose program is on PATH.

    rows: of the result's `collectives`. library: the libnccl that torch uses, so that both measure
    the same one.
    """
    found = []
    for operation, program in PROGRAMS.items():
        measured = [
            row for row in rows if row["op"] == operation and row["measures"] == "bandwidth"
        ]
        if not measured or shutil.which(program) is None:
            continue
        row = max(measured, key=lambda one: one["size_bytes"])
        theirs = _run(program, row["size_bytes"], gpus, environment, library)
        if theirs:
            ratio = round(row["busbw_gb_s"] / theirs, 3)
            found.append(
                {
                    "op": operation,
                    "size_bytes": row["size_bytes"],
                    "busbw_gb_s": row["busbw_gb_s"],
                    "nccl_tests_gb_s": theirs,
                    "ratio": ratio,
                }
            )
    return found


def _run(
    program: str, size: int, gpus: int, environment: Mapping[str, str], library: str | None
) -> float | None:
    """busbw of one run, None if it gave none."""
    paths = [
        *([str(Path(library).parent)] if library else []),
        *filter(None, [os.environ.get("LD_LIBRARY_PATH")]),
    ]
    argv = [
        program,
        "-b",
        str(size),
        "-e",
        str(size),
        "-g",
        str(gpus),
        "-w",
        "5",
        "-n",
        "20",
        "-c",
        "0",
    ]
    variables = {
        **ONE_PROCESS,
        **os.environ,
        **environment,
        "LD_LIBRARY_PATH": os.pathsep.join(paths),
    }
    try:
        output = subprocess.run(
            argv,
            env=variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_busbw(output).get(size)
