"""Controller CPU per node of the audit play against `ansible -m ansible.builtin.setup`, over the
same booted nodes, and a row of docs/benchmarks.md.

    sudo .venv/bin/python tests/bench/bench_play.py [--rounds N] [--hosts N]

Both run with the project's ansible.cfg: same forks, same ssh settings, fresh connections every
time, in turns. The nodes are the test bed's four, each under several addresses, so that Ansible has
as many hosts as asked. CPU is that of a control group which holds the controller's processes alone,
the ssh masters in the background included. The judge is left out (it has a bench of its own).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder) for folder in ("tests/support", "tests", "tools", "module_utils")
]

import audits  # noqa: E402
import hardware  # noqa: E402
from fakes.nvml import build_fake_nvml  # noqa: E402
from testbed import Testbed  # noqa: E402

from unhang.core.ansible.packed_pynvml import link_pynvml  # noqa: E402

NODES = ("gpu001", "gpu002", "gpu003", "gpu004")
CACHE = ROOT / ".cache" / "testbed"
FORKS = "16"


def add_addresses(bed, hosts):
    """{logical host: address}, spread over the nodes, all of them known to ssh."""
    addresses, known = {}, []
    for number in range(hosts):
        node = bed.nodes[NODES[number % len(NODES)]]
        address = node.address
        if number >= len(NODES):
            address = f"{node.address.rsplit('.', 1)[0]}.{100 + number}"
            node.shell(f"ip address add {address}/24 dev host0")
        addresses[f"node{number + 1:03d}"] = address
        known.append(f"{address} {node.host_key}\n")
    (bed.folder / "known_hosts").write_text("".join(known))
    return addresses


def write_inventory(bed, path, addresses):
    """The logical hosts with the same variables as the test bed's nodes have."""
    inventory = json.loads(audits.inventory_of(bed, {}))
    inventory["all"]["hosts"] = {
        name: {"ansible_host": address} for name, address in addresses.items()
    }
    path.write_text(json.dumps(inventory))


def cpu_seconds(bed, command, environment, number):
    """(user + system seconds, wall seconds) of the command and of everything that it started."""
    group = f"/sys/fs/cgroup/{bed.cgroup}/controller{number}"
    entered = ["sh", "-c", 'mkdir "$0" && echo $$ >"$0/cgroup.procs" && exec "$@"', group, *command]
    timed = ["bash", "-c", 'TIMEFORMAT=%R; time "$@" >/dev/null', "timed", *entered]
    done = bed.run(["env", f"--chdir={ROOT}", *timed], timeout_s=600, env=environment)
    if done.returncode:
        raise SystemExit(
            f"bench_play: {command[0]} ended with code {done.returncode}: {done.stderr[-500:]}"
        )
    lines = bed.run(["cat", f"{group}/cpu.stat"]).stdout.splitlines()
    used = {name: int(value) for name, value in (line.split() for line in lines)}
    return used["usage_usec"] / 1e6, float(done.stderr.strip().splitlines()[-1])


def commands(inventory):
    """The two that are compared."""
    return {
        "setup": [
            "ansible",
            "all",
            "-i",
            str(inventory),
            "-f",
            FORKS,
            "-m",
            "ansible.builtin.setup",
        ],
        "audit": ["ansible-playbook", "playbooks/audit.yml", "-i", str(inventory), "-f", FORKS],
    }


def measure(bed, work, inventory, rounds):
    """{name: [(CPU, wall), ...]} of `rounds` rounds after one that only warms up, in turns."""
    seen = {"setup": [], "audit": []}
    for number in range(rounds + 1):
        names = list(seen) if number % 2 else list(reversed(seen))
        for name in names:
            run = work / f"run-{number}"
            environment = {
                **audits.environment_of(bed, work),
                "UNHANG_NEW_RUN": str(run),
                "UNHANG_JUDGE": "0",
            }
            spent = cpu_seconds(bed, commands(inventory)[name], environment, f"-{name}-{number}")
            shutil.rmtree(run, ignore_errors=True)
            if number:
                seen[name].append(spent)
    return seen


def main():
    """Prints the row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=48)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.stdout.write("bench_play: left out, it boots nodes, which takes root on Linux\n")
        return
    link_pynvml(ROOT)
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as folder:
        work = pathlib.Path(folder)
        library = build_fake_nvml(str(work))
        with Testbed(
            CACHE,
            NODES,
            prepare=lambda node: hardware.install(node, hardware.H200X8, library, work),
        ) as bed:
            write_inventory(bed, work / "hosts.json", add_addresses(bed, options.hosts))
            seen = measure(bed, work, work / "hosts.json", options.rounds)
    middle = {
        name: [statistics.median(column) for column in zip(*spent, strict=True)]
        for name, spent in seen.items()
    }
    ratios = [
        audit[0] / setup[0] for audit, setup in zip(seen["audit"], seen["setup"], strict=True)
    ]
    per_node = {name: 1000 * values[0] / options.hosts for name, values in middle.items()}
    version = subprocess.run(
        [str(audits.PROGRAMS / "ansible"), "--version"], capture_output=True, text=True
    ).stdout.splitlines()[0]
    sys.stdout.write(
        "| play | hosts | setup, CPU ms per node | audit, CPU ms per node | ratio (lowest to"
        " highest) | setup wall s | audit wall s |\n| --- | --- | --- | --- | --- | --- | --- |\n|"
        f" {version} | {options.hosts} | {per_node['setup']:.0f} | {per_node['audit']:.0f} |"
        f" {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        f" {middle['setup'][1]:.1f} | {middle['audit'][1]:.1f} |\n"
    )


if __name__ == "__main__":
    main()
