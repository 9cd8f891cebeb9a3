"""What it costs the controller to choose a rollout's step and to record its answer, beside the
tasks themselves. Prints rows of docs/benchmarks.md.

    python tests/bench/bench_rollout.py [--nodes N ...]

Plays the last wave of a fleet, of at most 50 nodes, with the plan of the whole fleet and the
journal of all others before it. As under Ansible, each ask and each answer is a process of its own,
forked from one that follows the journal. The yardsticks, in the same run: for one step in 37 the
same with plan and journal opened anew by each such process, and appending the same lines, each
synced.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils"), str(ROOT / "tests" / "support")]

from rollout_plans import EVIDENCE, planned  # noqa: E402

from unhang.act.plan.plan_document import Plan, Wave, write_plan  # noqa: E402
from unhang.act.rollout import for_ansible as rollouts  # noqa: E402
from unhang.act.rollout.conductor import begin  # noqa: E402
from unhang.act.rollout.journal import JOURNAL  # noqa: E402
from unhang.act.rollout.journal_text import render_entry  # noqa: E402
from unhang.act.rollout.steps import BEGUN, DONE, STEPS, Entry, Order, StepResult  # noqa: E402
from unhang.core.run.run_folder import utc_now  # noqa: E402
from unhang.core.schemas.configuration import hash_of_sections  # noqa: E402

LAST_WAVE = 50
ANEW_EVERY = 37
FACTS = json.loads((ROOT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
HEAD = (
    "| nodes | steps | CPU ms a step | opened anew, CPU ms a step | of that | wall ms a step |"
    " lines synced alone, wall ms a step | journal MB |"
)


def fleet(folder: Path, count: int) -> tuple[list[str], list[str]]:
    """(hosts that are through, hosts of the last wave) of a plan for so many nodes in which none
    has to reboot; facts of those of the last wave."""
    example = planned(folder)
    entry, hosts = example.hosts[0], [f"gpu{number:05d}" for number in range(count)]
    waves = [tuple(hosts[at : at + LAST_WAVE]) for at in range(0, count, LAST_WAVE)]
    entries = []
    for host in hosts:
        sections = {
            **FACTS["sections"],
            "node": {**FACTS["sections"]["node"], "boot_id": f"{host}-boot"},
        }
        config = hash_of_sections(sections) if host in waves[-1] else entry.config_hash
        entries.append(
            dataclasses.replace(entry, host=host, boot_id=f"{host}-boot", config_hash=config)
        )
        if host in waves[-1]:
            write_node(folder, host, {**FACTS, "sections": sections})
    limits = structs.replace(example.limits, max_unavailable=count, in_service=count, groups=())
    named = [
        Wave("canary 1" if number == 0 else f"wave {number}", wave)
        for number, wave in enumerate(waves)
    ]
    write_plan(folder, Plan(example.run, example.day, limits, tuple(entries), tuple(named)))
    return [host for wave in waves[:-1] for host in wave], list(waves[-1])


def write_node(folder: Path, host: str, facts: dict[str, Any]) -> None:
    """The node as an audit has read it."""
    (folder / "nodes").mkdir(exist_ok=True)
    document = {
        "schema": "unhang/node/1",
        "host": host,
        "status": "ok",
        "message": "",
        "facts": facts,
    }
    (folder / "nodes" / f"{host}.json").write_text(json.dumps(document))


def evidence_of(host: str, step: str) -> dict[str, Any]:
    """What the node answers."""
    return {**EVIDENCE[step], "boot_id": f"{host}-boot", "needs_reboot": False}


def write_through(folder: Path, hosts: list[str]) -> None:
    """The journal of hosts that went through all steps, in one write."""
    steps = [
        step
        for step in STEPS
        if step not in ("reboot", "roll_back", "reboot_back", "audit_back", "keep")
    ]
    with (folder / JOURNAL).open("ab") as journal:
        for host in hosts:
            for step in steps:
                token = 0 if step == "lock" else 7
                journal.write(
                    render_entry(
                        Entry(
                            utc_now(),
                            host,
                            step,
                            BEGUN,
                            token,
                            {"boot_id": f"{host}-boot", "why": ""},
                        )
                    )
                )
                journal.write(
                    render_entry(Entry(utc_now(), host, step, DONE, token, evidence_of(host, step)))
                )


def worker(work: Callable[[], Any], anew: bool) -> tuple[Any, float]:
    """(what it gives, its CPU seconds) of a process that is forked for it, as Ansible forks one for
    a task."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        if anew:
            rollouts._plan.cache_clear()
            rollouts._followed.cache_clear()
        started = time.process_time()
        given = work()
        os.write(writing, pickle.dumps((given, time.process_time() - started)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        given, took = pickle.loads(pipe.read())
    os.wait()
    return given, took


def step_of(
    rollout: dict[str, Any], host: str, step: str, anew: bool
) -> tuple[float, float] | None:
    """(CPU, wall) seconds of asking for the step and answering it, and of following the journal
    meanwhile; None where the node does not need it."""
    order: Order | None
    wall = time.monotonic()
    order, asked = worker(lambda: rollouts.conductor_of(rollout).ask(host, step, {}, "0"), anew)
    if order is None:
        return None
    _, answered = worker(
        lambda: rollouts.conductor_of(rollout).record(
            order, StepResult("ok", evidence_of(host, step))
        ),
        anew,
    )
    started = time.process_time()
    rollouts.conductor_of(rollout).standing()
    return (
        asked + answered + (0.0 if anew else time.process_time() - started),
        time.monotonic() - wall,
    )


def played(rollout: dict[str, Any], hosts: list[str]) -> dict[bool, list[tuple[float, float]]]:
    """(CPU, wall) seconds of each step of each host, in a batch as the playbook does it; by whether
    all was opened anew."""
    took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    rollouts.conductor_of(rollout).standing()
    for step in STEPS:
        for host in hosts:
            anew = (len(took[False]) + len(took[True])) % ANEW_EVERY == ANEW_EVERY - 1
            if (seconds := step_of(rollout, host, step, anew)) is not None:
                took[anew].append(seconds)
    return took


def synced(folder: Path, content: bytes) -> float:
    """Seconds of wall time in which the lines are appended, each synced."""
    started = time.monotonic()
    handle = os.open(folder / "yardstick", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for line in content.splitlines(keepends=True):
        os.write(handle, line)
        os.fsync(handle)
    os.close(handle)
    return time.monotonic() - started


def row(folder: Path, count: int) -> str:
    """One row of the table."""
    through, hosts = fleet(folder, count)
    epoch = begin(folder, [*through, *hosts], {"by": "bench"}, lambda holder: True, "")["epoch"]
    write_through(folder, through)
    begun_at = (folder / JOURNAL).stat().st_size
    took = played({"folder": str(folder), "epoch": epoch, "read": str(folder)}, hosts)
    content = (folder / JOURNAL).read_bytes()
    (followed, wall), (anew, _) = (
        [sum(one) / len(one) * 1000 for one in zip(*took[kind], strict=True)]
        for kind in (False, True)
    )
    steps = len(took[False]) + len(took[True])
    alone = synced(folder, content[begun_at:]) / steps * 1000
    return (
        f"| {count} | {steps} | {followed:.1f} | {anew:.1f} | {followed / anew:.3f} | {wall:.0f} |"
        f" {alone:.1f} | {len(content) / 1e6:.2f} |"
    )


def main() -> None:
    """Prints a row for each size of a fleet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    print(f"\n{HEAD}\n|{' --- |' * (HEAD.count('|') - 1)}")  # noqa: T201
    for count in parser.parse_args().nodes:
        with tempfile.TemporaryDirectory(prefix="unhang-bench-rollout-") as name:
            print(row(Path(name), count), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
