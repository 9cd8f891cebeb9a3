"""Stores 60 runs over 10,000 nodes in a history and asks what changed since the last one, and
prints a row of docs/benchmarks.md.

    python tests/bench/bench_history.py [--nodes N] [--runs N]

The documents are those of bench_judge.py; from run to run one node in fifty gets another driver,
and one in fifty of two findings a node comes or goes. They lie in a temporary folder (500 MB) and
go with it. The yardstick is writing the findings of the same run as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_judge

from unhang.audit.history.changes import changes_between
from unhang.audit.history.database import reading
from unhang.audit.history.recording import record

CHANGED = 50  # one node in so many changes from run to run


def write_findings(folder: Path, number: int, hosts: list[str]) -> float:
    """findings.json of run `number`; gives the seconds of CPU that writing it took."""
    example = {
        "title": "A rule's title as long as they are",
        "severity": "warning",
        "scope": "node",
        "verdict": "fail",
        "expected": "what it should be",
        "found": "what it is",
    }
    rest: dict[str, Any] = {
        "evidence": [],
        "missing": [],
        "remedy": {"person": "look"},
        "workaround": None,
        "confidence": "documented",
        "situations": [],
        "sources": [],
    }
    rules = ("bench-first", "bench-second", "bench-coming-and-going")
    findings = [
        {"rule": rule, **example, "host": host, "where": {}, **rest}
        for host in hosts
        for rule in rules[:2]
    ]
    findings += [
        {"rule": rules[2], **example, "host": host, "where": {}, **rest}
        for host in hosts[number % CHANGED :: CHANGED]
    ]
    verdicts = {"critical": [], "error": [], "warning": hosts, "unread": [], "healthy": []}
    head = {
        "schema": "unhang/findings/1",
        "run": {"id": f"bench-{number}", "started": None, "finished": None, "judged": "2026-11-20"},
    }
    started = time.process_time()
    text = json.dumps(
        {
            **head,
            "totals_by_rule": {rule: {} for rule in rules},
            "node_verdicts": verdicts,
            "findings": findings,
        },
        separators=(",", ":"),
    )
    (folder / "findings.json").write_text(text)
    return time.process_time() - started


def change_run(folder: Path, number: int) -> list[str]:
    """The run's next state: its id, and another driver on some of its nodes. Gives its hosts."""
    run = json.loads((folder / "run.json").read_text()) | {"id": f"bench-{number}"}
    (folder / "run.json").write_text(json.dumps(run))
    for host in run["hosts"][number % CHANGED :: CHANGED] if number else []:
        path = folder / "nodes" / f"{host}.json"
        document = json.loads(path.read_text())
        document["facts"]["sections"]["driver"]["loaded"]["version"] = f"580.{number}.01"
        path.write_text(json.dumps(document, separators=(",", ":")))
    return list(run["hosts"])


def timed(work: Any) -> tuple[Any, float, float]:
    """What the work gives, seconds of wall time and of CPU."""
    wall, cpu = time.monotonic(), time.process_time()
    answer = work()
    return answer, time.monotonic() - wall, time.process_time() - cpu


def asked(file: Path, runs: int) -> tuple[int, int]:
    """What changed since the run before the last: findings and facts, as `unhang diff` asks."""
    with reading(file) as connection:
        changes = changes_between(connection, runs - 1, runs)
    return len(changes.findings), len(changes.facts)


def main() -> None:
    """Prints one row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unhang-bench-history-") as name:
        folder, file = Path(name), Path(name) / "state" / "history.db"
        bench_judge.write_run(folder, options.nodes)
        stores, writing = [], []
        for number in range(options.runs):
            hosts = change_run(folder, number)
            writing.append(write_findings(folder, number, hosts))
            stores.append(timed(lambda: record(folder, file))[1:])
            sys.stderr.write(f"\rrun {number + 1} of {options.runs}: {stores[-1][0]:.1f} s")
        size = file.stat().st_size / 1e6
        _, wall, cpu = min(
            (timed(lambda: asked(file, options.runs)) for _ in range(5)), key=lambda row: row[1]
        )
    walls, cpus = zip(*stores, strict=True)
    columns = (
        "history",
        "first run, s (CPU)",
        "later runs, s: median, most (CPU: median, most)",
        "of the yardstick",
        "what changed, s (CPU)",
        "file MB",
    )
    sys.stdout.write(f"\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
    later, later_cpu = sorted(walls[1:]), sorted(cpus[1:])
    middle, yardstick = len(later) // 2, sorted(writing)[len(writing) // 2]
    stored = (
        f"{walls[0]:.1f} ({cpus[0]:.1f}) | {later[middle]:.1f}, {later[-1]:.1f}"
        f" ({later_cpu[middle]:.1f}, {later_cpu[-1]:.1f})"
    )
    row = (
        f"{stored} | {later_cpu[middle] / yardstick:.1f} × {yardstick:.2f} s | {wall:.3f}"
        f" ({cpu:.3f}) | {size:.0f}"
    )
    sys.stdout.write(f"| {options.nodes:,} nodes × {options.runs} runs | {row} |\n")


if __name__ == "__main__":
    main()
