"""Plans the repair of 10,000 nodes that all need one, and prints a row of docs/benchmarks.md.

Parsing the same documents and judging the same run are measured in the same run, for comparison.

    python tests/bench/bench_plan.py [--nodes N]

The documents are those of bench_judge.py with another driver than the policy's and NUMA balancing
on; they go with their temporary folder. CPU and memory are those of the child that does the work.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import bench_judge
from measured_child import measured

from unhang.act.plan.plan_document import render_plan
from unhang.act.plan.planning import PlanOptions, plan_run
from unhang.core.run.run_input import read_run_input
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.triage.run_judging import conclusion

DAY = "2026-11-20"
DRIVER = "580.159.04"  # the policy names another one
OPTIONS = PlanOptions(max_unavailable="5%", floor="90%", group_limits=("rack*=10%",))


def departed(document: dict[str, Any]) -> None:
    """Lets a node depart from its policy."""
    sections = document["facts"]["sections"]
    sections["driver"]["loaded"] = {**sections["driver"]["loaded"], "version": DRIVER}
    sections["limits"]["numa_balancing"] = True


def parsed(folder: Path) -> dict[str, Any]:
    """Parses the documents with the json of Python."""
    nodes = [json.loads(path.read_bytes())["host"] for path in (folder / "nodes").iterdir()]
    return {"findings": len(nodes), "waves": "", "reboots": "", "megabytes": 0.0}


def judged(folder: Path) -> dict[str, Any]:
    """Judges the run."""
    catalogue = load_catalogue()
    head = judge_run(read_run_input(folder), catalogue, DAY, conclude=conclusion(catalogue.rules))
    return {
        "findings": head["totals"]["fail"],
        "waves": "",
        "reboots": "",
        "megabytes": (folder / "findings.json").stat().st_size / 1e6,
    }


def planned(folder: Path) -> dict[str, Any]:
    """Plans the run and writes the plan."""
    plan = plan_run(folder, load_catalogue(), OPTIONS)
    text = render_plan(plan)
    (folder / "plan.json").write_text(text)
    with_remedies = [one for one in plan.hosts if one.remedies]
    return {
        "findings": len(with_remedies),
        "waves": len(plan.waves),
        "reboots": sum(len(one.reboots) for one in with_remedies),
        "megabytes": len(text) / 1e6,
    }


def main() -> None:
    """Prints a row for planning, and those of the yardsticks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    nodes = parser.parse_args().nodes
    with tempfile.TemporaryDirectory(prefix="unhang-bench-plan-") as name:
        folder = Path(name)
        size = bench_judge.write_run(folder, nodes, change=departed)
        rows = [
            ("parse (yardstick)", measured(lambda: parsed(folder))),
            ("judge (yardstick)", measured(lambda: judged(folder))),
        ]
        rows.append(("plan", measured(lambda: planned(folder))))
    heading = (
        f"\n| {nodes:,} nodes × {size // 1000} KB | CPU s | wall s | peak MB | findings, or nodes |"
        " waves | reboots at most | MB written |\n"
    )
    sys.stdout.write(heading + "| --- | --- | --- | --- | --- | --- | --- | --- |\n")
    for name, row in rows:
        numbers = (
            f"{row['cpu_s']:.2f} | {row['wall_s']:.2f} | {row['peak_mb']:.0f} | {row['findings']:,}"
            f" | {row['waves']} | {row['reboots']}"
        )
        sys.stdout.write(f"| {name} | {numbers} | {row['megabytes']:.1f} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
