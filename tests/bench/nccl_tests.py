"""NVIDIA's nccl-tests (https://github.com/NVIDIA/nccl-tests): in the folder that the caller names,
or built from a checkout against torch's own NCCL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

GIB = 1 << 30
PROGRAMS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "broadcast": "broadcast_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
}  # fmt: skip
PLACES = (
    "/opt/nccl-tests/build",
    "/usr/local/nccl-tests/build",
    "/opt/nccl-tests",
    "/usr/local/bin",
    "/usr/bin",
    "/root/nccl-tests/build",
)
ROW = re.compile(r"^\s*(\d+)\s+\d+\s+float\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)")
BUILD_S = 120
ABOUT_TORCH = """
import pathlib, torch
major, minor = torch.cuda.get_device_capability()
roots = [pathlib.Path(torch.__file__).parent.parent / "nvidia" / name for name in ("nccl", "cu13/nccl")]
print(next((root for root in roots if (root / "include" / "nccl.h").is_file()), ""), f"{major}{minor}")
"""


def find_nccl_tests(named: str | None) -> Path | None:
    """The folder of all_reduce_perf, or None."""
    on_path = shutil.which("all_reduce_perf")
    for place in [
        named,
        os.environ.get("NCCL_TESTS"),
        *([str(Path(on_path).parent)] if on_path else []),
        *PLACES,
    ]:
        if place and (Path(place) / "all_reduce_perf").is_file():
            return Path(place)
    return None


def build_nccl_tests(source: Path, python: str) -> Path | None:
    """The folder of the programs, built for this GPU against torch's NCCL; None where the build
    fails, and the reason is printed."""
    folder = Path(tempfile.mkdtemp(prefix="nccl-tests-"))
    asked = subprocess.run(
        [python, "-c", ABOUT_TORCH], capture_output=True, text=True, check=False
    ).stdout.split()
    if len(asked) != 2 or not (source / "src").is_dir():
        sys.stdout.write(
            f"nccl-tests: expected its source in {source} and headers of NCCL beside torch, found"
            f" {asked}\n"
        )
        return None
    nccl, architecture = Path(asked[0]), asked[1]
    home = folder / "nccl"
    home.mkdir()
    (home / "include").symlink_to(nccl / "include")
    (home / "lib").mkdir()
    for library in (nccl / "lib").glob("libnccl*.so*"):
        (home / "lib" / library.name).symlink_to(library)
    if not (home / "lib" / "libnccl.so").exists():
        (home / "lib" / "libnccl.so").symlink_to(nccl / "lib" / "libnccl.so.2")
    cuda = os.environ.get("CUDA_HOME") or str(
        Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve().parent.parent
    )
    settings = {"BUILDDIR": folder / "build", "CUDA_HOME": cuda, "NCCL_HOME": home, "MPI": 0,
                "NVCC_GENCODE": f"-gencode=arch=compute_{architecture},code=sm_{architecture}"}  # fmt: skip
    argv = [
        "make",
        "-j",
        str(min(32, os.cpu_count() or 4)),
        "-C",
        str(source),
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        sys.stdout.write(f"nccl-tests: {problem}\n")
        return None
    if done.returncode or not (folder / "build" / "all_reduce_perf").is_file():
        sys.stdout.write(
            f"nccl-tests: make ended with {done.returncode}:"
            f" {(done.stdout + done.stderr)[-1500:]}\n"
        )
        return None
    return folder / "build"


def nccl_tests_busbw(
    place: Path | None, name: str, gpus: int, library: str | None, settings: Mapping[str, str]
) -> float | None:
    """busbw (GB/s, out-of-place) of one run at 1 GiB under torch's own libnccl; None when the
    program does not exist or prints no busbw."""
    if place is None or not (place / PROGRAMS[name]).is_file():
        return None
    argv = [
        str(place / PROGRAMS[name]),
        "-b",
        "1G",
        "-e",
        "1G",
        "-g",
        str(gpus),
        "-w",
        "5",
        "-n",
        "40",
        "-c",
        "0",
    ]
    paths = [str(Path(library).parent)] if library else []
    environment = {
        **os.environ,
        **settings,
        "LD_LIBRARY_PATH": os.pathsep.join([*paths, os.environ.get("LD_LIBRARY_PATH", "")]),
    }
    try:
        done = subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        sys.stdout.write(f"  nccl-tests: {problem}\n")
        return None
    found = [
        float(row[4])
        for line in done.stdout.splitlines()
        if (row := ROW.match(line)) and int(row[1]) == GIB
    ]
    if not found:
        sys.stdout.write(
            f"  {PROGRAMS[name]} ended with {done.returncode}:"
            f" {(done.stdout + done.stderr)[-400:]}\n"
        )
    return found[0] if found else None
