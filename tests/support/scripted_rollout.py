"""The waves of playbooks/remediate.yml by the real ansible-playbook, action plugins and callback,
over scripted nodes: each acts as its script says.

Only the nodes are not real: a step's tasks file asks a stand-in, and a node's lock and baseline are
not stored anywhere.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import subprocess
import sys

import yaml
from fakes.role_play import PROJECT, environment, read_play

from unhang.act.plan.plan_document import (
    HostPlan,
    Plan,
    PlanLimits,
    PlannedRun,
    Reboot,
    Remedy,
    Wave,
    write_plan,
)
from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.rollout_state import replay
from unhang.act.rollout.steps import STEPS
from unhang.core.schemas.configuration import hash_of_sections

PLAYS = ("Open the plan", "Roll out", "Count the nodes that are not proved")
OLD, NEW = "545.23.08", "535.309.01"
OLD_KERNEL, NEW_KERNEL = "6.8.0-51-generic", "6.8.0-57-generic"
WANTED = {"driver": {"version": NEW}, "kernel": {"version": NEW_KERNEL}}
READ = {"status": "ok"}
DEADLINE_S = 800
STEP = """
- name: Act as the script says
  scripted_node: {{step: {step}, order: '{{{{ rollout_asked.order }}}}', faults: '{{{{ faults | default([]) }}}}', nodes: '{{{{ scripted_nodes }}}}'}}
  timeout: "{{{{ 3 if 'hangs {step}' in faults | default([]) else 600 }}}}"
  register: scripted
- name: Keep what it answered
  ansible.builtin.set_fact:
    rollout_evidence: '{{{{ rollout_evidence | combine(scripted.evidence) }}}}'
"""
CHECKED = "- name: Check that no job runs\n  ansible.builtin.include_tasks: still_free.yml\n"


def sections(boot):
    """The facts of a node before its change that a rollout reads."""
    driver = {"probe": READ, "loaded": {"is_loaded": True, "version": OLD}}
    return {
        "node": {"probe": READ, "boot_id": boot},
        "driver": driver,
        "kernel": {"probe": READ, "release": OLD_KERNEL},
    }


@dataclasses.dataclass
class Scripted:
    """folder: of all files; run: the plan's run folder; played: the output of ansible-playbook."""

    folder: object
    run: object
    played: object = None

    def states(self):
        """{host: state} by the journal, for the hosts that it names."""
        return {
            host: node.state for host, node in replay(read_journal(self.run).entries).nodes.items()
        }

    def why(self, host):
        """The reason for a node's state."""
        return replay(read_journal(self.run).entries).node(host).why

    def drained(self):
        """Hosts that are really out of service."""
        return sorted(path.name.removesuffix(".drained") for path in self.folder.glob("*.drained"))

    def boot(self, host):
        """The boot that the node is really in."""
        return json.loads((self.run / "nodes" / f"{host}.json").read_text())["facts"]["sections"][
            "node"
        ]["boot_id"]

    def acts(self, step):
        """Hosts on which a step really ran, in order."""
        return [
            line.split()[0]
            for line in (self.folder / "acts").read_text().splitlines()
            if line.split()[1] == step
        ]


def planned(folder, waves, floor=0):
    """The run folder of a plan with these waves, in which each node gets another kernel and driver
    with one reboot."""
    run = folder / "runs" / "20261120T070000Z-0123456789"
    (run / "nodes").mkdir(parents=True)
    hosts = [host for wave in waves for host in wave]
    kernel = Remedy("kernel", WANTED, ("policy-kernel-version",), OLD_KERNEL, NEW_KERNEL)
    driver = Remedy("gpu_driver", WANTED, ("policy-driver-version",), OLD, NEW)
    reboots, entries = (Reboot("apply", "driver"), Reboot("rollback", "back")), []
    for host in hosts:
        seen = sections(f"{host}-boot-1")
        document = {
            "schema": "unhang/node/1",
            "host": host,
            "groups": [],
            "policy": {},
            "status": "ok",
            "message": "",
            "facts": {"sections": seen},
        }
        (run / "nodes" / f"{host}.json").write_text(json.dumps(document))
        entries.append(
            HostPlan(host, f"{host}-boot-1", hash_of_sections(seen), (kernel, driver), reboots)
        )
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = [
        Wave("canary 1" if number == 0 else f"wave {number}", tuple(wave))
        for number, wave in enumerate(waves)
    ]
    write_plan(
        run,
        Plan(
            PlannedRun(run.name, now, now),
            now[:10],
            PlanLimits(len(hosts), floor, len(hosts)),
            tuple(entries),
            tuple(named),
        ),
    )
    return run


def prepare(folder, waves, real=(), floor=0):
    """The playbook in a folder of its own. real: files of tasks/rollout that are used unchanged;
    floor: number of nodes that stay in service."""
    source, tasks = PROJECT / "playbooks" / "tasks" / "rollout", folder / "tasks" / "rollout"
    tasks.mkdir(parents=True)
    plays = {
        play["name"]: play
        for play in yaml.safe_load((PROJECT / "playbooks" / "rollout.yml").read_text())
    }
    (folder / "rollout.yml").write_text(json.dumps([plays[name] for name in PLAYS]))
    for name in (
        "step",
        "floor",
        "listed",
        "look_back",
        "still_free",
        "smoke_group",
        *STEPS,
        "ours",
    ):
        is_real = name in ("step", "floor", "listed", "look_back", "ours", *real)
        checked = (
            CHECKED if "still_free" in real and name in ("apply", "reboot", "roll_back") else ""
        )
        scripted = checked + STEP.format(step=name)
        (tasks / f"{name}.yml").write_text(
            (source / f"{name}.yml").read_text() if is_real else scripted
        )
    return Scripted(folder, planned(folder, waves, floor))


def roll_out(scripted, faults, environment_more=(), **variables):
    """Plays all waves. faults: {host: [fault of scripted_node]}; variables: of all hosts."""
    folder, run = scripted.folder, scripted.run
    hosts = [
        host
        for wave in json.loads((run / "plan.json").read_text())["waves"]
        for host in wave["hosts"]
    ]
    given = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "scripted_nodes": str(folder),
        "node_change_run": run.name,
    }
    given |= {"node_change_fencing": 7, "unhang_plan": str(run), "unhang_apply": True, **variables}
    rows = {host: {"faults": faults.get(host, [])} for host in hosts}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": rows}}))
    kept = environment(folder) | {
        "UNHANG_RUN_DIR": str(run),
        **dict(environment_more),
    }
    kept["ANSIBLE_ACTION_PLUGINS"] = (
        f"{PROJECT / 'tests' / 'fakes' / 'scripted_plugins'}:{PROJECT / 'plugins' / 'action'}"
    )
    options = {
        "cwd": PROJECT,
        "env": kept,
        "capture_output": True,
        "text": True,
        "timeout": DEADLINE_S,
        "stdin": subprocess.DEVNULL,
    }
    command = [
        "ansible-playbook",
        str(folder / "rollout.yml"),
        "-i",
        str(folder / "hosts.json"),
        "-e",
        json.dumps(given),
    ]
    scripted.played = read_play(subprocess.run(command, **options))
    return scripted
