"""The quick check and the collector on a real GPU whose driver hangs in one call: exit code and
seconds of each form, and whether a process is left.

    python3 tests/bench/quick_hangs.py --out FOLDER [--dist FOLDER]

Needs gcc and libnvidia-ml.so.1. For each call of CALLS a library is made that never returns from it
(hanging_nvml.c) and asks the real one for all others; it is found by LD_LIBRARY_PATH, and by these
programs alone. Writes FOLDER/quick.json and prints a table. The first row is the driver as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
CALLS = (
    None, "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID", "nvmlDeviceGetTemperature",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetP2PStatus",
)  # fmt: skip
# As roles/node_gate/templates/call.sh.j2 makes it for slurm-prolog.
SCRIPT = """#!/bin/bash -p
timeout -k 5 60 {python} -I -S {pyz} --fail-on error --as slurm-prolog --marked
case $? in
65) exit 0 ;;
64) exit 1 ;;
esac
exit 0
"""


def library_path() -> str:
    """The real library of this machine."""
    ctypes.CDLL("libnvidia-ml.so.1")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return next(line.split()[-1] for line in maps.splitlines() if "libnvidia-ml.so" in line)


def make_library(call: str, real: str, folder: Path) -> None:
    """libnvidia-ml.so.1 in the folder. The real one is needed under another name, for two of one
    name are one library to the loader."""
    (folder / "libreal-nvml.so").symlink_to(real)
    stub = folder / "stub"
    stub.mkdir()
    gcc = ["gcc", "-shared", "-fPIC", "-O1"]
    subprocess.run(
        [
            *gcc,
            "-x",
            "c",
            "/dev/null",
            "-Wl,-soname,libreal-nvml.so",
            "-o",
            str(stub / "libreal-nvml.so"),
        ],
        check=True,
    )
    linked = ["-Wl,--no-as-needed", str(stub / "libreal-nvml.so"), f"-Wl,-rpath,{folder}"]
    subprocess.run(
        [
            *gcc,
            f"-DHANGS_IN={call}",
            str(HERE / "hanging_nvml.c"),
            "-o",
            str(folder / "libnvidia-ml.so.1"),
            *linked,
        ],
        check=True,
    )


def forms(dist: Path, folder: Path) -> dict[str, list[str]]:
    """{form: command}"""
    quick, script = dist / "unhang-quick.pyz", folder / "prolog.sh"
    script.write_text(SCRIPT.format(python=sys.executable, pyz=quick), encoding="utf-8")
    return {
        "quick check": [str(quick)], "python3 -I -S": [sys.executable, "-I", "-S", str(quick)],
        "--as slurm-prolog": [str(quick), "--as", "slurm-prolog"],
        "--as slurm-prolog --require-proof": [str(quick), "--as", "slurm-prolog",
        "--require-proof"], "the role's prolog.sh": ["sh", str(script)],
        "collector": [sys.executable, "-I", "-S", str(dist / "unhang-collect.pyz")],
    }  # fmt: skip


def once(call: str | None, form: tuple[str, list[str]], environment: dict[str, str]) -> dict:
    name, argv = form
    begun = time.monotonic()
    done = subprocess.run(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    seconds = time.monotonic() - begun
    return {
        "hangs in": call,
        "form": name,
        "code": done.returncode,
        "seconds": round(seconds, 2),
        "says": what_it_says(name, done.stdout, done.stderr),
    }


def what_it_says(form: str, stdout: str, stderr: str) -> str:
    """Of the collector's document what it could not read; of the others their words."""
    if form != "collector":
        return (stdout + stderr)[:600]
    probes = {
        name: section["probe"]
        for name, section in json.loads(stdout)["sections"].items()
        if isinstance(section, dict) and "probe" in section
    }
    return json.dumps(
        {
            name: [probe["status"], probe.get("error")]
            for name, probe in probes.items()
            if probe["status"] not in ("ok", "absent")
        }
    )[:600]


def measured(call: str | None, real: str, dist: Path) -> list[dict]:
    """A row for each form. Those of a call that hangs run at once, for waiting costs nothing."""
    with tempfile.TemporaryDirectory() as folder:
        if call:
            make_library(call, real, Path(folder))
        environment = {
            **os.environ,
            **(
                {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
                if call
                else {}
            ),
        }
        with ThreadPoolExecutor(1 if call is None else 8) as pool:
            rows = list(
                pool.map(
                    lambda form: once(call, form, environment), forms(dist, Path(folder)).items()
                )
            )
        time.sleep(1)
        return [{**row, "processes left": left_with(folder)} for row in rows]


def left_with(folder: str) -> int:
    """Processes that have the library still."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found += folder in path.read_text(encoding="utf-8", errors="replace")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dist", type=Path, default=HERE.parents[1] / "dist")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    real, rows = library_path(), []
    for call in CALLS:
        rows += measured(call, real, given.dist.resolve())
        (given.out / "quick.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    sys.stdout.write(
        "| hangs in | form | code | seconds | left | says |\n| --- | --- | --- | --- | --- |"
        " --- |\n"
    )
    for row in rows:
        says = " ".join(row["says"].split())[:110]
        sys.stdout.write(
            f"| {row['hangs in']} | {row['form']} | {row['code']} | {row['seconds']} |"
            f" {row['processes left']} | {says} |\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
