"""All that only a machine with GPUs can show, in one call of at most nine minutes on 8, 4, 2 or 1
GPUs.

    python3 tests/bench/gpu_bench.py --out FOLDER [--python PATH] [--nproc N] [--nccl-tests FOLDER |
    --nccl-tests-source FOLDER] [--only NAME,...]

Needs torch and GPUs, and of this project's packages PyYAML. Writes FOLDER/gpu.md
(tables for docs/benchmarks.md) and FOLDER/gpu.json (the same as data, with node facts, smoke
results and evidence, so that it can become a fixture) after each step. The most telling steps come
first; one that would not end within the budget is passed over, and the table says so. The exit code
is 1 when something was not as it should be. NVLink multicast stays off throughout
(NCCL_NVLS_ENABLE=0): a shared host may not survive it. With one GPU, two hosts share it
(NCCL_HOSTID), and what needs a second one is left out. `--backend gloo --nproc 2` tries the script
itself on a machine without GPUs: then hardly a number means anything, and much is not as it should
be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from inspect_step import step_inspect
from job_steps import step_job
from nccl_tests import build_nccl_tests, find_nccl_tests
from node_steps import (
    step_agreement,
    step_audit,
    step_busy,
    step_collector,
    step_facts,
)
from smoke_bench import ROOT, Bench
from smoke_faults import (
    step_absent,
    step_interface,
    step_killed,
    step_stopped,
    step_two_nccl,
    step_wrong_device,
)
from smoke_speed import (
    step_bandwidth,
    step_nvml,
    step_pair,
    step_smoke,
)
from smoke_ways import (
    step_as_hosts,
    step_dead_interface,
    step_experiments,
    step_logs,
    step_network,
    step_ways,
)


class Step(NamedTuple):
    """seconds: what it takes on eight GPUs; shared: whether it means something where two hosts
    share one GPU."""

    run: Callable[[Bench], None]
    seconds: float
    shared: bool = True


# What matters most comes first, for the budget may end.
STEPS = {
    "facts": Step(step_facts, 15), "smoke": Step(step_smoke, 85), "absent": Step(step_absent, 32),
    "stopped": Step(step_stopped, 45),
    "bandwidth": Step(step_bandwidth, 130, shared=False), "job": Step(step_job, 160),
    "collector": Step(step_collector, 30),
    "as_hosts": Step(step_as_hosts, 30, shared=False), "agreement": Step(step_agreement, 5),
    "nvml": Step(step_nvml, 5), "wrong_device": Step(step_wrong_device, 15, shared=False),
    "two_nccl": Step(step_two_nccl, 15),
    "interface": Step(step_interface, 10), "killed": Step(step_killed, 20, shared=False),
    "busy": Step(step_busy, 25, shared=False),
    "network": Step(step_network, 60), "ways": Step(step_ways, 60, shared=False),
    "pair": Step(step_pair, 60, shared=False),
    "experiments": Step(step_experiments, 90, shared=False), "logs": Step(step_logs, 20),
    "dead_interface": Step(step_dead_interface, 30),
    "audit": Step(step_audit, 30),
    "inspect": Step(step_inspect, 90),
}  # fmt: skip
NEED_ONE_GPU = ("network",)


def main() -> int:
    """0 when every step was as it should be."""
    given = parse_arguments()
    began = time.monotonic()
    shown = "import torch; print(torch.cuda.device_count(), torch.__version__, torch.version.cuda)"
    asked = subprocess.run([given.python, "-c", shown], capture_output=True, text=True, check=False)
    if (
        asked.returncode
        or not asked.stdout.split()
        or (asked.stdout.split()[0] == "0" and given.backend == "nccl")
    ):
        sys.stdout.write(
            f"expected torch with GPUs in {given.python}, found:"
            f" {(asked.stdout + asked.stderr).strip()[-200:]}; name one with --python\n"
        )
        return 1
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    count, torch, cuda = int(asked.stdout.split()[0]), *asked.stdout.split()[1:3]
    shared = given.backend == "nccl" and count == 1
    nproc = given.nproc or (2 if shared else count)
    bench = Bench(
        out,
        given.python,
        nproc,
        find_nccl_tests(given.nccl_tests),
        given.other_nccl,
        began + given.budget_s,
        given.backend,
        shared,
        given.pyz,
    )
    if bench.nccl_tests is None and given.nccl_tests_source:
        bench.building = ThreadPoolExecutor(1).submit(
            build_nccl_tests, Path(given.nccl_tests_source), given.python
        )
    place = (
        f"nccl-tests at {bench.nccl_tests}"
        if bench.nccl_tests
        else "nccl-tests built meanwhile"
        if bench.building
        else "no nccl-tests"
    )
    gpus = f"1 GPU that {nproc} hosts share" if shared else f"{nproc} GPUs"
    bench.say(
        "machine",
        f"{gpus}, torch {torch}, CUDA {cuda}; {place}; {time.monotonic() - began:.1f} s until here",
    )
    for name in (
        given.only.split(",")
        if given.only
        else [
            name
            for name, step in STEPS.items()
            if (step.shared if shared else name not in NEED_ONE_GPU)
        ]
    ):
        go(bench, name, STEPS[name])
    bench.say(
        "all steps",
        f"{time.monotonic() - began:.0f} s; "
        + ("failed: " + "; ".join(bench.failed) if bench.failed else "all as they should be"),
    )
    return 1 if bench.failed else 0


def parse_arguments() -> argparse.Namespace:
    """What the caller wants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / ".bench" / "gpu"))
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--nproc", type=int, help="GPUs (default: all)")
    parser.add_argument(
        "--pyz",
        default=str(ROOT / "dist" / "unhang-collect.pyz"),
        help="the one-file collector; built where it is missing",
    )
    parser.add_argument("--nccl-tests", help="folder of all_reduce_perf")
    parser.add_argument(
        "--nccl-tests-source", help="a checkout of nccl-tests, which is then built for this GPU"
    )
    parser.add_argument("--other-nccl", help="another libnccl.so.2")
    parser.add_argument("--only", help="steps with commas: " + ", ".join(STEPS))
    parser.add_argument(
        "--budget-s",
        type=float,
        default=525.0,
        help="a step that would take longer than this in all is passed over",
    )
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    return parser.parse_args()


def go(bench: Bench, name: str, step: Step) -> None:
    """One step; what goes wrong in it costs no other step."""
    began = time.monotonic()
    if began + step.seconds > bench.until:
        bench.say(
            f"step {name}",
            f"passed over: it takes {step.seconds:.0f} s, and {max(0.0, bench.until - began):.0f} s"
            " are left",
        )
        return
    try:
        step.run(bench)
    except Exception as problem:
        # The machine is lent for minutes: one failed step must not lose the measurements of the
        # others.
        traceback.print_exc(file=sys.stdout)
        bench.expect(name, False, f"a step that ends, found {type(problem).__name__}: {problem}")
    bench.measured.setdefault("step seconds", {})[name] = round(time.monotonic() - began, 1)
    bench.write()


if __name__ == "__main__":
    sys.exit(main())
