"""What a rollout costs the controller beside a plain play of 14 lines: a driver's packages, a boot
and a check on four booted nodes, in waves of 1, 2 and 1. Prints rows of docs/benchmarks.md.

    python tests/bench/bench_rollout_cost.py [--only audit,preview,plain,rollout]

As root on Linux. CPU is that of the command and its children on the controller: ssh included, the
nodes excluded. Nothing schedules jobs on the nodes, and no smoke test is made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("tools", "module_utils", "tests/support", "tests")]

import audits  # noqa: E402
import driver_node  # noqa: E402
import hardware  # noqa: E402
import node_fixtures  # noqa: E402
from fakes.nvml import build_fake_nvml  # noqa: E402
from four_nodes import CACHE, NAMES, Fleet  # noqa: E402
from testbed import Testbed  # noqa: E402

ARMS = ("audit", "preview", "plain", "rollout")
PACKAGES = ["nvidia-driver", "nvidia-kernel-dkms", "libnvidia-ml1"]
VERSIONS = [f"{package}={driver_node.NEW}-1" for package in PACKAGES]
POLICY = {"driver": {"version": driver_node.NEW, "flavour": "proprietary", "held": True}}
PLANNING = ("--rule", "policy-driver-version", "--floor", "0", "--max-unavailable", "2")
WAVES = [1, 2, 1]
# in place of unhang's ansible.cfg
ANSIBLES_OWN = {"ANSIBLE_CONFIG": "", "ANSIBLE_PIPELINING": "1"}
PLAIN = f"""\
- hosts: all
  gather_facts: false
  serial: {WAVES}
  tasks:
    - file: {{path: /run/nologin, state: touch}}
    - apt: {{name: {VERSIONS}, update_cache: true}}
    - dpkg_selections: {{name: '{{{{ item }}}}', selection: hold}}
      loop: {PACKAGES}
    - reboot:
    - command: cat /srv/hardware/driver/nvidia/version
      register: driver
      changed_when: false
      failed_when: "'{driver_node.NEW}' not in driver.stdout"
    - file: {{path: /run/nologin, state: absent}}
"""
HEAD = "| what | CPU s a node | wall s | CPU, plain = 1 | wall, plain = 1 | CPU, audit = 1 |"
DEADLINE_S = 1800


def timed(
    fleet: Fleet, argv: list[str], environment: dict[str, str], codes: tuple[int, ...]
) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of a command among the nodes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        fleet.bed.inside(argv, audits.PROJECT),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_S,
        check=False,
    )
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in codes:
        sys.exit(
            f"{argv} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def measure(fleet: Fleet, arms: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """{arm: (CPU seconds, wall seconds)}, on nodes with the old driver."""
    for name in NAMES:
        (fleet.work / name).mkdir()
        driver_node.prepare(fleet, name, fleet.work / name)
        fleet.undo.callback(fleet.shell, name, "rm -rf /var/lib/unhang")
    inventory, play = fleet.work / "hosts.json", fleet.work / "plain.yml"
    inventory.write_text(
        audits.inventory_of(
            fleet.bed,
            {"training": list(NAMES)},
            {"unhang_policy": POLICY, **driver_node.AS_MACHINE},
        )
    )
    play.write_text(PLAIN)
    environment = {
        **audits.environment_of(fleet.bed, fleet.work),
        **{name: os.environ[name] for name in os.environ if name.startswith("ANSIBLE_")},
        "UNHANG_RUNS": str(fleet.work / "runs"),
    }
    unhang, run = [sys.executable, "-P", "-m", "unhang"], fleet.work / "runs" / "latest"
    remediate = [*unhang, "remediate", str(run), "--no-smoke", "--soak", "0"]
    commands = {
        "audit": ([*unhang, "audit", "-i", str(inventory), "--via", "ansible"], (0, 1)),
        "preview": (remediate, (0, 1)),
        "plain": (["ansible-playbook", str(play), "-i", str(inventory)], (0,)),
        "rollout": ([*remediate, "--apply"], (0,)),
    }
    cost: dict[str, tuple[float, float]] = {}
    for arm in arms:
        argv, codes = commands[arm]
        cost[arm] = timed(
            fleet, argv, {**environment, **(ANSIBLES_OWN if arm == "plain" else {})}, codes
        )
        if arm == "audit":
            timed(fleet, [*unhang, "plan", str(run), *PLANNING], environment, (0, 1))
            plan = json.loads((run / "plan.json").read_text())
            assert [len(wave["hosts"]) for wave in plan["waves"]] == WAVES, plan["waves"]
    for name in NAMES:
        fleet.nodes[name].find_leader()
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(ARMS), help="arms to measure")
    arms = parser.parse_args().only.split(",")
    if why := node_fixtures.why_not():
        print(f"not measured: {why}")  # noqa: T201
        return
    cost: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as folder:
        library = build_fake_nvml(folder)
        work = Path(folder)

        def prepare(node: object) -> None:
            hardware.install(node, hardware.H200X8, library, work)

        with Testbed(CACHE, NAMES, prepare=prepare) as bed:
            for part in (["audit", "preview", "rollout"], ["plain"]):
                if chosen := tuple(arm for arm in part if arm in arms):
                    (work / part[0]).mkdir()
                    with contextlib.ExitStack() as undo:
                        cost |= measure(Fleet(bed, library, work / part[0], undo), chosen)
    print(HEAD)  # noqa: T201
    print("| --- | --- | --- | --- | --- | --- |")  # noqa: T201
    for arm, (cpu_s, wall_s) in cost.items():
        plain, audit = cost.get("plain", (0, 0)), cost.get("audit", (0, 0))
        print(  # noqa: T201
            f"| {arm} | {cpu_s / len(NAMES):.1f} | {wall_s:.0f} | {times(cpu_s, plain[0])} |"
            f" {times(wall_s, plain[1])} | {times(cpu_s, audit[0])} |"
        )


def times(seconds: float, yardstick: float) -> str:
    """The ratio; empty where the yardstick was not measured."""
    return f"{seconds / yardstick:.1f}" if yardstick else ""


if __name__ == "__main__":
    main()
