"""Results of smoke tests for the page, modelled on one that was measured on 8 × H200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parents[1] / "fixtures" / "h200x8" / "smoke.json"


def result(
    host: str, slow_gpu: int | None = None, share: float = 1.0, minute: int = 0
) -> dict[str, Any]:
    """A test of one host alone. slow_gpu: its bandwidth drops to `share`, and the test fails."""
    made: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    made["hosts"][0]["host"] = host
    made |= {"started": f"2026-03-02T03:{minute:02d}:00+00:00", "duration_s": 51.2}
    if slow_gpu is not None:
        made["verdict"] = "fail"
        made["bandwidth"] = [
            {**row, "busbw_gb_s": row["busbw_gb_s"] * share, "verdict": "fail"}
            for row in made["bandwidth"]
        ]
        made["phases"][-1]["status"] = "fail"
        why = "all_reduce reaches 205 GB/s, expected at least 340"
        made["suspects"] = [
            {
                "host": host,
                "rank": slow_gpu,
                "gpu": f"GPU {slow_gpu}",
                "phase": "bandwidth",
                "why": why,
                "next": "look at it",
            }
        ]
    return made


def write_results(run: Path, *results: dict[str, Any]) -> None:
    """As the rollout writes them: smoke/TIME/GROUP/result.json of the run folder."""
    for number, one in enumerate(results):
        folder = run / "smoke" / f"20260302T0314{number:02d}Z" / "group"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(one), encoding="utf-8")
