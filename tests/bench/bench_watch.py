"""False alarms of `unhang watch` in a simulated month of jobs that work, and seconds that the
detector takes for it: a row of docs/benchmarks.md.

    python tests/bench/bench_watch.py [--days 30]

The traces are those of real GPUs (tests/fixtures/inspect), one after another in random order, and
one answer of RAS in twenty is lost.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from healthy_months import OF_ONE_GPU, OF_TWO_GPUS, endless  # noqa: E402

from unhang.jobs.watch.alerts import Alerts  # noqa: E402
from unhang.jobs.watch.detector import detect, ticks  # noqa: E402

DAY_S = 86_400
NO_PROGRESS_S = 10.0  # a sixth of the default: the recorded jobs are silent for 8 s at most


def said_in_a_day(seed: int) -> list[str]:
    """What the detector says of jobs on one GPU and on two; and what is told at once of those on
    two, for on one GPU the ranks do share it."""
    events = detect(endless(random.Random(seed), DAY_S, (*OF_ONE_GPU, *OF_TWO_GPUS)), NO_PROGRESS_S)
    alerts = Alerts()
    return [
        *(event.why for event in events),
        *(
            line
            for tick in ticks(endless(random.Random(seed), DAY_S, OF_TWO_GPUS))
            for line in alerts.of(tick)
        ),
    ]


def main() -> int:
    """0 if nothing was said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=30)
    days, began = parser.parse_args().days, time.monotonic()
    said = [line for day in range(days) for line in said_in_a_day(day)]
    sys.stdout.write(
        "unhang watch over jobs that work:\n\n| days | false alarms | s |\n| --- | --- | --- |\n"
    )
    sys.stdout.write(f"| {days} | {len(said)} | {time.monotonic() - began:.0f} |\n")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
