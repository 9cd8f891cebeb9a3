"""The smoke test on real GPUs: its time, its bandwidth beside nccl-tests', and whether what is broken on purpose is explained. Within ten minutes on four.

    python3 tests/bench/gpu_smoke.py --out FOLDER [--python PATH] [--nproc N] [--nccl-tests FOLDER] [--other-nccl FILE] [--only smoke,matrix,...] [--budget-s S]

Needs torch and GPUs, and of this project's packages none but the standard library. Writes FOLDER/gpu_smoke.md (rows for docs/benchmarks.md), gpu_smoke.json
(the same as data) and each result as JSON, as it goes. When the budget is spent no further step begins, and the table says which are missing. The exit code is
1 when something was not explained as it should be. NVLink multicast stays off throughout (NCCL_NVLS_ENABLE=0): a shared host may not survive it.
With one GPU, two hosts share it (NCCL_HOSTID), and what needs a second one is left out. `--backend gloo --nproc 2` tries the script itself on a machine
without GPUs: then hardly a number means anything, and much is not as it should be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from smoke_bench import ROOT, Bench, find_nccl_tests
from smoke_faults import step_absent, step_interface, step_killed, step_two_nccl, step_wrong_device
from smoke_speed import step_bandwidth, step_build, step_matrix, step_nvml, step_pair, step_smoke
from smoke_ways import step_dead_interface, step_experiments, step_hosts, step_logs, step_network, step_ways

# What matters most comes first, for the budget may end.
STEPS = {
    "nvml": step_nvml, "smoke": step_smoke, "matrix": step_matrix, "absent": step_absent, "build": step_build, "bandwidth": step_bandwidth,
    "ways": step_ways, "pair": step_pair, "experiments": step_experiments, "hosts": step_hosts, "logs": step_logs, "two_nccl": step_two_nccl,
    "wrong_device": step_wrong_device, "interface": step_interface, "dead_interface": step_dead_interface, "killed": step_killed,
    "network": step_network,
}  # fmt: skip
# Where there is one GPU, two hosts share it: what needs a second one is left out.
SHARED = ("nvml", "smoke", "absent", "build", "network", "two_nccl", "interface", "dead_interface", "logs")


def main() -> int:
    """0 when every step was as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / ".bench" / "gpu"))
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--nproc", type=int, help="GPUs (default: all)")
    parser.add_argument("--nccl-tests", help="folder of all_reduce_perf")
    parser.add_argument("--other-nccl", help="another libnccl.so.2")
    parser.add_argument("--only", help="steps with commas")
    parser.add_argument("--budget-s", type=float, default=540.0, help="no step begins after so many seconds")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    given, _ = parser.parse_known_args()
    shown = "import torch; print(torch.cuda.device_count(), torch.__version__, torch.version.cuda)"
    began = time.monotonic()
    asked = subprocess.run([given.python, "-c", shown], capture_output=True, text=True, check=False)
    if asked.returncode or not asked.stdout.split() or (asked.stdout.split()[0] == "0" and given.backend == "nccl"):
        sys.stdout.write(f"expected torch with GPUs in {given.python}, found: {(asked.stdout + asked.stderr).strip()[-200:]}; name one with --python\n")
        return 1
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    count = int(asked.stdout.split()[0])
    shared = given.backend == "nccl" and count == 1
    nproc = given.nproc or (2 if shared else count)
    bench = Bench(out, given.python, nproc, find_nccl_tests(given.nccl_tests), given.other_nccl, began + given.budget_s, given.backend, shared)
    place = f"nccl-tests at {bench.nccl_tests}" if bench.nccl_tests else "no nccl-tests"
    torch, cuda = asked.stdout.split()[1:3]
    gpus = f"1 GPU that {nproc} hosts share" if shared else f"{nproc} GPUs"
    bench.say("machine", f"{gpus}, torch {torch}, CUDA {cuda}; {place}; importing torch alone {time.monotonic() - began:.1f} s")
    for name in given.only.split(",") if given.only else SHARED if shared else [name for name in STEPS if name != "network"]:
        go(bench, name)
    bench.say("all steps", f"{time.monotonic() - began:.0f} s; " + ("failed: " + "; ".join(bench.failed) if bench.failed else "all as they should be"))
    return 1 if bench.failed else 0


def go(bench: Bench, name: str) -> None:
    """One step; what goes wrong in it costs no other step."""
    began = time.monotonic()
    if began > bench.until:
        bench.say(f"step {name}", "not begun: the time for all steps was spent")
        return
    try:
        STEPS[name](bench)
    except Exception as problem:
        # A machine that is lent for minutes is no place to lose the other steps' measurements.
        traceback.print_exc(file=sys.stdout)
        bench.expect(name, False, f"a step that ends, found {type(problem).__name__}: {problem}")
    bench.measured.setdefault("step seconds", {})[name] = round(time.monotonic() - began, 1)
    bench.write()


if __name__ == "__main__":
    sys.exit(main())
