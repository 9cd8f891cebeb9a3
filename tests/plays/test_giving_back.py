"""playbooks/end.yml gives back what a rollout holds: of a node that the inventory no longer has by
its scheduler alone, of one without an answer later."""

from __future__ import annotations

import json
import subprocess
import sys

import site_drain
from fakes.role_play import PROJECT, environment
from scripted_rollout import planned

from unhang.act.rollout import journal
from unhang.act.rollout.rollout_state import replay
from unhang.act.rollout.steps import BEGUN, DONE, WAITS, Entry

AT, BY = "2026-11-20T08:00:00Z", {"by": "alice", "options": {}}
TAKEN_OUT, SILENT = "gpu001", "gpu002"


def waiting(folder, hosts):
    """The run folder of a rollout whose nodes are drained and wait for their jobs."""
    run = planned(folder, [[host] for host in hosts])
    epoch = journal.begin(run, AT, BY)
    for host in hosts:
        lock = {"fencing": 7, "boot_id": f"{host}-boot-1"}
        waits = {"drained": True, "owned": True, "jobs": ["4711"], "why": "job 4711"}
        for step, status, evidence in (
            ("lock", BEGUN, {}), ("lock", DONE, lock), ("drain", BEGUN, {}), ("drain", WAITS, waits),
        ):  # fmt: skip
            journal.append(run, epoch, Entry(AT, host, step, status, 7, evidence))
    journal.append(run, epoch, Entry(AT, "", "rollout", DONE, epoch, {}))
    return run


def ended(folder, run, rows, variables):
    """The output of the playbook with an inventory of these hosts."""
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": rows}}))
    (folder / "new").mkdir(exist_ok=True)
    given = {"unhang_plan": str(run), **variables}
    done = subprocess.run(
        ["ansible-playbook", "playbooks/end.yml", "-i", str(folder / "hosts.json"), "-e",
         json.dumps(given)],
        cwd=PROJECT,
        env=environment(folder) | {"UNHANG_RUN_DIR": str(folder / "new"), "UNHANG_HISTORY": "off"},
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    sys.stdout.write(done.stdout + done.stderr)
    return done


def test_a_node_is_given_back_without_the_inventory_and_the_rollout_ends_with_the_last(tmp_path):
    run, site = waiting(tmp_path, [TAKEN_OUT, SILENT]), tmp_path / "site"
    site.mkdir()
    held = {"drained": True, "by": "site", "reason": f"unhang {run.name}: drivers"}
    given = site_drain.install(site, {TAKEN_OUT: held, SILENT: held})
    refused = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_user": "nobody"}
    ended(tmp_path, run, {SILENT: refused}, given)
    first = replay(journal.read_journal(run).entries)
    assert {host: node.state for host, node in first.nodes.items()} == {
        TAKEN_OUT: "deferred",
        SILENT: "unfinished",
    }
    assert first.closed is None
    drained = [json.loads((site / f"{host}.json").read_text())["drained"] for host in first.nodes]
    assert drained == [False, True]

    ended(tmp_path, run, {"other": refused}, given)
    second = replay(journal.read_journal(run).entries)
    assert second.closed.startswith("ended by ")
    assert second.node(SILENT).state == "deferred"
    assert not json.loads((site / f"{SILENT}.json").read_text())["drained"]
