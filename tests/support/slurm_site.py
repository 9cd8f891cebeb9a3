"""Nodes in a real Slurm as an operator has them: an inventory, the commands of `unhang`, and each
node's state in a rollout's journal and in Slurm."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import audits
from controller_process import under_way

from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.rollout_state import replay

DEADLINE_S = 1500
SMOKE = [
    "--backend",
    "gloo",
    "--nproc",
    "1",
    "--max-size",
    "64K",
    "--sizes",
    "16K",
    "--phases",
    "broadcast,all_reduce",
    "--step-timeout",
    "200",
]
# Long limits, because the nodes share a machine with other tests.
PATIENT = {"unhang_node_timeout_s": 400, "unhang_silence_s": 60, "unhang_deadline_s": 200}
VARIABLES = {
    **PATIENT,
    "drain_poll_s": 1,
    "unhang_come_up_timeout_s": 10,
    "smoke_test_arguments": SMOKE,
    "smoke_test_experiments": False,
}


class Site:
    """cluster: of slurm_nodes; work: a folder of the test; groups, variables and host_variables: of
    the inventory."""

    def __init__(self, cluster, work, groups=None, variables=None, host_variables=None):
        self.cluster, self.work = cluster, work
        self.inventory = work / "hosts.json"
        groups = {"training": list(cluster.bed.names), **(groups or {})}
        self.inventory.write_text(
            audits.inventory_of(
                cluster.bed, groups, {**VARIABLES, **(variables or {})}, host_variables
            )
        )

    def command(self, *argv):
        """argv of `unhang` on the controller."""
        return self.cluster.bed.inside(
            [sys.executable, "-P", "-m", "unhang", *argv], audits.PROJECT
        )

    def unhang(self, *argv, codes=(0, 1)):
        """Output of a command."""
        captured = {
            "stdin": subprocess.DEVNULL,
            "capture_output": True,
            "text": True,
            "errors": "replace",
            "timeout": DEADLINE_S,
        }
        done = subprocess.run(
            self.command(*argv), env=self.cluster.environment, check=False, **captured
        )
        sys.stdout.write(f"$ unhang {' '.join(argv)}\n{done.stdout}\n{done.stderr}\n")
        assert done.returncode in codes, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def audit(self):
        """The run folder of a new audit."""
        self.unhang("audit", "-i", str(self.inventory), "--out", str(self.work / "runs"))
        return (self.work / "runs" / "latest").resolve()

    def plan(self, run, *argv):
        """The plan of a run, as a value."""
        self.unhang("plan", str(run), *argv)
        return json.loads((run / "plan.json").read_text())

    @contextlib.contextmanager
    def remediating(self, run, python, *argv):
        """A running `unhang remediate --apply`; its output goes to remediate.log. Killed when the
        block ends."""
        command = self.command(
            "remediate",
            str(run),
            "--apply",
            f"--ansible=--extra-vars=smoke_test_python={python}",
            *argv,
            *([] if "--soak" in argv else ["--soak", "0"]),
        )
        with (self.work / "remediate.log").open("a") as log:
            try:
                with under_way(command, self.cluster.environment, log) as process:
                    yield process
            finally:
                sys.stdout.write(self.output)

    def await_step(self, process, run, host, step, status):
        """Waits until the journal has a step of a node, while the rollout runs."""
        audits.wait_until(
            lambda: entries(run, host, step, status) or process.poll() is not None,
            f"{host}: {step} {status}",
            DEADLINE_S,
        )
        assert process.poll() is None, self.output[-5000:]

    @property
    def output(self):
        """All output of `unhang remediate` so far."""
        return (self.work / "remediate.log").read_text()


def entries(run, host, step, status):
    """The journal's entries about one step of a node."""
    return [
        one
        for one in read_journal(run).entries
        if (one.host, one.step, one.status) == (host, step, status)
    ]


def node_of(run, host):
    """The state of a node in the journal."""
    return replay(read_journal(run).entries).node(host)


def states(run, names):
    """{host: state} by the journal."""
    known = replay(read_journal(run).entries)
    return {name: known.node(name).state for name in names}


def boot_ids(fleet, names):
    """{host: boot id}, of nodes that may have rebooted."""
    for name in names:
        fleet.nodes[name].find_leader()
    return {
        name: fleet.shell(name, "cat /proc/sys/kernel/random/boot_id").strip() for name in names
    }


def failed_rules(run, names, but=()):
    """{host: rules} of the findings of a run. but: severities that do not count."""
    found = {name: set() for name in names}
    for one in json.loads((run / "findings.json").read_text())["findings"]:
        counts = one["verdict"] == "fail" and one["severity"] not in but
        for host in audits.names_of(one) if counts else ():
            found[host].add(one["rule"])
    return found


def unnamed(plan, host, rules):
    """Those of these rules that the plan neither gives to a person nor names in a refusal."""
    [row] = [row for row in plan["hosts"] if row["host"] == host]
    texts = " ".join(one["why"] for one in row["refused"])
    return sorted(
        rule for rule in rules - {one["rule"] for one in row["person"]} if rule not in texts
    )
