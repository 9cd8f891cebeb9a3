"""False alarms of `unhang watch` in a simulated month of jobs that work, and seconds that the
detector takes for it; and what `unhang watch --all` costs a node by its number of jobs: rows of
docs/benchmarks.md.

    python tests/bench/bench_watch.py [--days 30]
    python tests/bench/bench_watch.py --cost 1 4 16

The traces are those of real GPUs (tests/fixtures/inspect), one after another in random order, and
one answer of RAS in twenty is lost; on each second day nothing moves now and then for 50 of the 60 s
that are allowed by default. The jobs of --cost are two processes each that have the variables of a
rank and wake up 50 times a second, every second job with the watcher's own log, beside 300 idle
processes, as root in a process namespace of their own: a watcher finds whatever else runs on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "bench")]

from children_cost import UNHANG, cost_of  # noqa: E402
from healthy_months import OF_ONE_GPU, OF_TWO_GPUS, endless  # noqa: E402

from unhang.jobs.watch.alerts import Alerts  # noqa: E402
from unhang.jobs.watch.detector import detect, ticks  # noqa: E402

DAY_S = 86_400
SETTLED_S, MEASURED_S = 45.0, 60.0  # of a cost; until it no longer searches for new ranks
BESIDE = 300  # processes of the machine that are no ranks
AWAKE = "import time\nwhile True: time.sleep(0.02)"
NO_PROGRESS_S = 10.0  # a sixth of the default: the recorded jobs are silent for 8 s at most


def said_in_a_day(seed: int) -> list[str]:
    """What the detector says of jobs on one GPU and on two; and what is told at once of those on
    two, for on one GPU the ranks do share it."""
    silent_s, allowed_s = (50.0, 60.0) if seed % 2 else (0.0, NO_PROGRESS_S)
    recorded = (*OF_ONE_GPU, *OF_TWO_GPUS)
    events = detect(endless(random.Random(seed), DAY_S, recorded, silent_s), allowed_s)
    alerts = Alerts()
    return [
        *(event.why for event in events),
        *(
            line
            for tick in ticks(endless(random.Random(seed), DAY_S, OF_TWO_GPUS))
            for line in alerts.of(tick)
        ),
    ]


def cost_with(jobs: int) -> str:
    """A row: percent of a core, RSS and PSS in MiB of the watcher and its sampler, and what it
    printed of jobs that stand."""
    with contextlib.ExitStack() as undo:
        for _ in range(BESIDE):
            idle = subprocess.Popen(["sleep", "3600"])
            undo.callback(idle.wait)
            undo.callback(idle.kill)
        folder = undo.enter_context(tempfile.TemporaryDirectory())
        errors = undo.enter_context(open(f"{folder}/errors", "a+"))
        for number in range(2 * jobs):
            rank = {"RANK": str(number % 2), "WORLD_SIZE": "2", "MASTER_PORT": str(number // 2)}
            process = subprocess.Popen(
                [sys.executable, "-c", AWAKE],
                env={**os.environ, "MASTER_ADDR": "bench", **rank},
                stdout=errors if number // 2 % 2 else subprocess.DEVNULL,
            )
            undo.callback(process.wait)
            undo.callback(process.kill)
        watch = subprocess.Popen(
            [sys.executable, "-c", UNHANG, "watch", "--all", "--textfile", f"{folder}/x.prom"],
            env={**os.environ, "UNHANG_WATCHED": f"{folder}/watched.jsonl"},
            stderr=errors,
        )
        undo.callback(watch.wait)
        undo.callback(watch.terminate)
        time.sleep(SETTLED_S)
        before, begun = cost_of(watch), time.monotonic()
        time.sleep(MEASURED_S)
        after, seconds = cost_of(watch), time.monotonic() - begun
        errors.seek(0)
        said = errors.read()
    if said.count(": 2 ranks on") < jobs:
        raise RuntimeError(f"expected {jobs} watched jobs, found: {said}")
    percent = 100 * (after["cpu_s"] - before["cpu_s"]) / seconds
    alarms = said.count("looking at the job")
    return (
        f"| {jobs} | {percent:.2f} | {after['rss_mib']:.0f} | {after['pss_mib']:.0f} | {alarms} |\n"
    )


def main() -> int:
    """0 if nothing was said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first day's number, the seed")
    parser.add_argument("--cost", type=int, nargs="*", metavar="JOBS")
    arguments, began = parser.parse_args(), time.monotonic()
    if arguments.cost and os.getpid() != 1:
        own = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, *sys.argv]
        return subprocess.run(own, check=False).returncode
    if arguments.cost:
        sys.stdout.write(
            "| jobs | % of a core | RSS MiB | PSS MiB | looks |\n" + "| --- " * 5 + "|\n"
        )
        for jobs in arguments.cost:
            sys.stdout.write(cost_with(jobs))
            sys.stdout.flush()
        return 0
    days = arguments.days
    said = [
        line
        for day in range(arguments.first, arguments.first + days)
        for line in said_in_a_day(day)
    ]
    sys.stdout.write(
        "unhang watch over jobs that work:\n\n| days | false alarms | s |\n| --- | --- | --- |\n"
    )
    sys.stdout.write(f"| {days} | {len(said)} | {time.monotonic() - began:.0f} |\n")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
