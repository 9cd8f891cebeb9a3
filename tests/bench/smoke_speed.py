"""Steps of gpu_bench.py that measure: the smoke test's duration by phase, its bandwidth beside
nccl-tests', copies, builds, NVML."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from nccl_tests import GIB, PROGRAMS, nccl_tests_busbw
from smoke_bench import QUIET, ROOT, Bench, labels, middle, where_time_goes

RUNS = 3
# nccl-tests has all GPUs in one process, where NCCL copies straight between users' buffers. Ranks
# of a training have a process each and go by buffers of NCCL: alike is compared with alike.
# https://github.com/NVIDIA/nccl/blob/master/src/transport/p2p.cc
ONE_PROCESS = {"NCCL_P2P_DIRECT_DISABLE": "1"}


def step_smoke(bench: Bench) -> None:
    """The default smoke test, three times: its duration, by phase. The first run loads torch from a
    cold disk."""
    for number in range(1, RUNS + 1):
        result, seconds = bench.smoke(f"default-{number}")
        bench.expect("default", result["verdict"] == "pass", "pass")
        state = "first, nothing cached" if number == 1 else "again"
        what = (
            f"default smoke, {bench.nproc} {'hosts that share a GPU' if bench.shared else 'GPUs'},"
            f" {state}"
        )
        bench.say(what, f"{result['verdict']}, {seconds:.1f} s ({where_time_goes(result)})")
        bench.measured[f"default smoke {number}"] = {
            "seconds": seconds,
            "phases": {row["name"]: row["duration_s"] for row in result["phases"]},
        }
    bench.say(
        "the longest steps of its phases",
        "; ".join(
            f"{row['name']}: {row['steps']}" for row in result["phases"] if row["duration_s"] > 0.5
        ),
    )
    for label, pairs in labels(result).items():
        bench.say("transport: " + label, ", ".join(pairs))
    kind = "net" if bench.shared else "nvlink"
    bench.expect(
        "transports",
        bool(result["transports"]) and all(row["kind"] == kind for row in result["transports"]),
        f"{kind} for each pair",
    )


def step_nvml(bench: Bench) -> None:
    """The cost of reading pairs and counters from NVML, in a process of its own."""
    took, found = [], {}
    for _ in range(3):
        began = time.monotonic()
        argv = [sys.executable, "-S", "-m", "unhang.smoke.payload", "nvml"]
        output = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PYTHONPATH": str(ROOT / "tools")},
        ).stdout
        took.append(time.monotonic() - began)
        found = json.loads(output or "{}")
    counters = found.get("counters") or {}
    kinds = sorted({name.split(" ", 4)[-1] for name in counters})
    # a single GPU may have no NVLink
    bench.expect(
        "nvml", bench.shared or (bool(found.get("pairs")) and bool(counters)), "pairs and counters"
    )
    pairs = (
        f"{len(found.get('pairs') or [])} pairs over NVLink, {len(counters)} counters"
        f" ({', '.join(kinds)})"
    )
    bench.say(
        "NVML asked by a child",
        f"{middle(took):.2f} s; {pairs}; {found.get('problem') or 'no problem'}",
    )


def step_bandwidth(bench: Bench) -> None:
    """1 GiB beside nccl-tests."""
    beside(bench, bench.nproc)


def step_pair(bench: Bench) -> None:
    """The same with two of the GPUs."""
    beside(bench, 2)


def beside(bench: Bench, gpus: int) -> None:
    """Rows for all operations: unhang's twice, nccl-tests' once as it is, and once without the
    features that only GPUs of one process can use."""
    ours: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    theirs: dict[str, list[float | None]] = {name: [] for name in PROGRAMS}
    library = None
    if bench.building:
        bench.nccl_tests = bench.building.result()
    for settings in (QUIET, {**QUIET, **ONE_PROCESS}):
        result, _ = bench.smoke(
            f"bandwidth-{gpus}-{len(theirs['broadcast'])}",
            phases=("bandwidth",),
            bandwidth_bytes=(GIB,),
            bandwidth_ops=tuple(PROGRAMS),
            nproc=gpus,
        )
        for row in result["collectives"]:
            if row["op"] in ours and row["measures"] == "bandwidth":
                ours[row["op"]].append(row["busbw_gb_s"])
        library = next((one["path"] for host in result["hosts"] for one in host["nccl"]), library)
        for name in PROGRAMS:
            theirs[name].append(nccl_tests_busbw(bench.nccl_tests, name, gpus, library, settings))
    for name in PROGRAMS:
        mine = middle(ours[name])
        direct, alike = theirs[name]
        found = [
            f"{how} {other:.1f}, ratio **{mine / other:.3f}**"
            for how, other in (("nccl-tests", direct), ("by NCCL's buffers", alike))
            if other
        ]
        shown = ", ".join(f"{one:.1f}" for one in ours[name])
        bench.say(
            f"{name} at 1 GiB, {gpus} GPUs, busbw GB/s",
            f"{mine:.1f} ({shown}); {'; '.join(found) or 'nccl-tests is not installed here'}",
        )
        bench.expect(name, mine > 0, "a bandwidth")
        bench.measured[f"{name} {gpus} GPUs 1 GiB"] = {
            "ours": ours[name],
            "nccl_tests": direct,
            "nccl_tests_without_direct": alike,
        }
