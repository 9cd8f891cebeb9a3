"""The burn-in's payload: keeps all GPUs of a node at full load and compares every result with the exact one, bit by bit.

    python3 unhang_burn_in.py node --plan JSON     refuses where a GPU is in use; else starts one worker for each GPU, and reads sensors meanwhile
    python3 unhang_burn_in.py node --device cpu --duration 10      tries the same with small sizes on the CPU

One file that needs only torch and the standard library, Python >= 3.8. It measures and never judges: it prints events as lines of JSON, each with `e` (kind);
`unhang smoke --burn-in` makes the verdict from them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from .burn_agent import run_burn_agent
from .burn_sensors import PERIOD_S, run_sensors
from .burn_worker import run_worker
from .nvml import read_nvml

PLAN: dict[str, Any] = {"device": "cuda", "nproc": None, "duration_s": 1800.0, "round_s": 30.0, "types": None, "memory_bytes": None, "drill": None}
CPU_PLAN: dict[str, Any] = {"nproc": 2, "round_s": 1.0, "memory_bytes": 2**20}


def burn_main(argv: list[str]) -> int:
    """0 all well, 1 something failed, 2 refused or wrong use."""
    parser = argparse.ArgumentParser(description="The burn-in's payload; `unhang smoke --burn-in` starts it.")
    parser.add_argument("what", choices=("node", "worker", "sensors", "nvml"))
    parser.add_argument("--plan", help="the plan as JSON, or @FILE")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--duration", type=float, help="seconds under load")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--events", type=int, default=1, help="descriptor for events")
    parser.add_argument("--output", help="write events to this file instead")
    parser.add_argument("--period", type=float, default=PERIOD_S)
    given = parser.parse_args(argv)
    if given.what == "sensors":
        return run_sensors(given.period)
    if given.what == "nvml":
        sys.stdout.write(json.dumps(read_nvml()) + "\n")
        return 0
    if given.what == "worker":
        return run_worker(json.loads(os.environ["UNHANG_BURN_IN_PLAN"]), given.gpu, given.events)
    plan = burn_plan(given)
    if given.output:
        os.dup2(os.open(given.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    return run_burn_agent(plan)


def burn_plan(given: argparse.Namespace) -> dict[str, Any]:
    """Values of the command line and the plan, which override those of the device."""
    text = given.plan or "{}"
    if text.startswith("@"):
        with open(text[1:], encoding="utf-8") as source:
            text = source.read()
    wanted = json.loads(text)
    wanted.update({name: value for name, value in (("device", given.device), ("duration_s", given.duration)) if value is not None})
    plan = dict(PLAN, **(CPU_PLAN if wanted.get("device") == "cpu" else {}))
    plan.update({name: value for name, value in wanted.items() if value is not None})
    plan["round_s"] = min(plan["round_s"], max(0.2, plan["duration_s"] / 3))  # so that each type and each pattern runs more than once
    return plan


if __name__ == "__main__":
    code = burn_main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: at its end the interpreter would wait for a process group that is broken.
    os._exit(code)
