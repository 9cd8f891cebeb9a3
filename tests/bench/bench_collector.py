"""Bench (a): what the one-file collector costs. Needs python3 (3.8 or newer), the .pyz, and for the
comparison nvidia-smi; nothing else.

    python3 tests/bench/bench_collector.py dist/unhang-collect.pyz [--rounds 7]

On a machine with GPUs: `unhang-collect.pyz` in full against `nvidia-smi -q` and `nvidia-smi topo
-m`, in turn, median wall times and their ratio; then one NVML session split into phases and its
dearest calls. Anywhere: CPU time of everything but NVML with four libnccl of 250 MB. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

LIBRARY_BYTES = 250 * 1024 * 1024
LIBRARIES = 4
BANNER = b"NCCL version 2.%d.5+cuda12.4\0"
# One NVML session inside one process, timed from mark to mark: argument 1 is the .pyz.
PHASES = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import _frozen_importlib_external as external
sys.path.insert(0, sys.argv[1] + "/code-" + external.MAGIC_NUMBER.hex())
begun = time.perf_counter()
from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.root import Root
from unhang_node.facts.sources import nvml
marks, pieces = [], []
def load():
    before = time.perf_counter()
    import pynvml
    pieces.append(["import nvidia-ml-py (beside init and handles)", time.perf_counter() - before])
    return pynvml
context = Context(Root(), dict(DEFAULTS), ["gpus", "interconnect", "driver"], load, lambda text, allow_s=0.0: marks.append((time.perf_counter(), text)))
pieces.append(["import collector", time.perf_counter() - begun])
before = time.perf_counter()
count = 0
from unhang_node.base.nvml.live import begin_warming
for section, fields, unread, *more in nvml.read(context, begin_warming(context)):
    now = time.perf_counter()
    name = "init, handles, driver" if section == "driver" else "GPUs" if section == "gpus" else "pairs" if "pairs" in fields else "links"
    if "count" in fields:
        name, count = "identities", fields["count"]
    pieces.append([name, now - before])
    before = now
calls = {}
for (start, text), (end, _) in zip(marks, marks[1:] + [(time.perf_counter(), "")]):
    calls.setdefault(text.split("(")[0].split(" ")[0], []).append(end - start)
print(json.dumps({"pieces": pieces, "calls": calls, "gpus": count}))
"""
# All sources but NVML, as collect starts them: argument 1 the .pyz, argument 2 a folder with
# libnccl.
WITHOUT_NVML = """
import sys
sys.path.insert(0, sys.argv[1])
import _frozen_importlib_external as external
sys.path.insert(0, sys.argv[1] + "/code-" + external.MAGIC_NUMBER.hex())
from unhang_node.facts import collect
collect.SOURCES = tuple(source for source in collect.SOURCES if source[0] != "nvml")
document = collect.collect({"nccl_roots": [sys.argv[2]], "collected_via": "file"}, None)
from unhang_node.base.document import encode
sys.stdout.write(encode(document))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pyz", nargs="?", default="dist/unhang-collect.pyz")
    parser.add_argument(
        "--quick",
        default="dist/unhang-quick.pyz",
        help="the one-file quick check, timed beside the collector",
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    pyz = os.path.abspath(arguments.pyz)
    say(
        f"Machine: {describe_machine()}; Python {platform.python_version()}; {arguments.rounds}"
        " rounds, medians.\n"
    )
    if shutil.which("nvidia-smi"):
        compare_with_nvidia_smi(pyz, os.path.abspath(arguments.quick), arguments.rounds)
        split_into_phases(pyz, arguments.rounds)
    else:
        say("No nvidia-smi here: the part without NVML only.\n")
    time_without_nvml(pyz, arguments.rounds)
    if os.path.exists(arguments.quick):
        time_quick(pyz, os.path.abspath(arguments.quick), arguments.rounds)


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def describe_machine():
    """CPU, cores, memory and GPUs in one line."""
    names = [
        line.split(":", 1)[1].strip()
        for line in lines_of("/proc/cpuinfo")
        if line.startswith("model name")
    ]
    memory = next(
        (
            int(line.split()[1]) // 1024 // 1024
            for line in lines_of("/proc/meminfo")
            if line.startswith("MemTotal")
        ),
        0,
    )
    text = (
        f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {memory} GiB, Linux"
        f" {platform.release()}"
    )
    if shutil.which("nvidia-smi"):
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines()
        text += f", {len(found)} × {found[0]}" if found else ""
    return text


def lines_of(path):
    with open(path, encoding="utf-8", errors="replace") as source:
        return source.read().splitlines()


def timed(argv, out=subprocess.DEVNULL, codes=(0,)):
    """(wall s, CPU s of the process and all that it waited for). codes: exit codes that are
    answers."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, stdout=out, stderr=subprocess.DEVNULL, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(argv)}: expected exit code {codes}, found {done.returncode}")
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare_with_nvidia_smi(pyz, quick, rounds):
    """Prints the ratio that the bench is about."""
    commands = {
        "nvidia-smi -q": ["nvidia-smi", "-q"],
        "nvidia-smi topo -m": ["nvidia-smi", "topo", "-m"],
        "unhang-collect.pyz": [sys.executable, pyz],
        "unhang-collect.pyz (python3 -I -S)": [sys.executable, "-I", "-S", pyz],
        "unhang-collect.pyz, GPUs and interconnect alone": [
            sys.executable,
            pyz,
            "--gather-subset",
            "!all,!min,gpus,interconnect",
        ],
        **({"unhang-quick.pyz": [sys.executable, quick]} if os.path.exists(quick) else {}),
        "python3 -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
    }
    times = {name: [] for name in commands}
    for _ in range(rounds + 1):  # the first round warms caches and is not counted
        for name, argv in commands.items():
            times[name].append(timed(argv, codes=(0, 1, 2) if quick in argv else (0,)))
    wall = {
        name: statistics.median(row[0] for row in rows[1:]) * 1000 for name, rows in times.items()
    }
    cpu = {
        name: statistics.median(row[1] for row in rows[1:]) * 1000 for name, rows in times.items()
    }
    pair = wall["nvidia-smi -q"] + wall["nvidia-smi topo -m"]
    say("| command | wall ms | CPU ms | of the pair |\n| --- | --- | --- | --- |")
    say(
        f"| `nvidia-smi -q` and `nvidia-smi topo -m` | {pair:.0f} |"
        f" {cpu['nvidia-smi -q'] + cpu['nvidia-smi topo -m']:.0f} | 1 |"
    )
    for name in commands:
        say(f"| `{name}` | {wall[name]:.0f} | {cpu[name]:.0f} | {wall[name] / pair:.2f} |")
    say("")


