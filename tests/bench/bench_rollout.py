"""What asking for a step of a rollout and writing down its answer costs the controller, beside the tasks themselves. Prints rows of docs/benchmarks.md.

    python tests/bench/bench_rollout.py [--nodes N]

Each ask and each answer opens plan and journal anew, as the action plugin of each task does. The yardstick is appending the same lines, each synced.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils"), str(ROOT / "tests" / "support")]

from rollout_plans import EVIDENCE, planned  # noqa: E402

from unhang.plan.plan_document import Plan, Wave, read_plan, write_plan  # noqa: E402
from unhang.rollout.conductor import Conductor, begin  # noqa: E402
from unhang.rollout.steps import STEPS, Answer  # noqa: E402


def fleet(folder: Path, count: int) -> list[str]:
    """A plan of so many nodes in one wave, none of which has to reboot."""
    example = planned(folder)
    entry, hosts = example.hosts[0], [f"gpu{number:05d}" for number in range(count)]
    entries = tuple(dataclasses.replace(entry, host=host, boot_id=f"{host}-boot") for host in hosts)
    limits = dataclasses.replace(example.limits, max_unavailable=count, in_service=count, groups=())
    write_plan(folder, Plan(example.run, example.day, limits, entries, (Wave("canary 1", tuple(hosts)),)))
    return hosts


def played(folder: Path, hosts: list[str]) -> int:
    """Plays every step of every node in a batch, as the playbook does; gives how many steps there were."""
    epoch, steps = begin(folder, hosts, {"by": "bench"}, lambda holder: True, "")["epoch"], 0
    for step in STEPS:
        for host in hosts:
            order = Conductor(folder, read_plan(folder), epoch).ask(host, step, {}, "0")
            if order is None:
                continue
            evidence = {**EVIDENCE[step], "boot_id": f"{host}-boot", "needs_reboot": False, "running": {"driver": "580.95.05"}}
            Conductor(folder, read_plan(folder), epoch).answer(dataclasses.replace(order), Answer("ok", evidence))
            steps += 1
    return steps


def synced(folder: Path, content: bytes) -> float:
    """Seconds of wall time in which the lines are appended, each synced."""
    started = time.monotonic()
    handle = os.open(folder / "yardstick", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for line in content.splitlines(keepends=True):
        os.write(handle, line)
        os.fsync(handle)
    os.close(handle)
    return time.monotonic() - started


def main() -> None:
    """Prints a row for each size of a rollout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 40])
    print("\n| nodes | steps | CPU ms a step | wall ms a step | lines synced alone, wall ms a step | journal KB |\n| --- | --- | --- | --- | --- | --- |")  # noqa: T201
    for count in parser.parse_args().nodes:
        with tempfile.TemporaryDirectory(prefix="unhang-bench-rollout-") as name:
            folder = Path(name)
            hosts = fleet(folder, count)
            wall, cpu = time.monotonic(), time.process_time()
            steps = played(folder, hosts)
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            content = (folder / "journal.jsonl").read_bytes()
            alone = synced(folder, content)
            numbers = f"{cpu / steps * 1000:.1f} | {wall / steps * 1000:.1f} | {alone / steps * 1000:.2f} | {len(content) // 1000}"
            print(f"| {count} | {steps} | {numbers} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
