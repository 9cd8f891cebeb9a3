"""The steps of gpu_bench.py that make hangs and inspect them. Alone, with time for most scenes:
make bench-gpu ARGS='--only inspect'."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from smoke_bench import Bench

WHOLE = "RAS and stacks"


def step_inspect(bench: Bench) -> None:
    """As many scenes as the budget has time for; with RAS and stacks each is told rightly."""
    budget_s = max(60.0, bench.until - time.monotonic() - 10)
    script = Path(__file__).with_name("inspect_bench.py")
    argv = [
        bench.python,
        str(script),
        "--out",
        str(bench.out / "inspect"),
        "--budget",
        f"{budget_s:.0f}",
        "--backend",
        bench.backend,
    ]
    argv += ["--gpus", "1" if bench.shared or bench.backend == "gloo" else "2"]
    subprocess.run(argv, check=True, timeout=budget_s + 60)
    rows = json.loads((bench.out / "inspect" / "inspect.json").read_text(encoding="utf-8"))
    whole = [row for row in rows if row.get("way") == WHOLE]
    wrong = [
        row["scene"]
        for row in whole
        if not (row["right_state"] and row["right_rank"] and row["right_cause"])
    ]
    bench.expect("inspect", bool(whole) and not wrong, "state, rank and cause of every scene")
    bench.say("scenes inspected", f"{len(whole)}, wrong: {', '.join(wrong) or 'none'}")
    bench.measured["inspect"] = rows