def split_into_phases(pyz, rounds):
    """Prints what one NVML session spends its time on."""
    runs = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PHASES, pyz],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            say("No NVML session: " + (done.stderr.strip().splitlines() or ["no word"])[-1] + "\n")
            return
        runs.append(json.loads(done.stdout))
    names = list(dict.fromkeys(name for run in runs for name, _ in run["pieces"]))
    say(f"| phase of the NVML session ({runs[0]['gpus']} GPUs) | ms |\n| --- | --- |")
    for name in names:
        say(
            f"| {name} |"
            f" {1000 * statistics.median(sum(s for n, s in run['pieces'] if n == name) for run in runs):.1f} |"
        )
    say("\n| call | times | ms in all |\n| --- | --- | --- |")
    calls = {
        name: statistics.median(sum(run["calls"].get(name, [])) for run in runs) * 1000
        for name in runs[0]["calls"]
    }
    for name, spent in sorted(calls.items(), key=lambda row: -row[1])[:16]:
        say(f"| `{name}` | {len(runs[0]['calls'][name])} | {spent:.1f} |")
    say("")


def time_without_nvml(pyz, rounds):
    """Prints the CPU time of everything but NVML, with large libraries to look at."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(LIBRARIES):
            write_library(
                os.path.join(folder, f"libnccl.so.2.{18 + number}.5"), BANNER % (18 + number)
            )
        argv = [sys.executable, "-I", "-S", "-c", WITHOUT_NVML, pyz, folder]
        bare = [sys.executable, "-I", "-S", "-c", "pass"]
        rows = {"everything but NVML": [], "python3 -I -S -c pass": []}
        for _ in range(rounds + 1):
            rows["everything but NVML"].append(timed(argv))
            rows["python3 -I -S -c pass"].append(timed(bare))
        document = json.loads(
            subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        )
        found = [
            row["version"]
            for row in document["sections"]["nccl"]["libraries"]
            if row["path"].startswith(folder)
        ]
        say(
            f"| {LIBRARIES} × libnccl of {LIBRARY_BYTES >> 20} MiB, versions read:"
            f" {', '.join(map(str, found))} | wall ms | CPU ms |\n| --- | --- | --- |"
        )
        for name, times in rows.items():
            say(
                f"| {name} | {1000 * statistics.median(row[0] for row in times[1:]):.0f} |"
                f" {1000 * statistics.median(row[1] for row in times[1:]):.0f} |"
            )
        say(f"\nDocument: {len(json.dumps(document, separators=(',', ':')))} bytes without NVML.")


def time_quick(pyz, quick, rounds):
    """Prints the CPU time of the quick check on this machine, beside that of the collector, which
    the quick check contains."""
    commands = {
        "unhang-collect.pyz": [sys.executable, pyz],
        "unhang-quick.pyz": [sys.executable, quick],
    }
    times = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, argv in commands.items():
            times[name].append(timed(argv, codes=(0, 1, 2)))
    say("\n| on this machine | wall ms | CPU ms |\n| --- | --- | --- |")
    for name, rows in times.items():
        say(
            f"| `{name}` | {1000 * statistics.median(row[0] for row in rows[1:]):.0f} |"
            f" {1000 * statistics.median(row[1] for row in rows[1:]):.0f} |"
        )


def write_library(path, banner):
    """A sparse ELF file of the size and shape of a libnccl: the banner in 256 KiB of .rodata, the
    rest a hole."""
    names = b"\0.rodata\0.nv_fatbin\0.shstrtab\0"
    rodata = bytearray(256 * 1024)
    rodata[200 * 1024 : 200 * 1024 + len(banner)] = banner
    at, table = 4096, LIBRARY_BYTES - 4096
    sections = [
        (0, 0, 0, 0),
        (1, 1, at, len(rodata)),
        (9, 1, at + len(rodata), LIBRARY_BYTES - 8192 - at - len(rodata)),
        (20, 3, table - 64, len(names)),
    ]
    with open(path, "wb") as out:
        out.truncate(LIBRARY_BYTES)
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        out.write(
            ident
            + struct.pack(
                "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, len(sections), 3
            )
        )
        out.seek(at)
        out.write(rodata)
        out.seek(table - 64)
        out.write(names)
        out.seek(table)
        for name, kind, offset, size in sections:
            out.write(struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0))


if __name__ == "__main__":
    main()
